"""What keeps committed rows: the interface that stores are written against."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Protocol

from .ingestion import Ingestion
from .provenance import Provenance

__all__ = ("Backend", "Row", "Rows", "Written")

Row = tuple[bytes, bytes | None]
"""A full key (it starts with the 4 bytes of the partition) and a value; None deletes."""


class Rows(list[Row]):
    """Rows on their way into a backend, in the order they apply.

    A plain list of rows may stand wherever Rows are asked for.
    """

    __slots__ = ("ranges",)

    ranges: list[tuple[bytes, bytes]]
    """Half-open ranges of full keys to delete after the rows were written: expired window segments."""

    def __init__(self, rows: Iterable[Row] = (), ranges: Iterable[tuple[bytes, bytes]] = ()) -> None:
        super().__init__(rows)
        self.ranges = list(ranges)


Written = tuple[int | None, bytes]
"""How far a store partition is written: the changelog offset to resume from (None when not logged), and `metadata()`."""


class Backend(Protocol):
    """Committed rows of any number of stores and partitions, ordered by key.

    One thread at a time. Every method that reads or writes may raise `StateError`; `StateCorrupted` names the store.

    Attributes:
        last_used_ms: when what was found there was last written, in epoch milliseconds; None when it began empty.
    """

    last_used_ms: int | None

    def reader(self, store: str) -> Callable[[bytes], bytes | None]:
        """The function that reads one row of a store by its full key; None when absent. Makes the store if needed."""

    def range(self, store: str, low: bytes, high: bytes | None, reverse: bool = False) -> Iterator[tuple[bytes, bytes]]:
        """Rows with low <= full key < high in key order (or its reverse), as of the call; None is no upper bound.

        The iterator must not be used after the next write to the same store.
        """

    def write(
        self,
        groups: Iterable[tuple[str, int, list[Row]]],
        offsets: Mapping[tuple[str, int], Written] | None = None,
        provenances: Mapping[tuple[str, int], Provenance] | None = None,
    ) -> None:
        """Write (store, partition, rows) groups and what stands beside a (store, partition) at once: all or nothing.

        Args:
            groups: the rows.
            offsets: (offset, metadata) of store partitions.
            provenances: where the rows come from, of store partitions.
        """

    def offset(self, store: str, partition: int) -> int | None:
        """The changelog offset last written for the partition, None when there is none."""

    def metadata(self, store: str, partition: int) -> bytes:
        """The metadata last written for the partition, empty when there is none."""

    def provenance(self, store: str, partition: int) -> Provenance | None:
        """Where the partition's rows come from, None when that was never written. Only means something beside an offset."""

    def partitions(self, store: str) -> list[int]:
        """The partitions of a store with something written, ascending."""

    def delete_range(self, store: str, low: bytes, high: bytes) -> None:
        """Delete all rows with low <= full key < high."""

    def drop(self, store: str, partition: int) -> None:
        """Forget the rows of one partition and what stands beside them."""

    def ingestion(self, store: str, partition: int, beside: Collection[int] = ()) -> Ingestion:
        """Delete the rows of a partition and what stands beside them, to replace them by those of SST files.

        Args:
            store: the store.
            partition: of the rows.
            beside: further partitions whose offsets are of these rows; only a global store's are.
        """

    def rebuild(self, store: str) -> None:
        """Forget all rows, offsets and metadata of a store, whatever condition they are in."""

    def count(self, store: str, partition: int) -> int:
        """About how many rows the partition has."""

    def close(self) -> None:
        """Release everything; the backend and its iterators are unusable afterwards. Idempotent."""
