"""Provenance: the topic that the rows of a store partition come from, and the time as of which they are complete.

A changelog forgets deletions: a tombstone is removed `delete.retention.ms` after it was compacted. Rows that did not
follow the changelog for longer than that may have keys that were deleted meanwhile, and the changelog no longer has
these deletions. So the wall-clock time is written beside the offset. The topic's id is written too, because an offset
means nothing in another topic of the same name.
"""

from __future__ import annotations

import struct
from typing import NamedTuple, Self

__all__ = ("Provenance",)

_time = struct.Struct(">q")
#: The suffix for rows that come from a snapshot. No topic id contains it.
_SNAPSHOT = b"\0"


class Provenance(NamedTuple):
    """The provenance of the rows of a store partition."""

    topic_id: str
    """The id of the changelog topic; "" where the brokers do not report it."""
    as_of_ms: int
    """Epoch milliseconds: the rows have at least every record that was written before."""
    of_snapshot: bool = False
    """Whether the rows are a snapshot's and nothing was written since: then the snapshot has all of them, too."""

    def encode(self) -> bytes:
        """Return the bytes for the state file."""
        return _time.pack(self.as_of_ms) + self.topic_id.encode() + (_SNAPSHOT if self.of_snapshot else b"")

    @classmethod
    def decode(cls, raw: bytes) -> Self:
        """Return the provenance from the bytes that `encode` returned."""
        (as_of_ms,) = _time.unpack_from(raw)
        id = raw[_time.size :]
        return cls(id.removesuffix(_SNAPSHOT).decode(), as_of_ms, id.endswith(_SNAPSHOT))
