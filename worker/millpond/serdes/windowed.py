"""Keys in windows, with the bytes that Kafka Streams' windowed serdes write to topics."""

from __future__ import annotations

import struct
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Generic, TypeVar

import msgspec

from millpond.checks import kind_of
from millpond.errors import TopologyError
from millpond.times import moment

from .checking import check_inner
from .serde import Serde

__all__ = ("SessionWindowedSerde", "TimeWindowedSerde", "Window", "Windowed")

K = TypeVar("K")

_MAX_LONG = 2**63 - 1
_start = struct.Struct(">q")
_end_and_start = struct.Struct(">qq")
_MILLISECOND = timedelta(milliseconds=1)


class Window(msgspec.Struct, frozen=True, order=True, gc=False):
    """A window of event time, in epoch ms. `end` is exclusive for time windows and inclusive for sessions."""

    start: int
    end: int

    @property
    def start_time(self) -> datetime:
        """`start` as a datetime in UTC."""
        return moment(self.start)

    @property
    def end_time(self) -> datetime:
        """`end` as a datetime in UTC."""
        return moment(self.end)


# gc=False: a window aggregation may have millions of them, and a key never refers to its Windowed.
class Windowed(msgspec.Struct, Generic[K], frozen=True, gc=False):
    """A key in one window. `start_ms` and `end_ms` are epoch ms."""

    key: K
    start_ms: int
    end_ms: int

    @property
    def window(self) -> Window:
        """The window without the key."""
        return Window(self.start_ms, self.end_ms)

    def __str__(self) -> str:
        return f"[{self.key}@{self.start_ms}/{self.end_ms}]"


def TimeWindowedSerde(inner: Serde[K], size: timedelta, *, changelog: bool = False) -> Serde[Windowed[K]]:
    """Return a serde of keys in time windows: the key's bytes, then the window's start (8 bytes, big-endian).

    Args:
        inner: serde of the key.
        size: size of the windows, because only the start is written.
        changelog: True for the keys in the changelog of a window store, which have a sequence number (4 bytes) after
            the start; as `TimeWindowedSerde.forChangelog` in Kafka Streams. The number is not kept, and written as 0.

    Raises:
        ValueError: the size is not positive.
        TopologyError: `inner` is not a serde, or the size is not a duration.
    """
    check_inner("TimeWindowedSerde", inner)
    if not isinstance(size, timedelta):
        raise TopologyError(
            "TimeWindowedSerde needs the size of the windows as a timedelta, such as timedelta(hours=1), not "
            f"{kind_of(size)}."
        )
    size_ms = size // _MILLISECOND
    if size_ms <= 0:
        raise ValueError(f"the window size must be at least a millisecond, not {size}")
    return time_windowed(inner, size_ms, changelog=changelog)


def time_windowed(inner: Serde[K], size_ms: int, *, changelog: bool = False) -> Serde[Windowed[K]]:
    """Return the same as `TimeWindowedSerde`, for a size in ms, which may be that of windows without an end."""
    encode, decode = inner.serialize, inner.deserialize
    pack, unpack_from = _start.pack, _start.unpack_from
    sequence = bytes(4) if changelog else b""
    length = 8 + len(sequence)

    def serialize(windowed: Windowed[K], /) -> bytes:
        return encode(windowed.key) + pack(windowed.start_ms) + sequence

    def deserialize(data: bytes, /) -> Windowed[K]:
        at = _suffix(data, length)
        (start,) = unpack_from(data, at)
        # As in Kafka Streams, no window ends after the highest timestamp.
        return Windowed(decode(data[:at]), start, min(start + size_ms, _MAX_LONG))

    def specialize(topic: str, is_key: bool) -> Serde[Windowed[K]]:  # noqa: FBT001 - see Serde
        return time_windowed(inner.for_topic(topic, is_key), size_ms, changelog=changelog)

    shown = "unlimited" if size_ms == _MAX_LONG else timedelta(milliseconds=size_ms)
    name = f"TimeWindowed({inner.name}, {shown})"
    special = None if inner.specialize is None else specialize
    return Serde(
        name, serialize, deserialize, inner.immutable, special, _without(length), None if changelog else inner,
        header=inner.header,
    )  # fmt: skip


def SessionWindowedSerde(inner: Serde[K]) -> Serde[Windowed[K]]:
    """Return a serde of keys in session windows: the key's bytes, the session's end, its start (8 bytes, big-endian).

    Raises:
        TopologyError: `inner` is not a serde.
    """
    check_inner("SessionWindowedSerde", inner)
    encode, decode = inner.serialize, inner.deserialize
    pack, unpack_from = _end_and_start.pack, _end_and_start.unpack_from

    def serialize(windowed: Windowed[K], /) -> bytes:
        return encode(windowed.key) + pack(windowed.end_ms, windowed.start_ms)

    def deserialize(data: bytes, /) -> Windowed[K]:
        at = _suffix(data, 16)
        end, start = unpack_from(data, at)
        return Windowed(decode(data[:at]), start, end)

    def specialize(topic: str, is_key: bool) -> Serde[Windowed[K]]:  # noqa: FBT001 - see Serde
        return SessionWindowedSerde(inner.for_topic(topic, is_key))

    name = f"SessionWindowed({inner.name})"
    special = None if inner.specialize is None else specialize
    return Serde(name, serialize, deserialize, inner.immutable, special, _without(16), header=inner.header)


def _without(length: int) -> Callable[[bytes], bytes]:
    """Return the function that removes a key's window, since all windows of a key are in one partition."""
    return lambda data: data[:-length]


def _suffix(data: bytes, length: int) -> int:
    at = len(data) - length
    if at < 0:
        raise ValueError(
            f"a windowed key ends with {length} bytes for its window, but this one has only {len(data)} bytes"
        )
    return at
