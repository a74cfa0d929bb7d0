"""The stores: key-value, window and suppress buffer. Each stages writes in memory in front of a backend."""
