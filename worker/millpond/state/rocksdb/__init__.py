"""The state file: the RocksDB database of a worker."""
