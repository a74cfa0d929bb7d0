"""Ordered rows of store partitions: committed rows from the backend, or rows with a task's uncommitted writes.

Both kinds of rows have keys and values in store format, without the partition, so callers need not distinguish them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from heapq import merge
from typing import Any

import msgspec

from millpond.state.formats import (
    MAX_SEQUENCE,
    PARTITION_LENGTH,
    SEGMENT_LENGTH,
    pack_timestamp,
    partition_prefix,
    segment_prefix,
    session_suffix,
    split_session_key,
    split_window_key,
    window_suffix,
)

from .catalog import QueryableKind, StoreInfo
from .messages import Read, Row
from .version_rows import committed_versions, staged_versions

__all__ = ("committed_rows", "resume_after", "staged_rows")

_MAX_LONG = 2**63 - 1
_LAST_SESSION = session_suffix(_MAX_LONG, _MAX_LONG) + b"\0"
"""Bytes after a key that are above those of all its sessions."""


def resume_after(partitions: tuple[int, ...], last: Row, *, reverse: bool) -> dict[int, bytes]:
    """Return the `Read.resume` that continues after a row; rows are ordered by key, then partition."""
    key, at, _ = last
    if reverse:
        return {each: key + b"\0" if each < at else key for each in partitions}
    return {each: key if each > at else key + b"\0" for each in partitions}


def committed_rows(info: StoreInfo, backend: Any, read: Read, resume: dict[int, bytes]) -> Iterator[Row]:
    """Return committed rows of all partitions of the request, in the order of their keys.

    All iterators are opened in this call, not later by a generator, so they show the same moment.
    """
    each = [
        _CommittedRows(info, backend, read, partition, resume.get(partition)).rows() for partition in read.partitions
    ]
    return each[0] if len(each) == 1 else merge(*each, reverse=read.reverse)


@dataclass(frozen=True, slots=True)
class _CommittedRows:
    """The committed rows of one partition of a store."""

    info: StoreInfo
    backend: Any
    read: Read
    partition: int
    resume: bytes | None

    def rows(self) -> Iterator[Row]:
        match self.info.kind:
            case QueryableKind.KEY_VALUE:
                return self._key_values()
            case QueryableKind.WINDOW:
                return self._windows()
            case QueryableKind.SESSION:
                return self._sessions()
            case QueryableKind.VERSIONED:
                observed = observed_stream_time(self.backend.metadata(self.info.name, self.partition))
                found = committed_versions(self.info, self.backend, self.read, self.partition, observed)
                return (row for row in found if not _passed(self.read, row[0], self.resume))

    def _key_values(self) -> Iterator[Row]:
        read = self.read
        if read.exact:
            return self._row(read.low)
        prefix = partition_prefix(self.partition)
        high = partition_prefix(self.partition + 1) if read.high is None else prefix + read.high
        return self._between(prefix + read.low, high)

    def _row(self, key: bytes) -> Iterator[Row]:
        if _passed(self.read, key, self.resume):
            return iter(())
        row = self.backend.reader(self.info.name)(partition_prefix(self.partition) + key)
        return iter(()) if row is None else iter([(key, self.partition, row)])

    def _between(self, low: bytes, high: bytes) -> Iterator[Row]:
        reverse, partition = self.read.reverse, self.partition
        if self.resume is not None:
            at = partition_prefix(partition) + self.resume
            low, high = (low, min(high, at)) if reverse else (max(low, at), high)
        if low >= high:
            return iter(())
        found = self.backend.range(self.info.name, low, high, reverse)
        return ((key[PARTITION_LENGTH:], partition, row) for key, row in found)

    def _windows(self) -> Iterator[Row]:
        info, read, partition = self.info, self.read, self.partition
        observed = observed_stream_time(self.backend.metadata(info.name, partition))
        first = max(read.first, observed - info.retention_ms + 1, 0)
        last = min(read.last, observed)
        if last < first:
            return iter(())
        if read.exact and first == last:
            return self._row(info.row_key(read.low, first))
        segments = range(first // info.segment_ms, last // info.segment_ms + 1)
        found = []
        for segment in reversed(segments) if read.reverse else segments:
            prefix = segment_prefix(partition, segment)
            if read.exact:
                low = prefix + read.low + window_suffix(first)
                high = prefix + read.low + window_suffix(last, MAX_SEQUENCE) + b"\0"
            else:
                low = prefix + read.low
                high = segment_prefix(partition, segment + 1)
                if read.high is not None:
                    high = min(high, prefix + _above(read.high, window_suffix(last, MAX_SEQUENCE) + b"\0"))
            found.append(self._between(low, high))
        return _matching((row for rows in found for row in rows), read, first, last)

    def _sessions(self) -> Iterator[Row]:
        info, read, partition = self.info, self.read, self.partition
        observed = observed_stream_time(self.backend.metadata(info.name, partition))
        first = _earliest_end(info, read, observed)
        if read.exact and read.session is not None:
            start, end = read.session
            return self._row(info.row_key(read.low, start, end)) if first <= end <= observed else iter(())
        segments = range(first // info.segment_ms, observed // info.segment_ms + 1)
        found = []
        for segment in reversed(segments) if read.reverse else segments:
            prefix = segment_prefix(partition, segment)
            high = segment_prefix(partition, segment + 1)
            if read.exact:
                high = prefix + read.low + _LAST_SESSION
            elif read.high is not None:
                high = min(high, prefix + _above(read.high, _LAST_SESSION))
            found.append(self._between(prefix + read.low, high))
        return _matching_sessions((row for rows in found for row in rows), read, first)


def _earliest_end(info: StoreInfo, read: Read, observed: int) -> int:
    """Return the first session end of an answer: expired sessions are not in it."""
    return max(read.first, observed - info.retention_ms + 1, 0)


def _above(key: bytes, suffix: bytes) -> bytes:
    """Return a bound above the rows of all keys below `key`.

    A row key is the key and a suffix, so the rows of a prefix of `key` may come after `key`.

    Args:
        key: the key.
        suffix: bytes above all suffixes.
    """
    return max((key, *(key[:length] + suffix for length in range(len(key)))))


def _matching(rows: Iterator[Row], read: Read, first: int, last: int) -> Iterator[Row]:
    for row in rows:
        raw_key, start, _ = split_window_key(row[0], SEGMENT_LENGTH)
        if first <= start <= last and _wanted(read, raw_key):
            yield row


def _matching_sessions(rows: Iterator[Row], read: Read, first: int) -> Iterator[Row]:
    for row in rows:
        raw_key, end, start = split_session_key(row[0], SEGMENT_LENGTH)
        if end >= first and start <= read.last and _wanted(read, raw_key):
            yield row


def _wanted(read: Read, raw_key: bytes) -> bool:
    if read.exact:
        return raw_key == read.low
    return raw_key >= read.low and (read.high is None or raw_key < read.high)


def _passed(read: Read, key: bytes, resume: bytes | None) -> bool:
    return resume is not None and (key >= resume if read.reverse else key < resume)


def observed_stream_time(metadata: bytes) -> int:
    """Return the largest committed window start or session end; -1 for none."""
    held = msgspec.msgpack.decode(metadata, type=dict[str, int]) if metadata else {}
    return held.get("observed_stream_time", -1)


def staged_rows(info: StoreInfo, stores: dict[int, Any], read: Read, resume: dict[int, bytes]) -> Iterator[Row]:
    """Return rows as their tasks see them, with uncommitted writes. For the worker's loop only.

    Args:
        info: the store.
        stores: the instances of the store, by partition.
        read: the request.
        resume: the row keys to resume at, by partition.
    """
    staged = _STAGED[info.kind]
    each = [staged(info, store, read, partition, resume.get(partition)) for partition, store in stores.items()]
    return each[0] if len(each) == 1 else merge(*each, reverse=read.reverse)


def _staged_key_values(info: StoreInfo, store: Any, read: Read, partition: int, resume: bytes | None) -> Iterator[Row]:
    row = _row_encoder(info, store)
    low, high, reverse = read.low, read.high, read.reverse
    if read.exact:
        entry = store.peek(low)
        if entry[0] is not None and not _passed(read, low, resume):
            yield low, partition, row(*entry)
        return
    if resume is not None:
        low, high = (low, resume if high is None else min(high, resume)) if reverse else (max(low, resume), high)
    if high is None or low < high:
        for raw_key, entry in store._scan(low, high, reverse):  # noqa: SLF001 - the store's rows before its serdes
            yield raw_key, partition, row(*entry)


def _staged_windows(info: StoreInfo, store: Any, read: Read, partition: int, resume: bytes | None) -> Iterator[Row]:
    row = _row_encoder(info, store)
    low, high, reverse = read.low, read.high, read.reverse
    first, last = read.first, read.last
    if resume is not None:
        # Segments are stored in order, so those before the resume key are skipped.
        start = int.from_bytes(resume[:SEGMENT_LENGTH], "big", signed=True) * info.segment_ms
        first, last = (first, min(last, start + info.segment_ms - 1)) if reverse else (max(first, start), last)
    upper = low if read.exact else high
    rows = store._scan(low or None, upper, first, last, reverse)  # noqa: SLF001 - the store's rows before its serdes
    for raw_key, start, entry in rows:
        if upper is not None and not read.exact and raw_key >= upper:
            continue
        key = info.row_key(raw_key, start)
        if not _passed(read, key, resume):
            yield key, partition, row(*entry)


def _staged_sessions(info: StoreInfo, store: Any, read: Read, partition: int, resume: bytes | None) -> Iterator[Row]:
    reverse, latest_end = read.reverse, _MAX_LONG
    first = _earliest_end(info, read, store.observed_stream_time)
    if resume is not None:
        time = int.from_bytes(resume[:SEGMENT_LENGTH], "big", signed=True) * info.segment_ms
        if reverse:
            latest_end = time + info.segment_ms - 1
        else:
            first = max(first, time)
    upper = read.low if read.exact else read.high
    rows = store._scan(read.low or None, upper, first, read.last, reverse, latest_end)  # noqa: SLF001 - see above
    for raw_key, end, start, data in rows:
        if not _wanted(read, raw_key) or (read.session is not None and read.session != (start, end)):
            continue
        key = info.row_key(raw_key, start, end)
        if not _passed(read, key, resume):
            yield key, partition, data


def _staged_versions(info: StoreInfo, store: Any, read: Read, partition: int, resume: bytes | None) -> Iterator[Row]:
    return (row for row in staged_versions(info, store, read, partition) if not _passed(read, row[0], resume))


_STAGED: dict[QueryableKind, Callable[[StoreInfo, Any, Read, int, bytes | None], Iterator[Row]]] = {
    QueryableKind.KEY_VALUE: _staged_key_values,
    QueryableKind.WINDOW: _staged_windows,
    QueryableKind.SESSION: _staged_sessions,
    QueryableKind.VERSIONED: _staged_versions,
}


def _row_encoder(info: StoreInfo, store: Any) -> Callable[[Any, int], bytes]:
    encode = store.value_serde.serialize

    def row(value: Any, timestamp: int) -> bytes:
        data: bytes = encode(value)
        return pack_timestamp(timestamp) + data if info.timestamped else data

    return row
