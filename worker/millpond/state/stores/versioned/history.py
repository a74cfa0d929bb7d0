"""The history of a key in a versioned store: its values by timestamp, and its rows.

A row is one version: key ++ timestamp (8 bytes, big endian) -> a flag byte and the value; a deletion is a version, too.
A version is valid until the next one of its key begins. Versions are kept until the segment of that end has expired, as
in Kafka Streams, so the same reads find the same versions; the latest value of a key never expires.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right

from millpond.state.backend import Backend
from millpond.state.formats import partition_prefix

__all__ = (
    "DELETED",
    "VERSION_LENGTH",
    "Version",
    "history_of",
    "in_expired_segment",
    "pack_version",
    "put_version",
    "row_of",
    "select_versions",
    "take_expired",
    "valid_to",
    "version_as_of",
    "version_of",
)

VERSION_LENGTH = 8
"""Bytes after the key in the key of a row: the timestamp of the version."""

DELETED = b"\x00"
"""The value of the row of a deletion."""

_HELD = b"\x01"

Version = tuple[int, bytes | None]
"""Timestamp in ms and encoded value; None is a deletion."""


def put_version(history: list[Version], timestamp: int, data: bytes | None) -> bool:
    """Put a version into the history of its key.

    Args:
        history: the versions of the key, by timestamp.
        timestamp: the timestamp of the version, in ms.
        data: the encoded value; None is a deletion.

    Returns:
        Whether the history has the version. As in Kafka Streams, a deletion at the time of a key's latest value, with
        no value right before it, removes the value without a trace: a late put before that time is the latest again.
    """
    at = bisect_left(history, timestamp, key=_timestamp_of)
    if at == len(history) or history[at][0] != timestamp:
        history.insert(at, (timestamp, data))
        return True
    replaced = history[at][1]
    alone = at + 1 == len(history) and (at == 0 or history[at - 1][1] is None)
    if data is None and replaced is not None and alone:
        del history[at]
        return False
    history[at] = (timestamp, data)
    return True


def take_expired(history: list[Version], observed: int, retention_ms: int, interval_ms: int) -> list[int]:
    """Remove the versions that ended in an expired segment; return their timestamps. The latest value stays.

    A deletion before all other versions goes once it began in an expired segment: without it, reads find the same.
    So the versions that are left do not depend on when the expired ones are removed.

    Args:
        history: the versions of the key, by timestamp.
        observed: the stream time of the store, in epoch ms.
        retention_ms: the history retention.
        interval_ms: the length of a segment.
    """
    count = 0
    while count + 1 < len(history) and in_expired_segment(history[count + 1][0], observed, retention_ms, interval_ms):
        count += 1
    if (
        count < len(history)
        and history[count][1] is None
        and in_expired_segment(history[count][0], observed, retention_ms, interval_ms)
    ):
        count += 1
    taken = [timestamp for timestamp, _ in history[:count]]
    del history[:count]
    return taken


def valid_to(history: list[Version], timestamp: int) -> int | None:
    """Return the time at which the version after one with this timestamp begins; None for the latest."""
    at = bisect_right(history, timestamp, key=_timestamp_of)
    return history[at][0] if at < len(history) else None


def row_of(version: Version) -> bytes:
    """Return the value of the row of a version."""
    return DELETED if version[1] is None else _HELD + version[1]


def version_of(row: bytes) -> bytes | None:
    """Return the encoded value of a version from its row's value; None for a deletion."""
    return None if row == DELETED else row[1:]


def history_of(backend: Backend, store: str, partition: int, raw_key: bytes, newest: int) -> list[Version]:
    """Return the committed versions of a serialised key, deletions included, by timestamp.

    Args:
        backend: the backend of the store.
        store: the store's name.
        partition: the partition.
        raw_key: the serialised key.
        newest: the largest timestamp in the store, in epoch ms; -1 for an empty store.
    """
    if newest < 0:
        return []
    first = partition_prefix(partition) + raw_key
    length = len(first) + VERSION_LENGTH
    # Longer keys that begin with this one may be between its versions. Up to the largest timestamp, these are few:
    # only those that go on with zero bytes, as timestamps of today begin with two.
    return [
        (int.from_bytes(key[-VERSION_LENGTH:], "big"), version_of(row))
        for key, row in backend.range(store, first, first + pack_version(newest) + b"\0")
        if len(key) == length
    ]


def version_as_of(history: list[Version], as_of: int, oldest_ms: int) -> int | None:
    """Return the index of the version that is valid at a time; None without one.

    Args:
        history: all versions of the key, by timestamp.
        as_of: the time, in epoch ms.
        oldest_ms: the start of the history retention, before which only the latest version is found.
    """
    at = bisect_right(history, as_of, key=_timestamp_of) - 1
    return None if at < 0 or (at + 1 < len(history) and as_of < oldest_ms) else at


def select_versions(  # noqa: PLR0913 - a range, and the times of the store
    history: list[Version], from_ms: int | None, to_ms: int | None, observed: int, retention_ms: int, interval_ms: int
) -> list[tuple[int, int | None, bytes]]:
    """Return the values that were valid at any time of a range, by timestamp.

    Args:
        history: all versions of the key, by timestamp.
        from_ms: the start of the range, in epoch ms; None is no bound.
        to_ms: the end of the range (inclusive), in epoch ms; None is no bound.
        observed: the stream time of the store, in epoch ms.
        retention_ms: the history retention.
        interval_ms: the length of a segment.

    Returns:
        the timestamp, the time at which the next version begins (None for the latest) and the encoded value of each.
    """
    only_latest = to_ms is not None and to_ms < observed - retention_ms
    found: list[tuple[int, int | None, bytes]] = []
    for index, (timestamp, data) in enumerate(history):
        last = index + 1 == len(history)
        until = None if last else history[index + 1][0]
        expired = until is not None and in_expired_segment(until, observed, retention_ms, interval_ms)
        if data is None or expired or (only_latest and not last):
            continue
        if (to_ms is None or timestamp <= to_ms) and (from_ms is None or until is None or until > from_ms):
            found.append((timestamp, until, data))
    return found


def in_expired_segment(ended: int, observed: int, retention_ms: int, interval_ms: int) -> bool:
    """Return whether a version that ended at a time is in a segment that has expired."""
    return ended // interval_ms < max(0, observed - retention_ms) // interval_ms


def _timestamp_of(version: Version) -> int:
    return version[0]


def pack_version(timestamp: int) -> bytes:
    """Return the bytes after the key in the key of a row."""
    return timestamp.to_bytes(VERSION_LENGTH, "big")
