"""One store partition as it is in the state file at one moment."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from .provenance import Provenance

__all__ = ("Look",)


class Look(NamedTuple):
    """Rows, and what stands beside them."""

    offset: int
    """The changelog offset that the rows stand at: they have all records before it, and none from there on."""
    metadata: bytes
    """As the store's `metadata()` was."""
    provenance: Provenance | None
    """Where the rows come from; None where an older version of millpond did not write it."""
    rows: Iterator[tuple[bytes, bytes]]
    """Full keys and values, ascending by key; they do not change while they are read."""
