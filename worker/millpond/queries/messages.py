"""What workers say to each other to answer a query: which rows are wanted, and the rows.

A request is one `Read`. The answer is a sequence of frames, each with its length before it: a `Head`, rows as they lie
in the store, in order, and last of all an `RowsEnd`. An answer without its end was cut off.
"""

from __future__ import annotations

import struct
from collections.abc import AsyncIterator
from typing import Protocol

import msgspec

from .failures import Failure

__all__ = (
    "LENGTH",
    "MAX_FRAME",
    "Frame",
    "Head",
    "Read",
    "Row",
    "RowsEnd",
    "decode_read",
    "encode_frame",
    "encode_read",
    "frames",
    "with_length",
)

Row = tuple[bytes, int, bytes]
"""A row's key as it lies in the store but without the partition, the partition, the row's value."""

MAX_FRAME = 256 * 1024 * 1024
"""A frame that claims to be longer is none."""

LENGTH = struct.Struct(">I")
"""What stands before each frame: how many bytes it has."""


class Read(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Rows to read. Keys are serialised keys, times are window starts in epoch ms."""

    application: str
    """Whoever listens at the address must be of this application."""
    store: str
    partitions: tuple[int, ...]
    low: bytes = b""
    """The smallest key."""
    high: bytes | None = None
    """The first key that is too large; None for no bound."""
    exact: bool = False
    """`low` is the one key that is wanted, `high` does not count."""
    first: int = 0
    """The smallest window start."""
    last: int = 2**63 - 1
    """The largest window start."""
    reverse: bool = False
    limit: int | None = None
    committed: bool = True
    """Only what is committed; else what the task itself would see."""
    max_staleness_ms: int | None = None
    """A copy may answer that was up to date so long ago."""
    max_lag: int | None = None
    """A copy may answer that is so many changelog records behind."""
    bound: dict[str, int] = {}
    """The least position, next offset by `topic-partition`."""
    resume: dict[int, bytes] = {}
    """By partition: the row key to go on at; ascending it is the first one wanted, in reverse the first one not."""
    timeout_ms: int = 10_000
    """How long the bound may be waited for."""

    @property
    def stale(self) -> bool:
        """Whether a copy may answer."""
        return self.max_staleness_ms is not None or self.max_lag is not None


class Head(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True, tag="head"):
    """What comes before the rows."""

    position: dict[str, int] = {}
    """Everything below these offsets is in the rows, by `topic-partition`."""
    staleness_ms: int | None = None
    """How long ago the oldest copy that is read was up to date; None when only active tasks answer."""


class RowsEnd(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True, tag="end"):
    """What comes after the rows."""

    snapshot: bool = True
    """Whether the rows of each partition are those of one moment."""
    failure: Failure | None = None
    """The rows are not all."""


Frame = list[Row] | Head | RowsEnd

_encoder = msgspec.msgpack.Encoder()
_reads = msgspec.msgpack.Decoder(Read)
_frames: msgspec.msgpack.Decoder[Frame] = msgspec.msgpack.Decoder(Frame)


def encode_read(read: Read) -> bytes:
    """A request's body."""
    return _encoder.encode(read)


def decode_read(raw: bytes) -> Read:
    """A request's body read back.

    Raises:
        msgspec.DecodeError, msgspec.ValidationError: it is none.
    """
    return _reads.decode(raw)


def encode_frame(content: Frame) -> bytes:
    """A frame with its length before it."""
    return with_length(_encoder.encode(content))


def with_length(body: bytes) -> bytes:
    """The body of a frame, its length before it."""
    return LENGTH.pack(len(body)) + body


class Stream(Protocol):
    """What frames are read from: aiohttp's StreamReader."""

    async def readexactly(self, n: int) -> bytes:
        """Exactly so many bytes; raises asyncio.IncompleteReadError at the end."""


async def frames(stream: Stream) -> AsyncIterator[Frame]:
    """The frames of an answer, to its end.

    Raises:
        asyncio.IncompleteReadError: the answer was cut off.
        msgspec.DecodeError, msgspec.ValidationError: it is no answer.
    """
    while True:
        (length,) = LENGTH.unpack(await stream.readexactly(LENGTH.size))
        if length > MAX_FRAME:
            raise msgspec.DecodeError(f"a frame of {length} bytes")
        content = _frames.decode(await stream.readexactly(length))
        yield content
        if isinstance(content, RowsEnd):
            return
