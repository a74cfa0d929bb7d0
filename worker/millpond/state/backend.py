"""The interface of backends, which keep the committed rows of stores."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Protocol

from .ingestion import Ingestion
from .provenance import Provenance

__all__ = ("Backend", "OrderedBackend", "Row", "Rows", "Written")

Row = tuple[bytes, bytes | None]
"""A full key (it starts with the 4 bytes of the partition) and a value; the value None deletes the key."""


class Rows(list[Row]):
    """Rows to write to a backend, in the order in which they apply.

    A plain list of rows may be passed wherever Rows are expected.
    """

    __slots__ = ("ranges",)

    ranges: list[tuple[bytes, bytes]]
    """Half-open ranges of full keys to delete after the rows are written: expired window segments."""

    def __init__(self, rows: Iterable[Row] = (), ranges: Iterable[tuple[bytes, bytes]] = ()) -> None:
        super().__init__(rows)
        self.ranges = list(ranges)


Written = tuple[int | None, bytes]
"""The changelog offset from which a store partition is restored (None when it is not logged), and its `metadata()`."""


class Backend(Protocol):
    """Committed rows of any number of stores and partitions, ordered by key.

    The checkpoint of a store partition is its changelog offset, metadata and provenance. It is written with the rows.

    One thread at a time. Every method that reads or writes may raise `StateError`; `StateCorrupted` names the store.

    Attributes:
        last_used_ms: the time of the last write of the rows found at the start, in epoch milliseconds; None without
            rows.
    """

    last_used_ms: int | None

    def reader(self, store: str) -> Callable[[bytes], bytes | None]:
        """Return the function that reads one row of a store by its full key; it returns None for a missing row."""

    def range(
        self,
        store: str,
        low: bytes,
        high: bytes | None,
        reverse: bool = False,  # noqa: FBT001, FBT002  # readers pass it by position
    ) -> Iterator[tuple[bytes, bytes]]:
        """Return the rows with low <= full key < high, in key order or its reverse; None is no bound.

        The rows are those of the moment of the call, whatever is written while they are read.
        """

    def write(
        self,
        groups: Iterable[tuple[str, int, list[Row]]],
        offsets: Mapping[tuple[str, int], Written] | None = None,
        provenances: Mapping[tuple[str, int], Provenance] | None = None,
    ) -> None:
        """Write rows and checkpoints atomically.

        Args:
            groups: the store, the partition and the rows of each group.
            offsets: the offset and the metadata, by store and partition.
            provenances: the provenance of the rows, by store and partition.
        """

    def offset(self, store: str, partition: int) -> int | None:
        """Return the changelog offset last written for the partition; None without one."""

    def metadata(self, store: str, partition: int) -> bytes:
        """Return the metadata last written for the partition; empty without any."""

    def provenance(self, store: str, partition: int) -> Provenance | None:
        """Return the provenance of the partition's rows; None if never written. Meaningless without an offset."""

    def partitions(self, store: str) -> list[int]:
        """Return the partitions of a store that have an offset or metadata, ascending."""

    def delete_range(self, store: str, low: bytes, high: bytes) -> None:
        """Delete all rows with low <= full key < high."""

    def drop(self, store: str, partition: int) -> None:
        """Delete the rows and the checkpoint of one partition."""

    def ingestion(self, store: str, partition: int, beside: Collection[int] = ()) -> Ingestion:
        """Delete the rows and the checkpoint of a partition, to replace the rows by those of SST files.

        Args:
            store: the store.
            partition: the partition of the rows.
            beside: further changelog partitions whose offsets belong to these rows; only a global store has them.
        """

    def rebuild(self, store: str) -> None:
        """Delete all rows and checkpoints of a store, even damaged ones."""

    def count(self, store: str, partition: int) -> int:
        """Return the approximate number of rows of a partition."""

    def close(self) -> None:
        """Release all resources; the backend and its iterators are unusable afterwards. Idempotent."""


class OrderedBackend(Backend, Protocol):
    """A backend that can keep the rows of a store in the order in which they were written last."""

    def keep_order(self, store: str) -> Callable[[int], list[bytes]]:
        """Keep the rows of a store in the order in which they were written last.

        Returns:
            A function from a partition to the full keys of its rows, the one that was written first at the front.
        """
