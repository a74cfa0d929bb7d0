"""Messages between workers for queries: the request for rows, and the frames of the answer.

A request is one `Read`. The answer is a sequence of frames, each preceded by its length: a `Head`, rows in store format
and order, and a `RowsEnd`. An answer without a `RowsEnd` was cut off.
"""

from __future__ import annotations

import struct
from collections.abc import AsyncIterator
from typing import Protocol

import msgspec

from millpond.texts import encoded

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
"""A row: its key in store format without the partition, the partition, its value in store format."""

MAX_FRAME = 256 * 1024 * 1024
"""The longest frame accepted, in bytes."""

LENGTH = struct.Struct(">I")
"""The length prefix of a frame, in bytes."""


class Read(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A request for rows. Keys are serialised keys; times are in epoch ms."""

    application: str
    """Id of the application; a worker of another application rejects the request."""
    store: str
    partitions: tuple[int, ...]
    low: bytes = b""
    """The smallest key, inclusive."""
    high: bytes | None = None
    """The upper bound of keys, exclusive; None for no bound."""
    exact: bool = False
    """Whether only the key `low` is read; `high` is then ignored."""
    first: int = 0
    """The smallest window start, or session end, inclusive."""
    last: int = 2**63 - 1
    """The largest window start, or session start, inclusive."""
    session: tuple[int, int] | None = None
    """With `exact`, the start and the end of the one session to read; None for all sessions of the key."""
    as_of: int | None = None
    """With `exact`, the time of the one version to read; None for all that are valid from `first` to `last`."""
    reverse: bool = False
    limit: int | None = None
    committed: bool = True
    """Whether to read committed rows only; False: also the uncommitted writes of the task."""
    max_staleness_ms: int | None = None
    """Allow copies that were caught up at most this long ago, in milliseconds."""
    max_lag: int | None = None
    """Allow copies with at most this lag, in changelog records."""
    bound: dict[str, int] = {}
    """The position to wait for: next offsets by `topic-partition`."""
    resume: dict[int, bytes] = {}
    """Row keys to resume at, by partition: inclusive lower bound if ascending, exclusive upper bound in reverse."""
    timeout_ms: int = 10_000
    """How long to wait for `bound`, in milliseconds."""

    @property
    def stale(self) -> bool:
        """Whether a copy may answer."""
        return self.max_staleness_ms is not None or self.max_lag is not None


class Head(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True, tag="head"):
    """The first frame of an answer."""

    position: dict[str, int] = {}
    """Next offsets by `topic-partition`: all input below them is in the rows."""
    staleness_ms: int | None = None
    """How long ago the most outdated copy was caught up, in milliseconds; None when only active tasks answer."""


class RowsEnd(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True, tag="end"):
    """The last frame of an answer."""

    snapshot: bool = True
    """Whether the rows of each partition are of one moment."""
    failure: Failure | None = None
    """Why rows are missing; None when the answer is complete."""


Frame = list[Row] | Head | RowsEnd

_encoder = msgspec.msgpack.Encoder()
_reads = msgspec.msgpack.Decoder(Read)
_frames: msgspec.msgpack.Decoder[Frame] = msgspec.msgpack.Decoder(Frame)


def encode_read(read: Read) -> bytes:
    """Encode the body of a request."""
    return encoded(read, _encoder)


def decode_read(raw: bytes) -> Read:
    """Decode the body of a request.

    Raises:
        msgspec.DecodeError, msgspec.ValidationError: the body is not a valid `Read`.
    """
    return _reads.decode(raw)


def encode_frame(content: Frame) -> bytes:
    """Encode a frame, preceded by its length."""
    return with_length(encoded(content, _encoder))


def with_length(body: bytes) -> bytes:
    """Return the body of a frame, preceded by its length."""
    return LENGTH.pack(len(body)) + body


class Stream(Protocol):
    """A stream of bytes: the part of aiohttp's StreamReader that is needed."""

    async def readexactly(self, n: int) -> bytes:
        """Return exactly `n` bytes; raises asyncio.IncompleteReadError at the end of the stream."""


async def frames(stream: Stream) -> AsyncIterator[Frame]:
    """Yield the frames of an answer up to its `RowsEnd`.

    Raises:
        asyncio.IncompleteReadError: the answer was cut off.
        msgspec.DecodeError, msgspec.ValidationError: the bytes are not an answer.
    """
    while True:
        (length,) = LENGTH.unpack(await stream.readexactly(LENGTH.size))
        if length > MAX_FRAME:
            raise msgspec.DecodeError(f"a frame of {length} bytes exceeds the maximum of {MAX_FRAME} bytes")
        content = _frames.decode(await stream.readexactly(length))
        yield content
        if isinstance(content, RowsEnd):
            return
