"""The view of one store partition in the state file at one moment."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from millpond.state.provenance import Provenance

__all__ = ("PartitionView",)


class PartitionView(NamedTuple):
    """The rows of a store partition, and its checkpoint."""

    offset: int
    """The changelog offset of the rows: they have all records before it, and none from there on."""
    metadata: bytes
    """The store's `metadata()` at that offset."""
    provenance: Provenance | None
    """None where an older version of millpond did not write it."""
    rows: Iterator[tuple[bytes, bytes]]
    """Full keys and values, ascending by key; they do not change while they are read."""
