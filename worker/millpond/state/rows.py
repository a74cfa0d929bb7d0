"""The functions that turn changelog records into local rows, for restoring a store and for building a snapshot.

Each kind of store has one function, which is made for a partition, so that the constant part of the key is computed
once. A function takes the key, the value (None is a deletion), the timestamp in ms and the headers of a record, and
returns the full key and the value of the row. It depends on nothing else: callers know the stream time, and decide
which windows have expired.
"""

from __future__ import annotations

from collections.abc import Callable

from millpond.errors import StateError

from .backend import Row
from .formats import (
    decode_buffer_value,
    pack_timestamp,
    partition_prefix,
    segment_interval,
    segment_prefix,
    split_session_key,
    split_window_key,
)

__all__ = (
    "RowOf",
    "buffer_rows",
    "check_buffer_record",
    "first_live_segment",
    "join_buffer_rows",
    "key_value_rows",
    "session_rows",
    "timestamped_key_value_rows",
    "window_rows",
)

Headers = list[tuple[str, bytes | None]]

RowOf = Callable[[bytes, bytes | None, int, Headers | None], Row]
"""Key, value, timestamp in ms and headers of a record -> full key and value of the local row; None deletes it."""

_BUFFER_FORMAT = b"\x03"
_MOST_PREFIXES = 10_000


def key_value_rows(partition: int) -> RowOf:
    """Return the function for a key-value store without timestamps."""
    prefix = partition_prefix(partition)

    def row(key: bytes, value: bytes | None, timestamp: int, headers: Headers | None, /) -> Row:
        return prefix + key, value

    return row


def timestamped_key_value_rows(partition: int) -> RowOf:
    """Return the function for a key-value store whose values begin with their timestamp."""
    prefix, pack = partition_prefix(partition), pack_timestamp

    def row(key: bytes, value: bytes | None, timestamp: int, headers: Headers | None, /) -> Row:
        return prefix + key, None if value is None else pack(timestamp) + value

    return row


def window_rows(partition: int, retention_ms: int, *, timestamped: bool) -> RowOf:
    """Return the function for a window store. Keys are ``key ++ start ++ sequence``, as in the changelog."""
    interval, pack = segment_interval(retention_ms), pack_timestamp
    prefixes: dict[int, bytes] = {}

    def row(key: bytes, value: bytes | None, timestamp: int, headers: Headers | None, /) -> Row:
        segment = split_window_key(key)[1] // interval
        prefix = prefixes.get(segment)
        if prefix is None:
            if len(prefixes) >= _MOST_PREFIXES:
                prefixes.clear()
            prefix = prefixes[segment] = segment_prefix(partition, segment)
        if timestamped and value is not None:
            value = pack(timestamp) + value
        return prefix + key, value

    return row


def session_rows(partition: int, retention_ms: int) -> RowOf:
    """Return the function for a session store. Keys are ``key ++ end ++ start``, as in the changelog."""
    interval = segment_interval(retention_ms)

    def row(key: bytes, value: bytes | None, timestamp: int, headers: Headers | None, /) -> Row:
        return segment_prefix(partition, split_session_key(key)[1] // interval) + key, value

    return row


def first_live_segment(stream_time_ms: int, retention_ms: int) -> int:
    """Return the number of the oldest segment that is kept at a stream time; all segments below it have expired."""
    return max(0, (stream_time_ms - retention_ms) // segment_interval(retention_ms))


def buffer_rows(partition: int) -> RowOf:
    """Return the function for the buffer behind `suppress`. It raises `StateError` for a value in another format."""
    prefix = partition_prefix(partition)

    def row(key: bytes, value: bytes | None, timestamp: int, headers: Headers | None, /) -> Row:
        if value is not None:
            try:
                check_buffer_record(value, headers)
            except ValueError as error:
                raise StateError(
                    f"a suppress buffer's changelog has {error}; Kafka Streams writes version 3 since 2.5.1: run "
                    "the application once with such a version, or reset it"
                ) from error
        return prefix + key, value

    return row


def join_buffer_rows(partition: int) -> RowOf:
    """Return the function for the buffer of a join with a grace period. It raises `StateError` for an unknown value."""
    prefix = partition_prefix(partition)

    def row(key: bytes, value: bytes | None, timestamp: int, headers: Headers | None, /) -> Row:
        if value is not None:
            try:
                decode_buffer_value(value)
            except ValueError as error:
                raise StateError(f"a join buffer's changelog has a record that cannot be read: {error}") from error
        return prefix + key, value

    return row


def check_buffer_record(value: bytes, headers: Headers | None) -> None:
    """Check that a changelog record of a suppress buffer is readable.

    Raises:
        ValueError: the record cannot be read; the message is a noun phrase for the record.
    """
    version = next((data for name, data in reversed(headers or ()) if name == "v"), None)
    if version != _BUFFER_FORMAT:
        raise ValueError("a record of another format than version 3")
    try:
        decode_buffer_value(value)
    except ValueError as error:
        raise ValueError(f"a record that cannot be read ({error})") from error
