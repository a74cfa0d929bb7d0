"""The backend in memory: for in-memory stores, and for tests that need no disk."""

from __future__ import annotations

import weakref
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

from millpond.state.backend import Row, Rows, Written
from millpond.state.formats import partition_prefix
from millpond.state.ingestion import Checkpoint, Ingestion
from millpond.state.provenance import Provenance

from .ingestion import MemoryIngestion

__all__ = ("MemoryBackend",)


class _View:
    """The rows that iterators read: those of the table, or a copy since the next write."""

    __slots__ = ("__weakref__", "rows")

    def __init__(self, rows: dict[bytes, bytes]) -> None:
        self.rows = rows


class _Table:
    """The rows of one store: a dict, and its keys in order, sorted only when a range is read."""

    __slots__ = ("_ordered", "_stale", "_view", "keeps_order", "rows")

    def __init__(self) -> None:
        #: Whether a row that is written again becomes the last one of `rows`.
        self.keeps_order = False
        self.rows: dict[bytes, bytes] = {}
        self._ordered: list[bytes] = []
        self._stale = False
        #: The view of the iterators since the last write, which keep it alive; None without any.
        self._view: _View | None = None

    def changing(self) -> None:
        """Give open iterators a copy of the rows, before a write. Without open iterators there is nothing to copy."""
        if self._view is None:
            return
        open_view = weakref.ref(self._view)
        self._view = None
        view = open_view()
        if view is not None:
            view.rows = self.rows.copy()

    def changed(self) -> None:
        self._stale = True

    def ordered(self) -> list[bytes]:
        # A new list after each change: earlier iterators keep theirs.
        if self._stale:
            self._ordered = sorted(self.rows)
            self._stale = False
        return self._ordered

    def view(self) -> _View:
        """Return the rows as of now, for an iterator."""
        if self._view is None:
            self._view = _View(self.rows)
        return self._view


class MemoryBackend:
    """A `Backend` that forgets everything when it is closed."""

    last_used_ms: int | None = None

    def __init__(self) -> None:
        self._tables: dict[str, _Table] = {}
        self._written: dict[tuple[str, int], Written] = {}
        self._provenances: dict[tuple[str, int], Provenance] = {}

    def reader(self, store: str) -> Callable[[bytes], bytes | None]:
        """Return the bound `get` of the store's dict, which stays valid until the backend is closed."""
        return self._table(store).rows.get

    def keep_order(self, store: str) -> Callable[[int], list[bytes]]:
        """Keep the rows of a store in the order of their last writes, and return the reader of their keys."""
        table = self._table(store)
        table.keeps_order = True

        def keys(partition: int) -> list[bytes]:
            prefix = partition_prefix(partition)
            return [key for key in self._table(store).rows if key.startswith(prefix)]

        return keys

    def range(
        self,
        store: str,
        low: bytes,
        high: bytes | None,
        reverse: bool = False,  # noqa: FBT001, FBT002  # readers pass it by position
    ) -> Iterator[tuple[bytes, bytes]]:
        """Return the rows with low <= key < high as of now."""
        table = self._table(store)
        keys = table.ordered()
        first = bisect_left(keys, low)
        last = len(keys) if high is None else bisect_left(keys, high)
        found = keys[first:last]
        if reverse:
            found.reverse()
        return _rows(table.view(), found)

    def write(
        self,
        groups: Iterable[tuple[str, int, list[Row]]],
        offsets: Mapping[tuple[str, int], Written] | None = None,
        provenances: Mapping[tuple[str, int], Provenance] | None = None,
    ) -> None:
        """Write rows and checkpoints; the write cannot fail half-way."""
        for store, _, rows in groups:
            self._apply(store, rows)
        if offsets:
            self._written.update(offsets)
        if provenances:
            self._provenances.update(provenances)

    def _apply(self, store: str, rows: list[Row]) -> None:
        table = self._table(store)
        if rows:
            table.changing()
        current = table.rows
        count = len(current)
        deleted, keeps_order = False, table.keeps_order
        for key, value in rows:
            if keeps_order and value is not None:
                current.pop(key, None)
            if value is None:
                deleted = current.pop(key, None) is not None or deleted
            else:
                current[key] = value
        if deleted or len(current) != count:
            table.changed()
        for low, high in rows.ranges if isinstance(rows, Rows) else ():
            self.delete_range(store, low, high)

    def offset(self, store: str, partition: int) -> int | None:
        """Return the changelog offset last written for the partition."""
        written = self._written.get((store, partition))
        return None if written is None else written[0]

    def metadata(self, store: str, partition: int) -> bytes:
        """Return the metadata last written for the partition."""
        written = self._written.get((store, partition))
        return b"" if written is None else written[1]

    def provenance(self, store: str, partition: int) -> Provenance | None:
        """Return the provenance of the partition's rows."""
        return self._provenances.get((store, partition))

    def partitions(self, store: str) -> list[int]:
        """Return the partitions of a store with an offset or metadata, ascending."""
        return sorted(partition for name, partition in self._written if name == store)

    def delete_range(self, store: str, low: bytes, high: bytes) -> None:
        """Delete all rows with low <= key < high."""
        table = self._table(store)
        keys = table.ordered()
        deleted = keys[bisect_left(keys, low) : bisect_left(keys, high)]
        if deleted:
            table.changing()
            rows = table.rows
            for key in deleted:
                del rows[key]
            table.changed()

    def drop(self, store: str, partition: int) -> None:
        """Delete the rows and the checkpoint of one partition."""
        self.delete_range(store, partition_prefix(partition), partition_prefix(partition + 1))
        self._written.pop((store, partition), None)
        self._provenances.pop((store, partition), None)

    def ingestion(self, store: str, partition: int, beside: Collection[int] = ()) -> Ingestion:
        """Delete the rows and the checkpoint of a store partition, to replace the rows by those of SST files.

        Args:
            store: the store.
            partition: the partition of the rows.
            beside: further changelog partitions whose offsets belong to these rows; only a global store has them.
        """
        for each in {partition, *beside}:
            self.drop(store, each)

        def finish(checkpoints: Mapping[int, Checkpoint]) -> None:
            self.write(
                (),
                {(store, each): (found.offset, found.metadata) for each, found in checkpoints.items()},
                {(store, each): found.provenance for each, found in checkpoints.items()},
            )

        return MemoryIngestion(
            lambda rows: self.write([(store, partition, rows)]), finish, lambda: self.drop(store, partition)
        )

    def rebuild(self, store: str) -> None:
        """Delete all rows and checkpoints of a store."""
        table = self._table(store)
        table.changing()
        table.rows.clear()
        table.changed()
        for checkpoints in (self._written, self._provenances):
            for key in [key for key in checkpoints if key[0] == store]:
                del checkpoints[key]

    def count(self, store: str, partition: int) -> int:
        """Return the number of rows of a partition."""
        keys = self._table(store).ordered()
        return bisect_left(keys, partition_prefix(partition + 1)) - bisect_left(keys, partition_prefix(partition))

    def close(self) -> None:
        """Forget all rows and checkpoints."""
        self._tables.clear()
        self._written.clear()
        self._provenances.clear()

    def _table(self, store: str) -> _Table:
        table = self._tables.get(store)
        if table is None:
            table = self._tables[store] = _Table()
        return table


def _rows(view: _View, keys: list[bytes]) -> Iterator[tuple[bytes, bytes]]:
    for key in keys:
        yield key, view.rows[key]
