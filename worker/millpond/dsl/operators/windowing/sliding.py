"""The body of count, reduce and aggregate of a stream by key and sliding window (KIP-450).

Every record has a left window, which ends with it, and a right window, which starts 1 ms after it and exists only once
it has a record. A new window's aggregate is taken from a window with the same records, so that no record is read twice.
The windows of a key are visited from the last one down, as in Kafka Streams, which decides the order of the changes.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from millpond.dsl.operators.guard import FATAL
from millpond.dsl.windows import SlidingWindows
from millpond.serdes import Windowed
from millpond.topology import NodeContext, StreamForward

from .final_windows import final_results

__all__ = ("AggregateSlidingWindows",)

STREAM_TIME = "stream_time"

_Record = tuple[bytes, Any, Any, int, int, list[int]]
"""Serialised key, key, value, timestamp, the lowest end of a window that takes records, the starts of the windows."""

_Aggregate = tuple[Any, int]
"""An aggregate and the highest timestamp of its records, in ms."""


@dataclass(frozen=True, slots=True)
class AggregateSlidingWindows:
    """A body that calls `aggregator(key, value, aggregate)` per key and sliding window, starting with `initializer()`.

    Records without a key or a value are dropped.
    """

    store: str
    windows: SlidingWindows
    initializer: Callable[[], Any]
    aggregator: Callable[[Any, Any, Any], Any]
    send_old: bool
    final: bool = False
    """Whether only the final result of each window is forwarded."""
    counting: bool = False
    """Whether the aggregates are counts."""

    def bind(self, node: NodeContext) -> StreamForward:  # noqa: C901 - one flat function per record
        """Return the function that one task calls for each record."""
        store = node.store(self.store)
        forward, failed, dropped, late = node.forward, node.failed, node.dropped, node.late
        serialize = store.serialize_key
        size, grace = self.windows.size_ms, self.windows.grace_ms
        changes: list[tuple[Windowed[Any], Any, Any, int]] = []
        finals = final_results(node, store, self.windows) if self.final else None
        times = [] if finals is None else finals.times
        retention = store.retention_ms
        update = _Windows(self, store, changes, late, None if finals is None else finals.note)
        if store.caching:
            store.on_flush(forward)
        stream_time = -1

        def aggregate(key: Any, value: Any, timestamp: int) -> None:
            nonlocal stream_time
            if key is None or value is None:
                return dropped()
            if timestamp > stream_time:
                stream_time = timestamp
            close = stream_time - grace
            if timestamp + size < close:
                return late()
            if finals is not None and times and times[0] < timestamp + 1 - retention:
                finals.save(timestamp + 1, close)
            try:
                update(serialize(key), key, value, timestamp, close)
            except FATAL:
                raise
            except Exception as error:  # noqa: BLE001 - user code raises anything
                send()
                return failed(error, key, value, timestamp)
            send()
            # As in Kafka Streams, a record that is earlier than the first whole window sends no results.
            if finals is not None and timestamp >= size:
                finals.check(close)

        def send() -> None:
            for change in changes:
                forward(*change)
            changes.clear()

        restored = node.remember(STREAM_TIME, lambda: stream_time)
        if restored is not None:
            stream_time = restored
        return aggregate


class _Windows:
    """The windows of one task: it changes those that contain a record, and creates those that the record needs."""

    def __init__(
        self,
        body: AggregateSlidingWindows,
        store: Any,
        changes: list[tuple[Windowed[Any], Any, Any, int]],
        late: Callable[[], None],
        note: Callable[[int, bytes], None] | None,
    ) -> None:
        self._initializer, self._aggregator = body.initializer, body.aggregator
        self._size = body.windows.size_ms
        self._entry = store.entry
        self._stage_entry = store.stage_count if body.counting else store.stage
        self._starts_of = store.starts_of
        self._retention = store.retention_ms
        self._store = store
        self._changes = changes
        self._late = late
        self._note = note
        self._forwards = not store.caching and note is None
        self._mutable = not store.value_serde.immutable
        self._copies_old = body.send_old and self._forwards and self._mutable

    def __call__(self, raw: bytes, key: Any, value: Any, timestamp: int, close: int) -> None:
        """Change the windows of a key for a record; `close` is the lowest end of a window that still takes records."""
        starts = self._starts_of(raw)
        record = (raw, key, value, timestamp, close, starts)
        if timestamp < self._size:
            self._early(record, starts)
        else:
            self._usual(record, starts)

    def _usual(self, record: _Record, starts: list[int]) -> None:  # noqa: C901 - one pass over the windows
        raw, _, _, timestamp, _, _ = record
        size, entry = self._size, self._entry
        found: set[int] = set()
        left: Any = None
        right: _Aggregate | None = None
        left_exists = right_exists = False
        before: int | None = None  # the timestamp of the record before this one
        lowest = max(timestamp - 2 * size, self._store.visible_from)
        for start in reversed(starts[bisect_left(starts, lowest) : bisect_right(starts, timestamp + 1)]):
            value, latest = entry(raw, start)
            if value is None:
                continue  # deleted, or expired
            found.add(start)
            end = start + size
            if start == timestamp + 1:
                right_exists = True
            elif end > timestamp:
                if right is None:
                    # A copy, since the aggregator may change its aggregate in place.
                    right = entry(raw, start) if self._mutable else (value, latest)
                self._put(record, start, value, latest, new=False)
            elif end == timestamp:
                left_exists = True
                self._put(record, start, value, latest, new=False)
                if latest >= timestamp:
                    return  # a record of the same time has created all windows
                before = latest
            else:
                left, before = value, latest
                break
        if before is not None and before + 1 not in found and before + 1 + size >= timestamp:
            self._put(record, before + 1, self._initializer(), timestamp, new=True)
        if not left_exists:
            within = before is not None and timestamp - size <= before
            self._put(record, timestamp - size, left if within else self._initializer(), timestamp, new=True)
        if not right_exists and right is not None and right[1] > timestamp:
            self._copy(record, right)

    def _early(self, record: _Record, starts: list[int]) -> None:
        """Change the windows for a record before `size`: its left window would start before 0, and is [0, size]."""
        raw, _, _, timestamp, _, _ = record
        entry = self._entry
        found: set[int] = set()
        combined: _Aggregate | None = None
        right: _Aggregate | None = None
        right_exists = False
        before: int | None = None
        for start in starts[bisect_left(starts, self._store.visible_from) : bisect_right(starts, timestamp + 1)]:
            value, latest = entry(raw, start)
            if value is None:
                continue
            found.add(start)
            if start == 0:
                combined = value, latest
                if latest < timestamp:
                    before = latest
            elif start <= timestamp:
                right = entry(raw, start) if self._mutable else (value, latest)
                self._put(record, start, value, latest, new=False)
            else:
                right_exists = True
        if right is None and combined is not None and combined[1] > timestamp:
            right = entry(raw, 0) if self._mutable else combined
        if not right_exists and right is not None and right[1] > timestamp:
            self._copy(record, right)
        if before is not None and before + 1 not in found:
            self._put(record, before + 1, self._initializer(), timestamp, new=True)
        if combined is None:
            self._put(record, 0, self._initializer(), timestamp, new=True)
        else:
            self._put(record, 0, *combined, new=False)

    def _put(self, record: _Record, start: int, aggregate: Any, latest: int, *, new: bool) -> None:
        """Add the record to a window that has this aggregate."""
        raw, key, value, timestamp, close, _ = record
        if start + self._size < close:
            return self._late()
        result = self._aggregator(key, value, aggregate)
        old = None if new else self._entry(raw, start)[0] if self._copies_old else aggregate
        latest = max(latest, timestamp)
        # The store keeps no timestamp of a deletion: it gets that of its record.
        self._stage(record, start, result, timestamp if result is None else latest, old)
        if self._forwards:
            self._changes.append((Windowed(key, start, start + self._size), result, old, latest))

    def _copy(self, record: _Record, right: _Aggregate) -> None:
        """Create the right window of a record, with the aggregate of the records after it."""
        _, key, _, timestamp, _, _ = record
        start = timestamp + 1
        self._stage(record, start, right[0], right[1], None)
        if self._forwards:
            self._changes.append((Windowed(key, start, start + self._size), right[0], None, right[1]))

    def _stage(self, record: _Record, start: int, result: Any, latest: int, old: Any) -> None:
        raw, key, _, _, _, starts = record
        self._stage_entry(raw, start, key, result, latest, old)
        at = bisect_left(starts, start)
        if at < len(starts) and starts[at] == start:
            return
        starts.insert(at, start)
        expired = start - self._retention
        if starts[0] < expired:
            del starts[: bisect_left(starts, expired)]
        if self._note is not None:
            self._note(start, raw)
