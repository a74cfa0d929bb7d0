"""The staged entries of a window store: one dict per window start, over segments that expire together.

A segment spans max(retention / 2, 60 s) of window starts, as in Kafka Streams' RocksDB store. Expiry deletes whole
segments. Reads are stricter: they never return a window that starts before stream time - retention + 1. Windows between
the two bounds may still be put but are not returned. Kafka Streams' in-memory store rejects those puts; so does this
one when it is not persistent. All puts reach the changelog.

Stream time here is the largest window start ever put, and is committed with the rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from heapq import heappop, heappush
from itertools import islice
from operator import itemgetter
from typing import Any, TypeVar

import msgspec

from millpond.serdes import Serde
from millpond.state.backend import Backend, Rows
from millpond.state.formats import (
    MAX_SEQUENCE,
    ROW_PREFIX_LENGTH,
    TIMESTAMP_LENGTH,
    segment_interval,
    segment_prefix,
    split_window_key,
    unpack_timestamp,
    window_suffix,
)
from millpond.state.rows import first_live_segment, window_rows

from .encoding import Produced, encode_entries, encode_few, encode_missing
from .flush_columns import Change, encoded_changes, timestamp_of
from .merge import merge
from .staged_store import ABSENT, ChangelogRecord, StoreContext, changed_since_flush
from .window_changes import forward_window_changes
from .window_puts import Entry, Window, WindowPuts

__all__ = ("Entry", "StagedWindows")

K = TypeVar("K")
V = TypeVar("V")

_value, _timestamp = itemgetter(0), itemgetter(1)
_MAX_LONG = 2**63 - 1
#: Fewer changed keys of a window are encoded one by one.
_FEW = 8


class StagedWindows(WindowPuts[K, V]):
    """The entries by window start and key, with the functions for operators and for the runtime."""

    timestamped: bool = False
    persistent: bool
    backend_reads: int

    expired_puts: int
    """The number of puts rejected because their window had expired, since the store was built."""
    incomplete_until: int
    """The time in epoch ms up to which brokers had deleted changelog records before a restore; -1 if they had not."""

    _observed: int
    _floor: int
    _known_from: int
    """All windows that start at this time or later have been put since the rows of the backend were read last."""
    _swept: int
    _flushed_metadata: bytes
    _sealed_metadata: bytes

    def __init__(  # noqa: PLR0913  # keyword-only where optional
        self,
        name: str,
        partition: int,
        backend: Backend,
        key: Serde[K],
        value: Serde[V],
        *,
        retention_ms: int,
        window_size_ms: int,
        persistent: bool = True,
        caching: bool = False,
        changelog_topic: str | None = None,
    ) -> None:
        super().__init__(name, partition, backend, key, value, caching=caching, changelog_topic=changelog_topic)
        self.persistent = persistent
        self.retention_ms = retention_ms
        self.window_size_ms = window_size_ms
        self.expired_puts = 0
        self.incomplete_until = -1
        self._interval = segment_interval(retention_ms)
        self._starts: list[int] = []  # heap of the starts in _windows, perhaps with some that are no longer there
        self._in_heap: set[int] = set()  # the starts in the heap
        # Windows that accept puts but are not read; only until the next flush.
        self._hidden: dict[int, Window] = {}
        self._load_metadata()
        self._bind()

    @property
    def observed_stream_time(self) -> int:
        """The largest window start put so far, in epoch ms; -1 before the first put."""
        return self._observed

    @property
    def restored_incomplete(self) -> bool:
        """Whether windows may be missing that had not expired, since brokers had deleted them from the changelog."""
        return self.incomplete_until >= max(0, self._observed - self.retention_ms)

    @property
    def visible_from(self) -> int:
        """The smallest window start that readers see, in epoch ms."""
        return max(0, self._floor + 1)

    def attach(self, context: StoreContext) -> None:
        """Attach the store to its task; a caching store then forwards with the headers of the last put."""
        super().attach(context)
        self._bind()

    def _load(self, raw_key: bytes, start: int) -> Entry:
        """Return the entry of a key that is not in memory, as bytes or object like the entries in memory."""
        self._check_open()
        # Nothing was ever put above the observed time; windows at or below the floor have expired.
        if start > self._observed or start <= self._floor:
            return ABSENT
        window = self._windows.get(start)
        if window is None:
            window = self._windows[start] = ({}, {}, False)
            self._note(start)
        elif window[2]:
            return ABSENT
        self.backend_reads += 1
        data = self._read(segment_prefix(self.partition, start // self._interval) + raw_key + window_suffix(start))
        found = window[0][raw_key] = ABSENT if data is None else self._decode_row(data)
        return found

    def _open(self, start: int) -> Window:
        """Return the window to put into, for a window start without a window in memory."""
        self._check_open()
        if start > self._floor:
            # A window that starts later than any put so far has no rows in the backend.
            window: Window = ({}, {}, start > self._observed)
            self._windows[start] = window
            self._note(start)
            if start > self._observed:
                self._advance(start)
            return window
        if self._expired(start):
            self.expired_puts += 1
        hidden = self._hidden.get(start)
        if hidden is None:
            hidden = self._hidden[start] = ({}, {}, True)
        return hidden

    def _advance(self, observed: int) -> None:
        self._observed = observed
        self._floor = floor = self._floor_at(observed)
        windows, starts = self._windows, self._starts
        while starts and starts[0] <= floor:
            expired = heappop(starts)
            self._in_heap.discard(expired)
            windows.pop(expired, None)

    def _floor_at(self, observed: int) -> int:
        """Return the largest window start that is no longer read at a stream time."""
        return observed - self.retention_ms

    def _note(self, start: int) -> None:
        """Schedule the removal of a window at its expiry, once per window, even if it is evicted and read again."""
        if start not in self._in_heap:
            self._in_heap.add(start)
            heappush(self._starts, start)

    def _expired(self, start: int) -> bool:
        """Return whether a put to this window start is rejected."""
        return start // self._interval < self._first_live_segment() if self.persistent else start <= self._floor

    def _first_live_segment(self) -> int:
        return first_live_segment(self._observed, self.retention_ms)

    def _decode_row(self, data: bytes) -> Entry:
        timestamp = -1
        if self.timestamped:
            (timestamp,) = unpack_timestamp(data)
            data = data[TIMESTAMP_LENGTH:]
        return (self.value_serde.deserialize(data) if self.value_serde.immutable else data), timestamp

    # For the runtime

    def flush(self, out: list[Produced]) -> None:
        """Turn staged writes into rows and changelog records (appended to `out`); call a cache's listener."""
        touched = self._touched.copy()
        self._touched.clear()
        self._hidden.clear()
        if touched:
            start, (entries, dirty, _) = touched[-1]
            self._entry_size.sample((key, entries[key]) for key in dirty)
        written = len(self._flushed)
        serde = self.value_serde
        changed: list[tuple[int, dict[bytes, Change]]] = []
        forwarded = False
        for start, (entries, dirty, _) in touched:
            if self.caching:
                changes = changed_since_flush(dirty, has_listener=self._listener is not None)
                changed.append((start, changes))
                if len(changes) < _FEW and len(touched) > 1:
                    few = [(key, data, new, timestamp) for key, (_, _, data, new, timestamp, _) in changes.items()]
                    self._encode_few(out, start, few)
                    continue
                of_window = changes.values()
                data, timestamps = encoded_changes(of_window, serde), list(map(timestamp_of, of_window))
                self._encode(out, start, list(changes), data, timestamps)
                if len(touched) == 1 and not self._dirty_headers and not self._dirty_origins:
                    window = start, min(start + self.window_size_ms, _MAX_LONG)
                    forwarded = self._forward_columns(list(changes), of_window, data, timestamps, window)
            elif len(dirty) < _FEW:
                few = [(key, data, *entries[key]) for key, data in dirty.items()]
                dirty.clear()
                self._encode_few(out, start, few)
            else:
                raw_keys, data = list(dirty), list(dirty.values())
                dirty.clear()
                found = list(map(entries.__getitem__, raw_keys))
                data = encode_missing(data, list(map(_value, found)), serde.serialize)
                self._encode(out, start, raw_keys, data, list(map(_timestamp, found)))
        if not forwarded:
            forward_window_changes(
                self._listener,
                self._context,
                changed,
                size_ms=self.window_size_ms,
                headers=self._dirty_headers,
                origins=self._dirty_origins,
                order=self._order,
                decode=None if serde.immutable else serde.deserialize,
            )
        self._row_size.sample(self._flushed[written : written + 16])
        # Later puts, which may advance stream time, belong to the next commit.
        self._sweep(self._flushed)
        self._flushed_metadata = self._encode_metadata()

    def _encode(
        self,
        out: list[Produced],
        start: int,
        raw_keys: list[bytes],
        data: list[bytes | None],
        timestamps: list[int],
    ) -> None:
        encode_entries(
            raw_keys,
            data,
            timestamps,
            timestamped=self.timestamped,
            topic=self.changelog_topic,
            partition=self.partition,
            prefix=segment_prefix(self.partition, start // self._interval),
            suffix=window_suffix(start),
            out=out,
            # Rejected puts are logged, too, as in Kafka Streams, whose restore rejects them again.
            rows=Rows() if self._expired(start) else self._flushed,
        )

    def _encode_few(self, out: list[Produced], start: int, entries: list[tuple[bytes, bytes | None, Any, int]]) -> None:
        encode_few(
            entries,
            self.value_serde.serialize,
            timestamped=self.timestamped,
            topic=self.changelog_topic,
            partition=self.partition,
            prefix=segment_prefix(self.partition, start // self._interval),
            suffix=window_suffix(start),
            out=out,
            rows=[] if self._expired(start) else self._flushed,
        )

    def seal(self) -> Rows:
        """Return the rows flushed since the last seal, and the deletions of segments that expired until then."""
        self._sealed_metadata = self._flushed_metadata
        return super().seal()

    def _sweep(self, rows: Rows) -> None:
        live = self._first_live_segment()
        if live > self._swept:
            partition = self.partition
            rows.ranges.append((segment_prefix(partition, self._swept), segment_prefix(partition, live)))
            self._swept = live

    def metadata(self) -> bytes:
        """Return the stream time as of the last `seal` or `restore`, encoded."""
        return self._sealed_metadata

    def _encode_metadata(self) -> bytes:
        metadata = {"observed_stream_time": self._observed}
        if self.incomplete_until >= 0:
            metadata["incomplete_until"] = self.incomplete_until
        return msgspec.msgpack.encode(metadata)

    def _load_metadata(self) -> None:
        written = self._backend.metadata(self.name, self.partition)
        metadata = msgspec.msgpack.decode(written, type=dict[str, int]) if written else {}
        self.incomplete_until = max(self.incomplete_until, metadata.get("incomplete_until", -1))
        self._observed = metadata.get("observed_stream_time", -1)
        self._floor = self._floor_at(self._observed)
        self._known_from = self._observed + 1
        # The commit that wrote this stream time deleted the segments below this one.
        self._swept = self._first_live_segment()
        self._flushed_metadata = self._sealed_metadata = self._encode_metadata()

    def revert(self) -> None:
        """Go back to the backend's rows and stream time."""
        self._discard_entries()
        self._flushed = Rows()
        self._sealed = Rows()
        self._load_metadata()

    def restore(self, records: Iterable[ChangelogRecord]) -> Rows:
        """Return the backend rows of changelog records, to write with their offset and `metadata()`; skip null keys.

        Stream time is taken from the whole batch first, so that segments that have expired by its end are not restored.
        Live segments keep expired windows, which reads do not return. So the rows do not depend on the batches of
        records.
        """
        self._discard_entries()
        split = [
            (key, split_window_key(key)[1], value, timestamp) for key, value, timestamp, _ in records if key is not None
        ]
        newest = max((start for _, start, _, _ in split), default=-1)
        if newest > self._observed:
            self._advance(newest)
        self._known_from = self._observed + 1
        row = window_rows(self.partition, self.retention_ms, timestamped=self.timestamped)
        oldest = self._first_live_segment() * self._interval
        rows = Rows([row(key, value, timestamp, None) for key, start, value, timestamp in split if start >= oldest])
        self._sweep(rows)
        self._flushed_metadata = self._sealed_metadata = self._encode_metadata()
        return rows

    def close(self) -> None:
        """Discard everything in memory; nothing is written."""
        super().close()
        self._discard_entries()

    def _discard_entries(self) -> None:
        self._windows.clear()
        self._starts.clear()
        self._in_heap.clear()
        self._hidden.clear()
        self._touched.clear()
        self._dirty_headers.clear()
        self._dirty_origins.clear()
        self._order.clear()

    def _evict(self, count: int) -> None:
        uncommitted = self._uncommitted_rows()
        for start in list(self._windows):
            entries, dirty, _ = self._windows[start]
            if not entries:
                continue
            prefix, suffix = segment_prefix(self.partition, start // self._interval), window_suffix(start)
            clean = (key for key in entries if key not in dirty and prefix + key + suffix not in uncommitted)
            victims = list(islice(clean, count))
            if len(victims) == len(entries):
                del self._windows[start]
            elif victims:
                for key in victims:
                    del entries[key]
                # The same dicts, since `_touched` may refer to them.
                self._windows[start] = (entries, dirty, False)
            count -= len(victims)
            if count <= 0:
                return

    def _dirty_count(self) -> int:
        return sum(len(dirty) for _, (_, dirty, _) in self._touched)

    def _entry_count(self) -> int:
        return sum(len(entries) for entries, _, _ in self._windows.values())

    def _some_entries(self) -> Iterable[object]:
        return (entry for entries, _, _ in self._windows.values() for entry in entries.items())

    # Reading in the order of the rows' keys: segment by segment

    def _staged_between(self, first: int, last: int) -> dict[bytes, Entry]:
        """Return uncommitted entries with first <= window start <= last, by full row key."""
        staged: dict[bytes, Entry] = {}
        windows = self._windows
        for key in self._uncommitted_rows():
            raw_key, start, _ = split_window_key(key, ROW_PREFIX_LENGTH)
            if first <= start <= last:
                staged[key] = windows[start][0][raw_key]
        for start, (entries, dirty, _) in self._touched:
            if first <= start <= last:
                prefix, suffix = segment_prefix(self.partition, start // self._interval), window_suffix(start)
                for raw_key in dirty:
                    staged[prefix + raw_key + suffix] = entries[raw_key]
        return staged

    def _scan(  # queries call it, too
        self,
        key_from: bytes | None,
        key_to: bytes | None,
        first: int,
        last: int,
        reverse: bool,  # noqa: FBT001  # always given
    ) -> Iterator[tuple[bytes, int, Entry]]:
        """Return raw key, window start and live entry for ranges of keys and of starts (inclusive), as of now."""
        self._check_open()
        first = max(first, self._floor + 1, 0)
        last = min(last, self._observed)
        if last < first or (key_from is not None and key_to is not None and key_from > key_to):
            return iter(())
        committed = self._committed(key_from, key_to, first, last, reverse=reverse)
        rows = merge(committed, self._staged_between(first, last), reverse=reverse)
        return self._live(rows, key_from, key_to, first, last)

    def _committed(
        self, key_from: bytes | None, key_to: bytes | None, first: int, last: int, *, reverse: bool
    ) -> Iterator[tuple[bytes, bytes]]:
        """Return the backend's rows for a range of starts and from a key on; for one key, only its rows."""
        partition, interval = self.partition, self._interval
        segments = range(first // interval, last // interval + 1)
        one_key = key_from is not None and key_from == key_to
        found: list[Iterator[tuple[bytes, bytes]]] = []
        for segment in reversed(segments) if reverse else segments:
            prefix = segment_prefix(partition, segment)
            if one_key and key_from is not None:
                low = prefix + key_from + window_suffix(first)
                high = prefix + key_from + window_suffix(last, MAX_SEQUENCE) + b"\0"
            else:
                low = prefix if key_from is None else prefix + key_from
                high = segment_prefix(partition, segment + 1)
            found.append(self._backend.range(self.name, low, high, reverse=reverse))
        return (row for rows in found for row in rows)

    def _live(
        self,
        rows: Iterator[tuple[bytes, bytes | Entry]],
        key_from: bytes | None,
        key_to: bytes | None,
        first: int,
        last: int,
    ) -> Iterator[tuple[bytes, int, Entry]]:
        decode, immutable = self.value_serde.deserialize, self.value_serde.immutable
        for key, row in rows:
            raw_key, start, _ = split_window_key(key, ROW_PREFIX_LENGTH)
            if start < first or start > last:
                continue
            if (key_from is not None and raw_key < key_from) or (key_to is not None and raw_key > key_to):
                continue
            value, timestamp = self._decode_row(row) if isinstance(row, bytes) else row
            if value is not None:
                yield raw_key, start, (value if immutable else decode(value), timestamp)
