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


class Provenance(NamedTuple):
    """Beside the offset of a store partition."""

    topic_id: str
    """Of the topic that the offset is of; "" where the brokers did not tell."""
    as_of_ms: int
    """Epoch milliseconds: the rows have every record that was written before, at the least."""

    def encode(self) -> bytes:
        """As it stands in the state file."""
        return _time.pack(self.as_of_ms) + self.topic_id.encode()

    @classmethod
    def decode(cls, raw: bytes) -> Self:
        """Read back what `encode` made."""
        (as_of_ms,) = _time.unpack_from(raw)
        return cls(raw[_time.size :].decode(), as_of_ms)
