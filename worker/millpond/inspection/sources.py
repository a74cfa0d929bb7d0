"""The interface of sources of raw rows: a running worker, the directory of a stopped worker, a snapshot."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import NamedTuple, Protocol

from millpond.errors import StateError

__all__ = ("HeldStore", "NotReadable", "Row", "RowSource", "StoreRows")

Row = tuple[bytes, bytes]
"""A key in store format, which begins with the partition, and a value."""


class NotReadable(StateError):
    """A store partition cannot be read; the message has the reason."""


class HeldStore(NamedTuple):
    """A store partition that a source has."""

    store: str
    partition: int
    role: str
    """The role of the task, such as `active` or `standby`; empty if no worker runs it."""
    offset: int | None
    """The changelog offset of the rows; None while the rows are not valid."""


class StoreRows(NamedTuple):
    """All rows of a store partition, of one moment."""

    offset: int
    """The changelog offset of the rows: they contain all records below it, and none at or above it."""
    metadata: bytes
    """The store's `metadata()`; that of a window store has the stream time."""
    topic_id: str
    """Topic id of the changelog; "" if unknown."""
    as_of_ms: int | None
    """When the rows were last known to be complete, in epoch ms; None if unknown."""
    rows: Iterator[Row]
    """The rows in ascending order of keys."""


class RowSource(Protocol):
    """A source of store partitions.

    Attributes:
        name: the name shown to people.
    """

    @property
    def name(self) -> str: ...

    def held(self) -> list[HeldStore]:
        """Return the partitions of the source, by store and partition.

        Raises:
            MillpondError: the source cannot be read at all.
        """

    def open(self, store: str, partition: int) -> AbstractContextManager[StoreRows]:
        """Return the rows of a store partition, valid in the block.

        Raises:
            NotReadable: the partition cannot be read. Raised at the start of the block or during it.
        """
