"""The byte formats of state: in changelog topics (those of Kafka Streams), and in the local database.

Changelog records have the plain value, with the timestamp in the record. Window keys are ``key ++ start ++ sequence``,
session keys ``key ++ end ++ start``. The suppress buffer's value (format version 3) has the record's context as well,
since an evicted record is forwarded with the headers and the source position of the record that was buffered.

Local rows start with the partition, so that one column family serves all partitions of a store. Local values of
timestamped stores start with the timestamp. Rows of windows and sessions have the segment between partition and key, so
that rows that expire together are next to each other.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, NamedTuple

__all__ = (
    "ABSENT_SEQUENCE",
    "BUFFER_HEADERS",
    "BufferValue",
    "RecordContext",
    "decode_buffer_value",
    "encode_buffer_value",
    "next_prefix",
    "pack_window_suffix",
    "partition_prefix",
    "segment_interval",
    "segment_prefix",
    "session_key",
    "split_session_key",
    "split_window_key",
    "window_key",
    "window_start",
    "window_suffix",
)

_int = struct.Struct(">i")
_long = struct.Struct(">q")
_start_and_sequence = struct.Struct(">qi")
_end_and_start = struct.Struct(">qq")
_timestamp_and_offset = struct.Struct(">qq")

WINDOW_SUFFIX_LENGTH = _start_and_sequence.size
"""Bytes after the key in a window store's changelog key: start (8) and sequence number (4)."""

SESSION_SUFFIX_LENGTH = _end_and_start.size
"""Bytes after the key in a session store's changelog key: end (8) and start (8)."""

TIMESTAMP_LENGTH = _long.size
"""Bytes before the value in a local row of a timestamped store."""

PARTITION_LENGTH = _int.size
SEGMENT_LENGTH = _long.size

ROW_PREFIX_LENGTH = PARTITION_LENGTH + SEGMENT_LENGTH
"""Bytes before the key in a local row of a store of windows or sessions."""

ABSENT_SEQUENCE = 0
"""The sequence number of every row of a store that keeps one value per key and window."""

MAX_SEQUENCE = 0x7FFFFFFF

_SMALLEST_SEGMENT_MS = 60_000

pack_timestamp: Callable[[int], bytes] = _long.pack
unpack_timestamp: Callable[..., tuple[Any, ...]] = _long.unpack_from

BUFFER_HEADERS: list[tuple[str, bytes | None]] = [("v", b"\x03")]
"""The header that tells Kafka Streams which format a suppress buffer's changelog value has."""

_NULL = -1
_SAME_AS_PRIOR = -2


def partition_prefix(partition: int) -> bytes:
    """Return the first 4 bytes of every local row of a partition."""
    return _int.pack(partition)


def segment_prefix(partition: int, segment: int) -> bytes:
    """Return the first 12 bytes of every local row of one segment of a window store's partition."""
    return _int.pack(partition) + _long.pack(segment)


def segment_interval(retention_ms: int) -> int:
    """Return the length of a segment in ms of window starts: half of the retention, at least a minute."""
    return max(retention_ms // 2, _SMALLEST_SEGMENT_MS)


def next_prefix(prefix: bytes) -> bytes | None:
    """Return the smallest byte string above all that start with `prefix`; None if none exists (all bytes are 0xFF)."""
    stripped = prefix.rstrip(b"\xff")
    if not stripped:
        return None
    return stripped[:-1] + bytes((stripped[-1] + 1,))


def window_suffix(start_ms: int, sequence: int = ABSENT_SEQUENCE) -> bytes:
    """Return the bytes after the key in a window store's changelog key: window start and sequence."""
    return _start_and_sequence.pack(start_ms, sequence)


pack_window_suffix: Callable[[int, int], bytes] = _start_and_sequence.pack
"""Returns the bytes after the key in a window store's changelog key, of the window's start in ms and the sequence."""


window_start: Callable[[int], bytes] = _long.pack
"""Returns the bytes after the key in a windowed key of a topic that is not a changelog, of the window's start in ms."""


def window_key(raw_key: bytes, start_ms: int, sequence: int = ABSENT_SEQUENCE) -> bytes:
    """Return a window store's changelog key: key, window start (8 bytes), sequence (4 bytes), big-endian."""
    return raw_key + _start_and_sequence.pack(start_ms, sequence)


def split_window_key(data: bytes, skip: int = 0) -> tuple[bytes, int, int]:
    """Return the key, window start in ms and sequence of a window store's changelog key.

    Args:
        data: the changelog key, or a local row's key.
        skip: the number of bytes before the key (the partition and segment of a local row).
    """
    at = len(data) - WINDOW_SUFFIX_LENGTH
    start, sequence = _start_and_sequence.unpack_from(data, at)
    return data[skip:at], start, sequence


session_suffix: Callable[[int, int], bytes] = _end_and_start.pack
"""Returns the bytes after the key in a session store's changelog key, of the session's end and start in ms."""


def session_key(raw_key: bytes, start_ms: int, end_ms: int) -> bytes:
    """Return a session store's changelog key: key, session end (8 bytes), session start (8 bytes), big-endian."""
    return raw_key + _end_and_start.pack(end_ms, start_ms)


def split_session_key(data: bytes, skip: int = 0) -> tuple[bytes, int, int]:
    """Return the key, the end and the start in ms of a session store's changelog key.

    Args:
        data: the changelog key, or a local row's key.
        skip: the number of bytes before the key (the partition and segment of a local row).
    """
    at = len(data) - SESSION_SUFFIX_LENGTH
    end, start = _end_and_start.unpack_from(data, at)
    return data[skip:at], end, start


class RecordContext(NamedTuple):
    """The timestamp, source position and headers of a record: Kafka Streams' ProcessorRecordContext."""

    timestamp: int
    """Epoch milliseconds."""

    offset: int
    partition: int
    topic: str | None
    """None for a record that a punctuator forwarded."""

    headers: list[tuple[str, bytes | None]] | None


class BufferValue(NamedTuple):
    """The buffered update of a key in the suppress buffer."""

    prior: bytes | None
    """The value before the first buffered update, which is still visible downstream."""

    old: bytes | None
    """The value before the last buffered update."""

    new: bytes | None
    context: RecordContext
    """Of the last buffered update."""


def encode_buffer_value(value: BufferValue, buffer_time: int) -> bytes:
    """Return a suppress buffer's changelog value, format version 3: context, prior, old and new value, buffer time."""
    prior, old, new, context = value
    parts = [_encode_context(context), _sized(prior)]
    # Kafka Streams drops a repeated old value, but writes a missing one as missing.
    if old is not None and old == prior:
        parts.append(_int.pack(_SAME_AS_PRIOR))
    else:
        parts.append(_sized(old))
    parts.append(_sized(new))
    parts.append(_long.pack(buffer_time))
    return b"".join(parts)


def decode_buffer_value(data: bytes) -> tuple[BufferValue, int]:
    """Decode a suppress buffer's changelog value of format version 3, and its buffer time in ms.

    Raises:
        ValueError: the bytes are not of that format.
    """
    try:
        context, at = _decode_context(data)
        prior, at = _take_sized(data, at)
        (old_length,) = _int.unpack_from(data, at)
        if old_length == _SAME_AS_PRIOR:
            old, at = prior, at + _int.size
        else:
            old, at = _take_sized(data, at)
        new, at = _take_sized(data, at)
        (buffer_time,) = _long.unpack_from(data, at)
    except (struct.error, UnicodeDecodeError) as error:
        raise ValueError(f"not a suppress buffer's value of format version 3 ({error})") from error
    if at + _long.size != len(data):
        raise ValueError(
            "not a suppress buffer's value of format version 3 "
            f"({len(data)} bytes, of which {at + _long.size} were understood)"
        )
    return BufferValue(prior, old, new, context), buffer_time


def _sized(data: bytes | None) -> bytes:
    return _int.pack(_NULL) if data is None else _int.pack(len(data)) + data


def _take_sized(data: bytes, at: int) -> tuple[bytes | None, int]:
    (length,) = _int.unpack_from(data, at)
    at += _int.size
    if length == _NULL:
        return None, at
    end = at + length
    if length < 0 or end > len(data):
        raise ValueError(f"not a suppress buffer's value of format version 3 (a part of {length} bytes)")
    return data[at:end], end


def _encode_context(context: RecordContext) -> bytes:
    # Kafka Streams has no bytes for a context without a topic; an empty topic name is one no broker allows.
    topic = (context.topic or "").encode()
    headers = context.headers or ()
    parts = [
        _timestamp_and_offset.pack(context.timestamp, context.offset),
        _int.pack(len(topic)),
        topic,
        _int.pack(context.partition),
        _int.pack(len(headers)),
    ]
    for name, value in headers:
        parts.append(_sized(name.encode()))
        parts.append(_sized(value))
    return b"".join(parts)


def _decode_context(data: bytes) -> tuple[RecordContext, int]:
    timestamp, offset = _timestamp_and_offset.unpack_from(data, 0)
    topic, at = _take_sized(data, _timestamp_and_offset.size)
    (partition,) = _int.unpack_from(data, at)
    (count,) = _int.unpack_from(data, at + _int.size)
    at += 2 * _int.size
    headers: list[tuple[str, bytes | None]] = []
    for _ in range(count):  # a count of -1 is what old versions wrote for no headers
        name, at = _take_sized(data, at)
        value, at = _take_sized(data, at)
        headers.append(((name or b"").decode(), value))
    return RecordContext(timestamp, offset, partition, (topic or b"").decode() or None, headers or None), at
