"""RocksDB's options: memory is bounded per worker, and writes are not slowed down while compaction can catch up."""

from __future__ import annotations

from dataclasses import dataclass

from rocksdict import BlockBasedOptions, Cache, DBCompressionType, Options, WriteBufferManager

__all__ = ("StateFileOptions", "Tuning")

_MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class StateFileOptions:
    """The memory and threads that one worker's database may use, whatever the number of stores and tasks."""

    cache_bytes: int = 96 * _MIB
    """All off-heap memory in bytes: blocks, indexes, filters and write buffers share one cache, filled lazily."""

    write_buffer_bytes: int = 48 * _MIB
    """The part of `cache_bytes` that the write buffers of all stores together may take."""

    max_open_files: int = 512
    """SST files kept open; each takes a file descriptor."""

    background_jobs: int = 2
    """Threads for flushes and compactions."""

    compression: bool = True
    """Whether data blocks are compressed, with LZ4."""

    def __post_init__(self) -> None:
        if not 0 < self.write_buffer_bytes <= self.cache_bytes:
            raise ValueError(
                f"write buffers of {self.write_buffer_bytes} bytes do not fit a cache of {self.cache_bytes} bytes: "
                "write buffers are part of the cache"
            )


class Tuning:
    """The options of a database and its column families, which share one cache."""

    def __init__(self, given: StateFileOptions) -> None:
        self.given = given
        self._cache = Cache(given.cache_bytes)
        self._buffers = WriteBufferManager.new_write_buffer_manager_with_cache(
            given.write_buffer_bytes,
            False,  # noqa: FBT003  # RocksDB's API: do not stall writers
            self._cache,
        )

    def database(self) -> Options:
        """Return the options of the database, and of the column family of checkpoints."""
        options = self.family()
        given = self.given
        options.create_if_missing(True)  # noqa: FBT003  # RocksDB's API
        options.set_write_buffer_manager(self._buffers)
        options.set_max_background_jobs(given.background_jobs)
        options.set_max_open_files(given.max_open_files)
        # A start after a kill replays at most this much.
        options.set_max_total_wal_size(max(64 * _MIB, 2 * given.write_buffer_bytes))
        options.set_keep_log_file_num(2)
        options.set_max_log_file_size(4 * _MIB)
        options.set_stats_dump_period_sec(0)
        options.set_stats_persist_period_sec(0)
        return options

    def family(self) -> Options:
        """Return the options of the column family of a store."""
        given = self.given
        options = Options(raw_mode=True)
        table = BlockBasedOptions()
        table.set_block_cache(self._cache)
        table.set_bloom_filter(10, False)  # noqa: FBT003  # RocksDB's API: one filter per file
        # In the cache, so that its size bounds them, too.
        table.set_cache_index_and_filter_blocks(True)
        table.set_pin_l0_filter_and_index_blocks_in_cache(True)
        table.set_block_size(16 * 1024)
        table.set_format_version(5)
        options.set_block_based_table_factory(table)
        options.set_compression_type(DBCompressionType.lz4() if given.compression else DBCompressionType.none())
        options.set_write_buffer_size(max(given.write_buffer_bytes // 2, 64 * 1024))
        options.set_max_write_buffer_number(3)
        # A write holds the interpreter's lock: RocksDB must not slow it down for a burst that compaction will absorb.
        options.set_level_zero_slowdown_writes_trigger(40)
        options.set_level_zero_stop_writes_trigger(64)
        options.set_level_compaction_dynamic_level_bytes(True)
        return options
