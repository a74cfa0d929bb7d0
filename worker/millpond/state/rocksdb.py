"""The state file: one RocksDB per worker, a column family per store, changelog offsets beside the rows.

A commit is one write batch over all stores: rows, deletions and offsets become visible together or not at all. The
write-ahead log is on, so a killed process loses nothing; it is not synced, since what a crash of the machine loses is
in the changelog.
"""

from __future__ import annotations

import re
import shutil
import struct
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, suppress
from datetime import UTC, datetime
from itertools import starmap
from operator import itemgetter
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, NoReturn, Self

from rocksdict import ColumnFamily, Rdict, WriteBatch, WriteOptions

from millpond.errors import StateCorrupted, StateError

from .backend import Row, Rows, Written
from .families import Family, Scan
from .formats import partition_prefix
from .ingestion import MARKER, End, Hooks, StateFileIngestion, mark, marker_key
from .locking import DirectoryLock
from .look import Look
from .provenance import Provenance
from .tuning import StateFileOptions, Tuning

__all__ = ("FORMAT", "STORE", "BesideRows", "StateFile", "read_beside")

_MIB = 1024 * 1024
FORMAT = "millpond state 1"
"""What the file `format` in a worker's directory says."""
STORE = "store:"
"""Begins the name of a store's column family."""
_offset = struct.Struct(">q")
_NO_OFFSET = -1
#: No store's name begins so; what reads only offsets takes it for a store that nobody has.
_PROVENANCE = b"\0provenance:"
_STALLED = "Write stall"
_SHORTEST_PAUSE_S = 0.0005
_LONGEST_PAUSE_S = 0.02
_row_key, _row_value = itemgetter(0), itemgetter(1)
_FILE = re.compile(r"\b0*(\d+)\.sst\b")


class BesideRows(NamedTuple):
    """What stands beside the rows of store partitions."""

    written: dict[tuple[str, int], Written]
    provenances: dict[tuple[str, int], Provenance]
    unfinished: set[tuple[str, int]]
    """Those into which files were being ingested: their rows do not count."""


class StateFile:
    """The database of one worker. One thread writes; others may read, each time inside `shared()`.

    rocksdict holds the interpreter's lock while it reads, so reads of several threads never meet inside RocksDB. What
    may not happen between two of them is that the database is closed or opened anew.

    Attributes:
        path: the worker's directory.
        set_aside: where the previous database went when it could not be opened, None when all is well. Then this one
            is empty, and every store is to be restored from its changelog.
        reason: why it could not be opened.
        generation: changes when the database is closed or opened anew, which ends the iterators of before.
        rebuilt: store -> why it had to be given up to open the database. Its rows and offsets are gone, and it is to be
            restored from its changelog; the other stores are untouched.
        last_used_ms: when the database that was found was last written, in epoch milliseconds; None when it is new.
    """

    path: Path
    set_aside: Path | None
    reason: str | None
    generation: int
    rebuilt: dict[str, str]
    last_used_ms: int | None

    def __init__(self, path: Path | str, options: StateFileOptions | None = None) -> None:
        """Open or create the database.

        Args:
            path: `<state.dir>/<application.id>/<worker>`; made when missing.
            options: memory bounds.

        Raises:
            StateDirectoryLocked: another process has the directory.
            StateError: the directory cannot be used, or was written by a newer version.
        """
        self.path = Path(path)
        self.set_aside = None
        self.reason = None
        self.generation = 0
        self.rebuilt = {}
        self._tuning = Tuning(options or StateFileOptions())
        self._impatient = WriteOptions()
        self._impatient.no_slowdown = True
        self._families: dict[str, Family] = {}
        self._scans: weakref.WeakSet[Scan] = weakref.WeakSet()
        self._written: dict[tuple[str, int], Written] = {}
        self._provenances: dict[tuple[str, int], Provenance] = {}
        self._unfinished: set[tuple[str, int]] = set()
        self._db: Rdict | None = None
        self._failed: StateError | None = None
        self._sharing = threading.RLock()
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self._lock = DirectoryLock(self.path)
        except OSError as error:
            raise StateError(
                f"the state directory '{self.path}' cannot be used ({error.strerror}): "
                "make it writable, or set 'state.dir' to a directory that is"
            ) from error
        try:
            self._check_format()
            self.last_used_ms = self._last_used_ms()
            self._open_or_set_aside()
        except BaseException:
            self.close()
            raise

    @classmethod
    def open(cls, path: Path | str, options: StateFileOptions | None = None) -> StateFile:
        """Open or create the database of a worker; see the constructor."""
        return cls(path, options)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # Opening.

    @property
    def _database(self) -> Path:
        return self.path / "db"

    def _check_format(self) -> None:
        marker = self.path / "format"
        try:
            found = marker.read_text(encoding="utf-8", errors="replace").strip()
        except FileNotFoundError:
            marker.write_text(FORMAT + "\n", encoding="utf-8")
            return
        if found != FORMAT:
            raise StateError(
                f"the state directory '{self.path}' has the format '{found}', and this version of millpond reads "
                f"'{FORMAT}': use the version that wrote it, or move the directory away to restore from changelogs"
            )

    def _last_used_ms(self) -> int | None:
        """The time of the newest file. Opening the database makes new ones."""
        times = [each.stat().st_mtime for each in self._database.glob("*")] if self._database.is_dir() else []
        return int(max(times) * 1000) if times else None

    def _open_or_set_aside(self) -> None:
        """Open the database; give up a broken store alone where that is enough, else the whole of it."""
        while True:
            try:
                self._open_database()
                self._drop_unfinished()
                return
            except StateCorrupted as error:
                self._close_database()
                reason = str(error)
            store = self._give_up_store(reason)
            if store is None:
                break
            self.rebuilt[store] = reason
        self.reason = reason
        stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%S.%fZ")
        self.set_aside = self.path / f"corrupt-{stamp}"
        self._database.rename(self.set_aside)
        self._written = {}
        self._provenances = {}
        self._unfinished = set()
        self._families = {}
        self._open_database()

    def _give_up_store(self, reason: str) -> str | None:
        """Drop the store whose file keeps the database from opening; None when there is no such store."""
        if not _FILE.search(reason):
            return None
        try:
            self._open_database(lenient=True)
            store = self._store_of_file(reason)
            if store is not None:
                self._drop_family(store)
        except StateError:
            store = None
        finally:
            self._close_database()
        return store

    def _open_database(self, lenient: bool = False) -> None:
        path = self._database
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
            self._db = Rdict(str(path), options, column_families=families)
            for name in names:
                if name.startswith(STORE):
                    self._open_family(name[len(STORE) :])
            self._read_written()
            self._failed = None
        except StateError:
            raise
        except Exception as error:
            text = str(error)
            if _is_corruption(text) or (known and "No such file" in text):
                raise StateCorrupted(f"the database in '{path}' cannot be opened: {text}") from error
            self._raise(error)

    def _open_family(self, store: str) -> Family:
        name, db = STORE + store, self._open_db()
        try:
            family = self._families.get(store)
            if family is None:
                family = self._families[store] = Family(store)
            family.open(db.get_column_family(name), db.get_column_family_handle(name))
            return family
        finally:
            del db

    def _read_written(self) -> None:
        self._written, self._provenances, self._unfinished = read_beside(self._open_db())

    # Reading.

    def shared(self) -> AbstractContextManager[object]:
        """For reading in another thread than the one that writes: the database stays open while the block runs.

        Keep the block to some milliseconds: a `close` or a `rebuild` waits for its end, and ends iterators that are
        kept beyond it. A store that `stores()` does not name must not be asked for there: that would make it.
        """
        return self._sharing

    def reader(self, store: str) -> Callable[[bytes], bytes | None]:
        """The function that reads one row of a store by its full key; makes the store when it is new."""
        family = self._family(store)
        fail = self._raise

        def read(key: bytes, /) -> bytes | None:
            try:
                return family.get(key)
            except Exception as error:
                fail(error, store)

        return read

    def range(self, store: str, low: bytes, high: bytes | None, reverse: bool = False) -> Iterator[tuple[bytes, bytes]]:
        """Rows with low <= key < high as of now."""
        family = self._family(store)
        scan = Scan(family, low, high, reverse, self._raise)
        self._scans.add(scan)
        return scan

    def offset(self, store: str, partition: int) -> int | None:
        """The changelog offset last written for the partition."""
        written = self._written.get((store, partition))
        return None if written is None else written[0]

    def metadata(self, store: str, partition: int) -> bytes:
        """The metadata last written for the partition."""
        written = self._written.get((store, partition))
        return b"" if written is None else written[1]

    def provenance(self, store: str, partition: int) -> Provenance | None:
        """Where the partition's rows come from. Older versions of millpond did not write it: None then."""
        return self._provenances.get((store, partition))

    def look(self, store: str, partition: int) -> Look | None:
        """Return the rows of a store partition and what stands beside them, all of one moment; None without an offset.

        For readers in other threads, within `shared()`. The rows end early when `generation` changes.

        Raises:
            StateError: the database is closed or fails.
        """
        if store not in self._families:
            return None
        key, low, high = _written_key(store, partition), partition_prefix(partition), partition_prefix(partition + 1)
        while True:
            # A write in between changes the offset, since it comes with the rows.
            before = self._beside(key), self._beside(_PROVENANCE + key)
            if before[0] is None:
                return None
            rows = self.range(store, low, high)
            if (self._beside(key), self._beside(_PROVENANCE + key)) == before:
                break
        (offset,) = _offset.unpack_from(before[0])
        if offset == _NO_OFFSET:
            return None
        provenance = None if before[1] is None else Provenance.decode(before[1])
        return Look(offset, before[0][_offset.size :], provenance, rows)

    def _beside(self, key: bytes) -> bytes | None:
        try:
            found: bytes | None = self._open_db().get(key)
        except Exception as error:
            self._raise(error)
        return found

    def partitions(self, store: str) -> list[int]:
        """The partitions of a store with an offset or metadata."""
        return sorted(partition for name, partition in self._written if name == store)

    def stores(self) -> list[str]:
        """The stores in the file, whether the application still has them or not."""
        return sorted(self._families)

    def figures(self) -> dict[str, int]:
        """What the database takes at the moment, in bytes and counts; empty once it is closed. From any thread."""
        with self._sharing:
            return self._figures()

    def _figures(self) -> dict[str, int]:
        families = [family.rows for family in list(self._families.values()) if family.rows is not None]
        if self._db is None or not families:
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
        return {**sums, **whole}

    def count(self, store: str, partition: int) -> int:
        """RocksDB's estimate of the store's keys, divided evenly among its partitions."""
        family = self._family(store)
        if family.rows is None:
            raise StateError("the state file is closed")
        estimate = family.rows.property_int_value("rocksdb.estimate-num-keys") or 0
        return estimate // max(1, len(self.partitions(store)))

    # Writing.

    def write(
        self,
        groups: Iterable[tuple[str, int, list[Row]]],
        offsets: Mapping[tuple[str, int], Written] | None = None,
        provenances: Mapping[tuple[str, int], Provenance] | None = None,
    ) -> None:
        """Write rows and what stands beside them in one batch: all or nothing.

        Raises:
            StateError: the disk is full or fails. Nothing of the batch is there, and nothing more is accepted until
                the file is opened again.
            StateCorrupted: the database found itself broken.
        """
        groups = list(groups)

        def fill(batch: WriteBatch) -> None:
            self._fill(batch, groups)
            if offsets:
                put = batch.put
                for (store, partition), (offset, metadata) in offsets.items():
                    value = _offset.pack(_NO_OFFSET if offset is None else offset) + metadata
                    put(_written_key(store, partition), value)
            if provenances:
                for (store, partition), each in provenances.items():
                    batch.put(_PROVENANCE + _written_key(store, partition), each.encode())

        self._write(fill)
        if offsets:
            self._written.update(offsets)
        if provenances:
            self._provenances.update(provenances)

    def _fill(self, batch: WriteBatch, groups: Iterable[tuple[str, int, list[Row]]]) -> None:
        put, delete, delete_range = batch.put, batch.delete, batch.delete_range
        handle: ColumnFamily | None = None
        try:
            for store, _, rows in groups:
                handle = self._family(store).handle
                ranges = rows.ranges if isinstance(rows, Rows) else ()
                # Insertions in the order of keys go on from each other's place. Rows of one key stay in their order.
                rows = sorted(rows, key=_row_key)
                if all(map(_row_value, rows)):
                    # No deletion among them: one C loop.
                    batch.set_default_column_family(handle)
                    deque(starmap(put, rows), maxlen=0)
                    batch.set_default_column_family(None)
                else:
                    for key, value in rows:
                        if value is None:
                            delete(key, handle)
                        else:
                            put(key, value, handle)
                for low, high in ranges:
                    delete_range(low, high, handle)
        finally:
            handle = None

    def delete_range(self, store: str, low: bytes, high: bytes) -> None:
        """Delete all rows with low <= key < high."""
        self.write([(store, 0, Rows((), [(low, high)]))])

    def drop(self, store: str, partition: int) -> None:
        """Forget the rows of one partition and what stands beside them."""
        low, high = partition_prefix(partition), partition_prefix(partition + 1)

        def fill(batch: WriteBatch) -> None:
            batch.delete_range(low, high, self._family(store).handle)
            batch.delete(_written_key(store, partition))
            batch.delete(_PROVENANCE + _written_key(store, partition))
            if (store, partition) in self._unfinished:
                batch.delete(marker_key(store, partition))

        self._write(fill)
        self._forget(store, partition)

    def _forget(self, store: str, partition: int) -> None:
        self._written.pop((store, partition), None)
        self._provenances.pop((store, partition), None)
        self._unfinished.discard((store, partition))

    def _drop_unfinished(self) -> None:
        """Delete what a process that was killed has ingested of a store partition."""
        for store, partition in sorted(self._unfinished):
            self.drop(store, partition)

    def ingestion(self, store: str, partition: int, beside: Collection[int] = ()) -> StateFileIngestion:
        """Delete the rows of a store partition and what stands beside them, to replace them by SST files.

        Args:
            store: the store.
            partition: of the rows.
            beside: further partitions whose offsets are of these rows; only a global store's are.

        Raises:
            StateError: the disk is full or fails.
        """
        partitions = {partition, *beside}
        low, high = partition_prefix(partition), partition_prefix(partition + 1)
        found = next(self.range(store, low, high), None) is not None

        def fill(batch: WriteBatch) -> None:
            if found:
                batch.delete_range(low, high, self._family(store).handle)
            for each in partitions:
                batch.delete(_written_key(store, each))
                batch.delete(_PROVENANCE + _written_key(store, each))
            mark(batch, store, partition)

        self._write(fill)
        for each in partitions:
            self._forget(store, each)
        self._unfinished.add((store, partition))
        self._sync()
        if found:
            self._flush(store)
        hooks = Hooks(self._family, self._finish_ingestion, self.drop, self._raise, lambda: self.generation)
        return StateFileIngestion(hooks, store, partition)

    def ingest(
        self,
        store: str,
        partition: int,
        files: Iterable[Path],
        offset: int,
        metadata: bytes,
        provenance: Provenance,
    ) -> None:
        """Replace all rows of a store partition by those of SST files, which are moved into the database.

        Killed at any moment it leaves nothing or all of it for the next one who opens the state file.

        Args:
            store: the store.
            partition: of the store.
            files: with rows of this partition only; no two have a key in common.
            offset: the changelog offset to continue from.
            metadata: as the store's `metadata()` would be.
            provenance: where the rows come from.

        Raises:
            StateError: a file cannot be used, or the disk fails. Then the partition has no rows.
        """
        ingestion = self.ingestion(store, partition)
        try:
            for path in files:
                ingestion.add(path)
            ingestion.finish({partition: End(offset, metadata, provenance)})
        except BaseException:
            with suppress(StateError):
                ingestion.abandon()
            raise

    def _sync(self) -> None:
        """Write the log through to the disk: ingested files outlive a crash of the machine, so the marker has to."""
        try:
            self._open_db().flush_wal(True)
        except Exception as error:
            self._raise(error)

    def _flush(self, store: str) -> None:
        """Write the store's memory into a file: ingesting would do it with the interpreter's lock held, and this does not."""
        family = self._family(store)
        try:
            if family.rows is not None:
                family.rows.flush()
        except Exception as error:
            self._raise(error, store)

    def _finish_ingestion(self, store: str, partition: int, ends: Mapping[int, End]) -> None:
        def fill(batch: WriteBatch) -> None:
            for number, end in ends.items():
                batch.put(_written_key(store, number), _offset.pack(end.offset) + end.metadata)
                batch.put(_PROVENANCE + _written_key(store, number), end.provenance.encode())
            batch.delete(marker_key(store, partition))

        self._write(fill)
        self._unfinished.discard((store, partition))
        for number, end in ends.items():
            self._written[store, number] = end.offset, end.metadata
            self._provenances[store, number] = end.provenance

    def _write(self, fill: Callable[[WriteBatch], None]) -> None:
        """Write what `fill` puts into a batch, waiting without holding the interpreter while RocksDB is behind."""
        if isinstance(self._failed, StateCorrupted):
            raise StateCorrupted(str(self._failed), self._failed.store)
        if self._failed is not None:
            raise StateError(str(self._failed))
        while True:
            batch = WriteBatch(raw_mode=True)
            fill(batch)
            try:
                self._open_db().write(batch, self._impatient)
                return
            except Exception as error:
                # RocksDB may take writes again once there is space; but what this batch had would be missing under them.
                try:
                    if _STALLED not in str(error):
                        self._raise(error)
                    self._await_room()
                except StateError as failure:
                    self._failed = failure
                    raise

    def _await_room(self) -> None:
        """Wait until flushes and compactions have caught up, or have failed.

        RocksDB itself would wait inside `write`, with the interpreter's lock, and for ever when the disk is full.
        """
        pause = _SHORTEST_PAUSE_S
        while self._counter("rocksdb.is-write-stopped") or self._counter("rocksdb.actual-delayed-write-rate"):
            if self._counter("rocksdb.background-errors"):
                self._raise(self._background_error())
            time.sleep(pause)
            pause = min(pause * 2, _LONGEST_PAUSE_S)

    def _background_error(self) -> Exception:
        free = _usage(self.path)
        if free is not None and free.free < 2 * self._tuning.given.write_buffer_bytes:
            return OSError("No space left on device: a write buffer could not be made a file")
        return OSError("a flush or compaction failed, see the file LOG beside the database's files")

    def _counter(self, name: str) -> int:
        return self._open_db().property_int_value(name) or 0

    def rebuild(self, store: str) -> None:
        """Drop the store's column family and offsets, whatever condition they are in, and start it empty.

        Tasks that have the store must be closed before, and restore it from its changelog after.
        """
        with self._sharing:
            # A database that has seen corruption may refuse every change until it is opened again.
            self._close_database()
            self._open_or_set_aside()
            if store in self._families:
                self._drop_family(store)

    def _drop_family(self, store: str) -> None:
        keys = [key for key in {*self._written, *self._unfinished} if key[0] == store]

        def fill(batch: WriteBatch) -> None:
            for name, partition in keys:
                batch.delete(_written_key(name, partition))
                batch.delete(_PROVENANCE + _written_key(name, partition))
                batch.delete(marker_key(name, partition))

        try:
            if keys:
                # First: rows without offsets are restored from the beginning, offsets without rows would be a lie.
                self._write(fill)
            self._families[store].close()
            self._open_db().drop_column_family(STORE + store)
            self._open_db().create_column_family(STORE + store, self._tuning.family())
            self._open_family(store)
        except Exception as error:
            self._raise(error, store)
        for key in keys:
            self._forget(*key)

    # Closing.

    def close(self) -> None:
        """Close the database and give up the directory. Open iterators end. Idempotent."""
        with self._sharing:
            self._close_database()
        self._lock.release()

    def _close_database(self) -> None:
        self.generation += 1
        for scan in list(self._scans):
            scan.close()
        for family in self._families.values():
            family.close()
        db, self._db = self._db, None
        if db is not None:
            try:
                if self._failed is not None:
                    # A flush would wait for the space that there is not.
                    db.cancel_all_background(True)
                db.close()
            except Exception:
                # What could not be flushed is in the write-ahead log, or was refused before and said then.
                pass

    def _open_db(self) -> Rdict:
        if self._db is None:
            raise StateError(f"the state file in '{self.path}' is closed")
        return self._db

    def _family(self, store: str) -> Family:
        family = self._families.get(store)
        if family is None:
            try:
                self._open_db().create_column_family(STORE + store, self._tuning.family())
                family = self._open_family(store)
            except Exception as error:
                self._raise(error, store)
        return family

    def _raise(self, error: Exception, store: str | None = None) -> NoReturn:
        """Raise what a RocksDB error means for the user."""
        if isinstance(error, StateError):
            raise error
        text = str(error)
        if _is_corruption(text):
            store = store or self._store_of_file(text)
            what = f"store '{store}'" if store else "the database"
            raise StateCorrupted(
                f"{what} in '{self.path}' is corrupted and has to be rebuilt from its changelog: {text}", store
            ) from error
        if "No space left" in text or "File too large" in text or "Disk quota exceeded" in text:
            raise StateError(
                f"there is no space left for state in '{self.path}' ({_free(self.path)}): free some or give the "
                f"volume more, then restart the worker; it goes on from its last commit ({text})"
            ) from error
        raise StateError(f"the state file in '{self.path}' failed: {text}") from error

    def _store_of_file(self, text: str) -> str | None:
        """The store whose file an error message is about."""
        file = _FILE.search(text)
        if file is not None:
            number = int(file[1])
            for store, family in list(self._families.items()):
                listing = family.rows.property_value("rocksdb.sstables") if family.rows is not None else None
                if listing and re.search(rf"^\s*{number}:", listing, re.MULTILINE):
                    return store
        return None


def read_beside(database: Rdict) -> BesideRows:
    """Return what stands beside the rows in an open database."""
    found = BesideRows({}, {}, set())
    iterator = database.iter()
    try:
        iterator.seek_to_first()
        while iterator.valid():
            key, value = iterator.key(), iterator.value()
            (partition,) = struct.unpack_from(">i", key, len(key) - 4)
            if key.startswith(_PROVENANCE):
                found.provenances[key[len(_PROVENANCE) : -4].decode(), partition] = Provenance.decode(value)
            elif key.startswith(MARKER):
                found.unfinished.add((key[len(MARKER) : -4].decode(), partition))
            else:
                (offset,) = _offset.unpack_from(value)
                at = None if offset == _NO_OFFSET else offset
                found.written[key[:-4].decode(), partition] = at, value[_offset.size :]
            iterator.next()
        iterator.status()
    finally:
        # The database lives as long as any object of it, and an error keeps this frame.
        del iterator, database
    return found


def _written_key(store: str, partition: int) -> bytes:
    return store.encode() + partition_prefix(partition)


def _is_corruption(text: str) -> bool:
    return "Corruption" in text or ("No such file" in text and _FILE.search(text) is not None)


def _usage(path: Path) -> shutil._ntuple_diskusage | None:
    try:
        return shutil.disk_usage(path)
    except OSError:
        return None


def _free(path: Path) -> str:
    usage = _usage(path)
    if usage is None:
        return "its free space is unknown"
    return f"{usage.free // _MIB} MiB free of {usage.total // _MIB} MiB"
