"""Rows of one store partition in order, as the backend has them, or as the task itself sees them.

Both give the rows' keys and values as they lie in the backend, without the partition, so that what follows need not
care where they are from.
"""

from __future__ import annotations

from collections.abc import Iterator
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
    split_window_key,
    window_suffix,
)

from .catalog import QueryableKind, StoreInfo
from .messages import Read, Row

__all__ = ("committed_rows", "resume_after", "staged_rows")


def resume_after(partitions: tuple[int, ...], last: Row, reverse: bool) -> dict[int, bytes]:
    """`Read.resume` for going on behind a row; rows are ordered by key, then partition."""
    key, at, _ = last
    if reverse:
        return {each: key + b"\0" if each < at else key for each in partitions}
    return {each: key if each > at else key + b"\0" for each in partitions}


def committed_rows(info: StoreInfo, backend: Any, read: Read, resume: dict[int, bytes]) -> Iterator[Row]:
    """Committed rows of all partitions of the request, in the order of their keys.

    Not a generator down to its bottom: all iterators are made in this call, so they show the same moment.
    """
    each = [_committed(info, backend, read, partition, resume.get(partition)) for partition in read.partitions]
    return each[0] if len(each) == 1 else merge(*each, reverse=read.reverse)


def _committed(info: StoreInfo, backend: Any, read: Read, partition: int, resume: bytes | None) -> Iterator[Row]:
    if info.kind is QueryableKind.KEY_VALUE:
        return _key_values(info, backend, read, partition, resume)
    return _windows(info, backend, read, partition, resume)


def _key_values(info: StoreInfo, backend: Any, read: Read, partition: int, resume: bytes | None) -> Iterator[Row]:
    prefix = partition_prefix(partition)
    if read.exact:
        row = None if _passed(read, read.low, resume) else backend.reader(info.name)(prefix + read.low)
        return iter(()) if row is None else iter([(read.low, partition, row)])
    high = partition_prefix(partition + 1) if read.high is None else prefix + read.high
    return _between(info, backend, read, partition, prefix + read.low, high, resume)


def _between(
    info: StoreInfo, backend: Any, read: Read, partition: int, low: bytes, high: bytes, resume: bytes | None
) -> Iterator[Row]:
    if resume is not None:
        at = partition_prefix(partition) + resume
        low, high = (low, min(high, at)) if read.reverse else (max(low, at), high)
    if low >= high:
        return iter(())
    found = backend.range(info.name, low, high, read.reverse)
    return ((key[PARTITION_LENGTH:], partition, row) for key, row in found)


def _windows(info: StoreInfo, backend: Any, read: Read, partition: int, resume: bytes | None) -> Iterator[Row]:
    observed = observed_stream_time(backend.metadata(info.name, partition))
    first = max(read.first, observed - info.retention_ms + 1, 0)
    last = min(read.last, observed)
    if last < first:
        return iter(())
    if read.exact and first == last:
        key = info.row_key(read.low, first)
        row = None if _passed(read, key, resume) else backend.reader(info.name)(partition_prefix(partition) + key)
        return iter(()) if row is None else iter([(key, partition, row)])
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
                high = min(high, prefix + _above(read.high, last))
        found.append(_between(info, backend, read, partition, low, high, resume))
    return _wanted((row for rows in found for row in rows), read, first, last)


def _above(key: bytes, last: int) -> bytes:
    """A bound above the rows of all keys below `key`.

    A row is its key and 12 bytes more, so that of a key that `key` begins with may lie above `key`.
    """
    suffix = window_suffix(last, MAX_SEQUENCE) + b"\0"
    return max((key, *(key[:length] + suffix for length in range(len(key)))))


def _wanted(rows: Iterator[Row], read: Read, first: int, last: int) -> Iterator[Row]:
    low, high, exact = read.low, read.high, read.exact
    for row in rows:
        raw_key, start, _ = split_window_key(row[0], SEGMENT_LENGTH)
        if start < first or start > last:
            continue
        if raw_key != low if exact else raw_key < low or (high is not None and raw_key >= high):
            continue
        yield row


def _passed(read: Read, key: bytes, resume: bytes | None) -> bool:
    return resume is not None and (key >= resume if read.reverse else key < resume)


def observed_stream_time(metadata: bytes) -> int:
    """The largest window start that is committed, -1 for none."""
    held = msgspec.msgpack.decode(metadata, type=dict[str, int]) if metadata else {}
    return held.get("observed_stream_time", -1)


def staged_rows(info: StoreInfo, stores: dict[int, Any], read: Read, resume: dict[int, bytes]) -> Iterator[Row]:
    """What the tasks see, uncommitted writes included. For the worker's loop only.

    Args:
        info: the store.
        stores: its instance by partition.
        read: what is wanted.
        resume: where to go on.
    """
    each = [_staged(info, store, read, partition, resume.get(partition)) for partition, store in stores.items()]
    return each[0] if len(each) == 1 else merge(*each, reverse=read.reverse)


def _staged(info: StoreInfo, store: Any, read: Read, partition: int, resume: bytes | None) -> Iterator[Row]:
    encode = store.value_serde.serialize

    def row(value: Any, timestamp: int) -> bytes:
        data: bytes = encode(value)
        return pack_timestamp(timestamp) + data if info.timestamped else data

    low, high, reverse = read.low, read.high, read.reverse
    if info.kind is QueryableKind.KEY_VALUE:
        if read.exact:
            entry = store.entry(low)
            if entry[0] is not None and not _passed(read, low, resume):
                yield low, partition, row(*entry)
            return
        if resume is not None:
            low, high = (low, resume if high is None else min(high, resume)) if reverse else (max(low, resume), high)
        if high is None or low < high:
            for raw_key, entry in store._scan(low, high, reverse):
                yield raw_key, partition, row(*entry)
        return
    first, last = read.first, read.last
    if resume is not None:
        # Segments lie one after the other, so those behind need not be looked at.
        start = int.from_bytes(resume[:SEGMENT_LENGTH], "big", signed=True) * info.segment_ms
        first, last = (first, min(last, start + info.segment_ms - 1)) if reverse else (max(first, start), last)
    upper = low if read.exact else high
    for raw_key, start, entry in store._scan(low or None, upper, first, last, reverse):
        if upper is not None and not read.exact and raw_key >= upper:
            continue
        key = info.row_key(raw_key, start)
        if not _passed(read, key, resume):
            yield key, partition, row(*entry)
