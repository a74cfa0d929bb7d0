"""The state file: one RocksDB per worker, a column family per store, checkpoints beside the rows.

A commit is one write batch over all stores: rows, deletions and offsets become visible together or not at all. The
write-ahead log is on, so a killed process loses nothing; it is not synced, since the changelog has the rows that a
crash of the machine loses.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, suppress
from itertools import starmap
from operator import itemgetter
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self
from weakref import WeakSet

from rocksdict import ColumnFamily, WriteBatch

from millpond.errors import StateError
from millpond.state.backend import Row, Rows, Written
from millpond.state.formats import partition_prefix
from millpond.state.ingestion import Checkpoint
from millpond.state.provenance import Provenance

from .checkpoints import decode_offset, offset_key, provenance_key, put_offsets, put_provenances
from .database import Database
from .directory_lock import DirectoryLock
from .ingestion import StateFileIngestion
from .options import StateFileOptions
from .partition_view import PartitionView

__all__ = ("FORMAT", "MAX_ITERATOR_AGE_S", "StateFile")

FORMAT = "millpond state 1"
"""The content of the file `format` in a worker's directory."""
#: An open iterator keeps RocksDB from dropping overwritten rows. A reader's older iterator ends with the next write.
MAX_ITERATOR_AGE_S = 30.0
_row_key, _row_value = itemgetter(0), itemgetter(1)


class IteratorHolder(Protocol):
    """A reader in another thread that keeps an iterator between two reads, and can open another one."""

    store: str
    opened_at: float
    """When the iterator was opened, in monotonic seconds."""

    def end_iterator(self) -> None:
        """Let go of the iterator. Called within `shared()`."""


class StateFile:
    """The database of one worker. One thread writes; others may read, each time inside `shared()`.

    rocksdict holds the interpreter's lock while it reads, so reads of several threads never run inside RocksDB at the
    same time. The lock of `shared()` keeps the database from being closed or opened again between two reads.

    Attributes:
        path: the worker's directory.
        last_used_ms: the time of the last write before this start, in epoch milliseconds; None for a new database.
    """

    path: Path
    last_used_ms: int | None

    def __init__(self, path: Path | str, options: StateFileOptions | None = None) -> None:
        """Open or create the database.

        Args:
            path: `<state.dir>/<application.id>/<worker>`; created if missing.
            options: memory bounds.

        Raises:
            StateDirectoryLocked: another process has locked the directory.
            StateError: the directory cannot be used, or was written by a newer version.
        """
        self.path = Path(path)
        self._database = Database(self.path, options or StateFileOptions())
        self._sharing = threading.RLock()
        self._holders: WeakSet[IteratorHolder] = WeakSet()
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self._lock = DirectoryLock(self.path)
        except OSError as error:
            raise StateError(
                f"the state directory '{self.path}' cannot be used ({error.strerror}): "
                "make it writable, or set 'state.dir' to a writable directory"
            ) from error
        try:
            self._check_format()
            self.last_used_ms = self._database.last_used_ms()
            self._database.recover()
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

    @property
    def set_aside(self) -> Path | None:
        """The path that an unreadable previous database was moved to; None without one.

        With a path, this database is empty, and every store must be restored from its changelog.
        """
        return self._database.set_aside

    @property
    def reason(self) -> str | None:
        """The reason why the previous database could not be opened; None if it was opened."""
        return self._database.reason

    @property
    def rebuilt(self) -> dict[str, str]:
        """Store -> the reason why it was dropped to open the database.

        The store's rows and offsets are lost, and it must be restored from its changelog. Other stores are unchanged.
        """
        return self._database.rebuilt

    @property
    def generation(self) -> int:
        """A number that changes when the database is closed or opened again, which ends earlier iterators."""
        return self._database.generation

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

    # Reading

    def shared(self) -> AbstractContextManager[object]:
        """Return a lock for readers in other threads than the writer: the database stays open while a reader holds it.

        Hold it for some milliseconds at most: `close` and `rebuild` wait for its release, and end iterators that a
        reader still has. Read only stores that `stores()` names: a read of another store would create that store.
        """
        return self._sharing

    def hold(self, holder: IteratorHolder) -> None:
        """Register a reader that keeps an iterator.

        The iterator ends when it is old, or its task closes. Call it within `shared()`.
        """
        self._holders.add(holder)

    def end_iterators(self, stores: Collection[str]) -> None:
        """End the iterators that readers in other threads keep of some stores."""
        with self._sharing:
            for holder in list(self._holders):
                if holder.store in stores:
                    self._end_iterator(holder)

    def _end_old_iterators(self) -> None:
        if not self._sharing.acquire(blocking=False):
            return  # a reader is at it: the next write looks again
        try:
            oldest = time.monotonic() - MAX_ITERATOR_AGE_S
            for holder in list(self._holders):
                if holder.opened_at < oldest:
                    self._end_iterator(holder)
        finally:
            self._sharing.release()

    def _end_iterator(self, holder: IteratorHolder) -> None:
        holder.end_iterator()
        self._holders.discard(holder)

    def reader(self, store: str) -> Callable[[bytes], bytes | None]:
        """Return the function that reads one row of a store by its full key; a new store is created."""
        family = self._database.family(store)
        fail = self._database.fail

        def read(key: bytes, /) -> bytes | None:
            try:
                return family.get(key)
            except Exception as error:  # noqa: BLE001  # RocksDB raises plain exceptions
                fail(error, store)

        return read

    def range(
        self,
        store: str,
        low: bytes,
        high: bytes | None,
        reverse: bool = False,  # noqa: FBT001, FBT002  # readers pass it by position
    ) -> Iterator[tuple[bytes, bytes]]:
        """Return the rows with low <= key < high as of now."""
        return self._database.scan(store, low, high, reverse=reverse)

    def offset(self, store: str, partition: int) -> int | None:
        """Return the changelog offset last written for the partition."""
        written = self._database.checkpoints.written.get((store, partition))
        return None if written is None else written[0]

    def metadata(self, store: str, partition: int) -> bytes:
        """Return the metadata last written for the partition."""
        written = self._database.checkpoints.written.get((store, partition))
        return b"" if written is None else written[1]

    def provenance(self, store: str, partition: int) -> Provenance | None:
        """Return the provenance of the partition's rows; None if an older version of millpond wrote them."""
        return self._database.checkpoints.provenances.get((store, partition))

    def view(self, store: str, partition: int) -> PartitionView | None:
        """Return the rows of a store partition and its checkpoint, all of one moment; None without an offset.

        For readers in other threads, within `shared()`. The rows end early when `generation` changes.

        Raises:
            StateError: the database is closed or fails.
        """
        if store not in self._database.families:
            return None
        low, high = partition_prefix(partition), partition_prefix(partition + 1)
        keys = offset_key(store, partition), provenance_key(store, partition)
        while True:
            # A write in between changes the offset, since it comes with the rows.
            before = [self._checkpoint_row(each) for each in keys]
            if before[0] is None:
                return None
            rows = self.range(store, low, high)
            if [self._checkpoint_row(each) for each in keys] == before:
                break
        offset, metadata = decode_offset(before[0])
        if offset is None:
            return None
        return PartitionView(offset, metadata, None if before[1] is None else Provenance.decode(before[1]), rows)

    def _checkpoint_row(self, key: bytes) -> bytes | None:
        try:
            found: bytes | None = self._database.opened().get(key)
        except Exception as error:  # noqa: BLE001  # RocksDB raises plain exceptions
            self._database.fail(error)
        return found

    def partitions(self, store: str) -> list[int]:
        """Return the partitions of a store with an offset or metadata, ascending."""
        return sorted(partition for name, partition in self._database.checkpoints.written if name == store)

    def stores(self) -> list[str]:
        """Return the stores in the file, whether the application still has them or not."""
        return sorted(self._database.families)

    def usage(self) -> dict[str, int]:
        """Return the resource use of the database, in bytes and counts; empty while closed. Safe from any thread."""
        with self._sharing:
            return self._database.usage()

    def count(self, store: str, partition: int) -> int:
        """Return RocksDB's estimate of the store's keys, divided evenly among its partitions."""
        family = self._database.family(store)
        if family.rows is None:
            raise StateError("the state file is closed")
        estimate = family.rows.property_int_value("rocksdb.estimate-num-keys") or 0
        return estimate // max(1, len(self.partitions(store)))

    # Writing

    def write(
        self,
        groups: Iterable[tuple[str, int, list[Row]]],
        offsets: Mapping[tuple[str, int], Written] | None = None,
        provenances: Mapping[tuple[str, int], Provenance] | None = None,
    ) -> None:
        """Write rows and checkpoints atomically, in one batch.

        Raises:
            StateError: the disk is full or fails. Nothing of the batch is written, and nothing more is accepted until
                the file is opened again.
            StateCorrupted: RocksDB reports that the database is damaged.
        """
        groups = list(groups)

        def fill(batch: WriteBatch) -> None:
            self._fill(batch, groups)
            if offsets:
                put_offsets(batch, offsets)
            if provenances:
                put_provenances(batch, provenances)

        self._database.write(fill)
        if offsets:
            self._database.checkpoints.written.update(offsets)
        if provenances:
            self._database.checkpoints.provenances.update(provenances)
        if self._holders:
            self._end_old_iterators()

    def _fill(self, batch: WriteBatch, groups: Iterable[tuple[str, int, list[Row]]]) -> None:
        put, delete, delete_range = batch.put, batch.delete, batch.delete_range
        handle: ColumnFamily | None = None
        try:
            for store, _, rows in groups:
                handle = self._database.family(store).handle
                ranges = rows.ranges if isinstance(rows, Rows) else ()
                # Insertions in key order continue from each other's position. Rows of one key stay in their order.
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
        """Delete the rows and the checkpoint of one partition."""
        self._database.drop(store, partition)

    def rebuild(self, store: str) -> None:
        """Drop the store's column family and checkpoints, even damaged ones, and create it again, empty.

        Tasks that have the store must be closed before, and restore it from its changelog after.
        """
        with self._sharing:
            self._database.rebuild(store)

    def ingestion(self, store: str, partition: int, beside: Collection[int] = ()) -> StateFileIngestion:
        """Delete the rows and the checkpoint of a store partition, to replace the rows by those of SST files.

        Args:
            store: the store.
            partition: the partition of the rows.
            beside: further changelog partitions whose offsets belong to these rows; only a global store has them.

        Raises:
            StateError: the disk is full or fails.
        """
        return StateFileIngestion(self._database, store, partition, beside)

    def ingest(  # noqa: PLR0913  # a checkpoint, field by field
        self,
        store: str,
        partition: int,
        files: Iterable[Path],
        offset: int,
        metadata: bytes,
        provenance: Provenance,
    ) -> None:
        """Replace all rows of a store partition by those of SST files, which are moved into the database.

        After a kill at any moment, the next process that opens the state file finds all of these rows or none.

        Args:
            store: the store.
            partition: the partition of the store.
            files: the SST files, with rows of this partition only; no two have a key in common.
            offset: the changelog offset to continue from.
            metadata: the store's `metadata()` at that offset.
            provenance: the provenance of the rows.

        Raises:
            StateError: a file cannot be used, or the disk fails. Then the partition has no rows.
        """
        ingestion = self.ingestion(store, partition)
        try:
            for path in files:
                ingestion.add(path)
            ingestion.finish({partition: Checkpoint(offset, metadata, provenance)})
        except BaseException:
            with suppress(StateError):
                ingestion.abandon()
            raise

    def close(self) -> None:
        """Close the database and release the directory. Open iterators end. Idempotent."""
        try:
            with self._sharing:
                self._database.close()
        finally:
            self._lock.release()
