"""Where raw rows are read from: a running worker, the directory of a stopped one, a snapshot."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import NamedTuple, Protocol

from millpond.errors import StateError

__all__ = ("HeldStore", "NotReadable", "Row", "RowSource", "StoreRows")

Row = tuple[bytes, bytes]
"""A full key, which begins with the partition, and a value."""


class NotReadable(StateError):
    """A store partition cannot be read; the message says why."""


class HeldStore(NamedTuple):
    """A store partition that a source has."""

    store: str
    partition: int
    role: str
    """`active`, `standby` and so on; empty where nobody runs the task."""
    offset: int | None
    """Where the rows stand in the changelog; None while there are none that count."""


class StoreRows(NamedTuple):
    """All rows of a store partition, of one moment."""

    offset: int
    """The changelog offset that they stand at: they have all records before it, and none from there on."""
    metadata: bytes
    """As the store's `metadata()`: of a window store it has the stream time."""
    topic_id: str
    """Of the changelog; "" where nobody knows it."""
    as_of_ms: int | None
    """When they had all of the changelog, in epoch ms; None where nobody knows it."""
    rows: Iterator[Row]
    """Ascending by key."""


class RowSource(Protocol):
    """Something that has store partitions.

    Attributes:
        name: what people call it.
    """

    @property
    def name(self) -> str: ...

    def held(self) -> list[HeldStore]:
        """Return what it has, by store and partition.

        Raises:
            MillpondError: it cannot be read at all.
        """

    def open(self, store: str, partition: int) -> AbstractContextManager[StoreRows]:
        """Return the rows of a store partition, for the block.

        Raises:
            NotReadable: it cannot be read, from the start or while the block reads it.
        """
