"""The RocksDB database of a state file: opening and recovery, column families, write batches."""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NoReturn

from rocksdict import Rdict, WriteBatch, WriteOptions

from millpond.backoff import Backoff
from millpond.errors import StateCorrupted, StateError
from millpond.state.formats import partition_prefix

from .checkpoints import Checkpoints, delete_checkpoints, delete_marker, read_checkpoints
from .column_families import Family, Scan
from .errors import free_bytes, is_corruption, named_file, state_error
from .options import StateFileOptions, Tuning

__all__ = ("STORE", "Database")

STORE = "store:"
"""The prefix of the names of the stores' column families."""

_STALLED = "Write stall"
_BACKOFF = Backoff(timedelta(microseconds=500), timedelta(milliseconds=20))


class Database:
    """One RocksDB database, which can be closed and opened again.

    Attributes:
        set_aside: the path that the previous database was moved to; see `StateFile`.
        reason: the reason why the previous database could not be opened.
        rebuilt: store -> the reason why it was dropped to open the database.
        generation: a number that changes when the database is closed or opened again.
        db: RocksDB's handle, None while it is closed.
        families: the column family of each store.
        checkpoints: the checkpoints of all store partitions, as last written.
    """

    def __init__(self, directory: Path, options: StateFileOptions) -> None:
        """Prepare the database; `recover` opens it.

        Args:
            directory: the directory of the worker; the database is its folder `db`.
            options: memory bounds.
        """
        self.set_aside: Path | None = None
        self.reason: str | None = None
        self.rebuilt: dict[str, str] = {}
        self.generation: int = 0
        self.db: Rdict | None = None
        self.families: dict[str, Family] = {}
        self.checkpoints: Checkpoints = Checkpoints({}, {}, set())
        self._directory = directory
        self._path = directory / "db"
        self._tuning = Tuning(options)
        self._without_stall = WriteOptions()
        self._without_stall.no_slowdown = True
        self._scans: weakref.WeakSet[Scan] = weakref.WeakSet()
        self._failed: StateError | None = None

    # Opening and recovery

    def last_used_ms(self) -> int | None:
        """Return the time of the newest file in epoch ms; None without files. Call it before `recover`."""
        times = [each.stat().st_mtime for each in self._path.glob("*")] if self._path.is_dir() else []
        return int(max(times) * 1000) if times else None

    def recover(self) -> None:
        """Open the database; drop a corrupted store if that is enough, else move the whole database aside.

        Rows of an unfinished ingestion are deleted.

        Raises:
            StateError: the directory cannot be used.
        """
        while True:
            try:
                self._open()
                self._drop_unfinished()
                return
            except StateCorrupted as error:
                self.close()
                reason = str(error)
            store = self._drop_corrupted_store(reason)
            if store is None:
                break
            self.rebuilt[store] = reason
        self.reason = reason
        stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%S.%fZ")
        self.set_aside = self._directory / f"corrupt-{stamp}"
        self._path.rename(self.set_aside)
        self.checkpoints = Checkpoints({}, {}, set())
        self.families = {}
        self._open()

    def _open(self, *, lenient: bool = False) -> None:
        path = self._path
        known = (path.exists() and any(path.glob("*.sst"))) or any(path.glob("MANIFEST-*"))
        if known and not (path / "CURRENT").exists():
            # RocksDB would take it for a new database and delete the files of the old one.
            raise StateCorrupted(f"the database in '{path}' has lost its file CURRENT")
        try:
            names = Rdict.list_cf(str(path), self._tuning.database()) if known else ["default"]
            families = {name: self._tuning.family() for name in names}
            options = self._tuning.database()
            if lenient:
                options.set_paranoid_checks(False)
            self.db = Rdict(str(path), options, column_families=families)
            for name in names:
                if name.startswith(STORE):
                    self._open_family(name[len(STORE) :])
            self.checkpoints = read_checkpoints(self.opened())
            self._failed = None
        except StateError:
            raise
        except Exception as error:  # RocksDB raises plain exceptions
            text = str(error)
            if is_corruption(text) or (known and "No such file" in text):
                raise StateCorrupted(f"the database in '{path}' cannot be opened: {text}") from error
            self.fail(error)

    def _drop_unfinished(self) -> None:
        """Delete the rows of a store partition that a killed process has ingested."""
        for store, partition in sorted(self.checkpoints.unfinished):
            self.drop(store, partition)

    def _drop_corrupted_store(self, reason: str) -> str | None:
        """Drop the store whose damaged file keeps the database closed; return its name, None without such a store."""
        if named_file(reason) is None:
            return None
        try:
            self._open(lenient=True)
            store = self._store_of_file(reason)
            if store is not None:
                self._drop_family(store)
        except StateError:
            store = None
        finally:
            self.close()
        return store

    def rebuild(self, store: str) -> None:
        """Drop the column family and the checkpoints of a store, even damaged ones, and create it again, empty."""
        # A database that has seen corruption may reject every change until it is opened again.
        self.close()
        self.recover()
        if store in self.families:
            self._drop_family(store)

    def _drop_family(self, store: str) -> None:
        checkpoints = self.checkpoints
        places = [each for each in {*checkpoints.written, *checkpoints.unfinished} if each[0] == store]

        def fill(batch: WriteBatch) -> None:
            delete_checkpoints(batch, places)
            for place in places:
                delete_marker(batch, *place)

        try:
            if places:
                # First: rows without offsets are restored from the beginning, but offsets without rows would be
                # trusted.
                self.write(fill)
            self.families[store].close()
            self.opened().drop_column_family(STORE + store)
            self.opened().create_column_family(STORE + store, self._tuning.family())
            self._open_family(store)
        except Exception as error:  # noqa: BLE001  # RocksDB raises plain exceptions
            self.fail(error, store)
        for place in places:
            checkpoints.forget(place)

    def close(self) -> None:
        """Close the database; open scans end. Idempotent."""
        self.generation += 1
        for scan in list(self._scans):
            scan.close()
        for family in self.families.values():
            family.close()
        db, self.db = self.db, None
        if db is not None:
            try:
                if self._failed is not None:
                    # A flush would wait for space that is not there.
                    db.cancel_all_background(True)  # noqa: FBT003  # RocksDB's API: wait for them
                db.close()
            except Exception:  # noqa: BLE001
                # What could not be flushed is in the write-ahead log, or its write failed and was reported then.
                pass

    def opened(self) -> Rdict:
        """Return RocksDB's handle.

        Raises:
            StateError: the database is closed.
        """
        if self.db is None:
            raise StateError(f"the state file in '{self._directory}' is closed")
        return self.db

    # Column families

    def family(self, store: str) -> Family:
        """Return the column family of a store; create it for a new store."""
        family = self.families.get(store)
        if family is None:
            try:
                self.opened().create_column_family(STORE + store, self._tuning.family())
                family = self._open_family(store)
            except Exception as error:  # noqa: BLE001  # RocksDB raises plain exceptions
                self.fail(error, store)
        return family

    def _open_family(self, store: str) -> Family:
        name, db = STORE + store, self.opened()
        try:
            family = self.families.get(store)
            if family is None:
                family = self.families[store] = Family(store)
            family.open(db.get_column_family(name), db.get_column_family_handle(name))
            return family
        finally:
            del db

    def scan(self, store: str, low: bytes, high: bytes | None, *, reverse: bool) -> Scan:
        """Return the rows with low <= key < high as of now; `close` ends it."""
        scan = Scan(self.family(store), low, high, self.fail, reverse=reverse)
        self._scans.add(scan)
        return scan

    def usage(self) -> dict[str, int]:
        """Return the current resource use of the database, in bytes and counts; empty while it is closed."""
        families = [family.rows for family in list(self.families.values()) if family.rows is not None]
        if self.db is None or not families:
            return {}
        sums = {
            name: sum(rows.property_int_value(f"rocksdb.{source}") or 0 for rows in families)
            for name, source in (("memtable_bytes", "cur-size-all-mem-tables"), ("sst_bytes", "live-sst-files-size"))
        }
        whole = {
            name: families[0].property_int_value(f"rocksdb.{source}") or 0
            for name, source in (
                ("block_cache_bytes", "block-cache-usage"),
                ("running_compactions", "num-running-compactions"),
                ("running_flushes", "num-running-flushes"),
            )
        }
        opened = [scan.opened_at for scan in list(self._scans) if scan.is_open]
        oldest_s = int(time.monotonic() - min(opened)) if opened else 0
        return {**sums, **whole, "open_iterators": len(opened), "oldest_iterator_age_seconds": oldest_s}

    # Writing

    def drop(self, store: str, partition: int) -> None:
        """Delete the rows and the checkpoint of a store partition."""
        low, high = partition_prefix(partition), partition_prefix(partition + 1)

        def fill(batch: WriteBatch) -> None:
            batch.delete_range(low, high, self.family(store).handle)
            delete_checkpoints(batch, [(store, partition)])
            if (store, partition) in self.checkpoints.unfinished:
                delete_marker(batch, store, partition)

        self.write(fill)
        self.checkpoints.forget((store, partition))

    def write(self, fill: Callable[[WriteBatch], None]) -> None:
        """Write the batch that `fill` fills, waiting without the interpreter's lock while RocksDB is behind.

        Raises:
            StateError: this write or an earlier one failed; nothing more is accepted until the database is opened
                again.
        """
        if isinstance(self._failed, StateCorrupted):
            raise StateCorrupted(str(self._failed), self._failed.store)
        if self._failed is not None:
            raise StateError(str(self._failed))
        while True:
            batch = WriteBatch(raw_mode=True)
            fill(batch)
            try:
                self.opened().write(batch, self._without_stall)
                return
            except Exception as error:  # noqa: BLE001  # RocksDB raises plain exceptions
                # RocksDB may accept writes again once there is space, but the rows of this batch would be missing
                # below.
                try:
                    if _STALLED not in str(error):
                        self.fail(error)
                    self._await_room()
                except StateError as failure:
                    self._failed = failure
                    raise

    def sync(self) -> None:
        """Sync the write-ahead log: ingested files survive a crash of the machine, so their marker must, too."""
        try:
            self.opened().flush_wal(True)  # noqa: FBT003  # RocksDB's API: sync
        except Exception as error:  # noqa: BLE001  # RocksDB raises plain exceptions
            self.fail(error)

    def flush(self, store: str) -> None:
        """Write the store's memtable into a file. Ingestion would do so with the interpreter's lock held."""
        family = self.family(store)
        try:
            if family.rows is not None:
                family.rows.flush()
        except Exception as error:  # noqa: BLE001  # RocksDB raises plain exceptions
            self.fail(error, store)

    def _await_room(self) -> None:
        """Wait until flushes and compactions have caught up, or have failed.

        RocksDB itself would wait inside `write`, with the interpreter's lock, and for ever when the disk is full.
        """
        waits = iter(_BACKOFF)
        while self._property("rocksdb.is-write-stopped") or self._property("rocksdb.actual-delayed-write-rate"):
            if self._property("rocksdb.background-errors"):
                self.fail(self._background_error())
            time.sleep(next(waits))

    def _background_error(self) -> Exception:
        free = free_bytes(self._directory)
        if free is not None and free < 2 * self._tuning.given.write_buffer_bytes:
            return OSError("No space left on device: a write buffer could not be made a file")
        return OSError("a flush or compaction failed, see the file LOG beside the database's files")

    def _property(self, name: str) -> int:
        return self.opened().property_int_value(name) or 0

    # Errors

    def fail(self, error: Exception, store: str | None = None) -> NoReturn:
        """Raise the `StateError` for an error of RocksDB; a `StateError` is raised unchanged."""
        if isinstance(error, StateError):
            raise error
        text = str(error)
        if is_corruption(text):
            store = store or self._store_of_file(text)
        raise state_error(text, self._directory, store) from error

    def _store_of_file(self, text: str) -> str | None:
        """Return the store with the file that an error names; None if no store has it."""
        number = named_file(text)
        if number is not None:
            for store, family in list(self.families.items()):
                listing = family.rows.property_value("rocksdb.sstables") if family.rows is not None else None
                if listing and any(line.lstrip().startswith(f"{number}:") for line in listing.splitlines()):
                    return store
        return None
