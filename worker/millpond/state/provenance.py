"""Where the rows of a store partition come from, and until when they are known to have had all of it.

A changelog forgets deletions: a tombstone is removed `delete.retention.ms` after it was compacted. Rows that did not follow
the changelog for longer than that may hold keys that were deleted meanwhile, and nothing in the changelog says so any more.
So the wall-clock time stands beside the offset. And an offset means nothing in another topic of the same name: so does the
topic's id.
"""

from __future__ import annotations

import struct
from typing import NamedTuple, Self

__all__ = ("Provenance",)

_time = struct.Struct(">q")
#: Ends what stands in the state file of rows that are a snapshot's. No topic's id has it.
_SNAPSHOT = b"\0"


class Provenance(NamedTuple):
    """Beside the offset of a store partition."""

    topic_id: str
    """Of the topic that the offset is of; "" where the brokers did not tell."""
    as_of_ms: int
    """Epoch milliseconds: the rows have every record that was written before, at the least."""
    of_snapshot: bool = False
    """Whether nothing was written since the rows came from a snapshot: then they are no only copy of anything."""

    def encode(self) -> bytes:
        """As it stands in the state file."""
        return _time.pack(self.as_of_ms) + self.topic_id.encode() + (_SNAPSHOT if self.of_snapshot else b"")

    @classmethod
    def decode(cls, raw: bytes) -> Self:
        """Read back what `encode` made."""
        (as_of_ms,) = _time.unpack_from(raw)
        id = raw[_time.size :]
        return cls(id.removesuffix(_SNAPSHOT).decode(), as_of_ms, id.endswith(_SNAPSHOT))
