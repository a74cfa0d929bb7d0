"""The body of count, reduce and aggregate of a stream by key and sliding window (KIP-450).

Every record has a left window, which ends with it, and a right window, which starts 1 ms after it and exists only once
it has a record. A new window's aggregate is taken from a window with the same records, so that no record is read twice.
The windows of a key are visited from the last one down, as in Kafka Streams, which decides the order of the changes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from millpond.drops import null_part
from millpond.dsl.operators.guard import FATAL
from millpond.dsl.windows import SlidingWindows
from millpond.serdes import Windowed
from millpond.state.unreadable_rows import reader_of
from millpond.topology import NodeContext, StreamForward

from .final_windows import final_results

__all__ = ("AggregateSlidingWindows",)

STREAM_TIME = "stream_time"

_Aggregate = tuple[Any, int]
"""An aggregate as the store keeps it, and the highest timestamp of its records, in ms."""

_Change = tuple[Windowed[Any], Any, Any, int]
"""Windowed key, new aggregate, old aggregate, timestamp in ms."""

_NEW: Any = object()
"""The aggregate of a window that is created by its first record."""

_Update = Callable[[bytes, Any, Any, int, int], None]
"""Changes the windows of a serialised key, its key and its value, for a timestamp and the lowest end of a window that
still takes records, both in ms."""


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
        changes: list[_Change] = []
        finals = final_results(node, store, self.windows) if self.final else None
        times = [] if finals is None else finals.times
        retention = store.retention_ms
        windows = _Windows(self, store, changes, late, None if finals is None else finals.note)
        early, usual = windows.early(), windows.usual()
        if store.caching:
            store.on_flush(forward)
        stream_time = -1

        def aggregate(key: Any, value: Any, timestamp: int) -> None:
            nonlocal stream_time
            if key is None or value is None:
                return dropped(null_part(key))
            if timestamp > stream_time:
                stream_time = timestamp
            close = stream_time - grace
            if timestamp + size < close:
                return late(timestamp, timestamp + size, timestamp + size + grace, stream_time)
            if finals is not None and times and times[0] < timestamp + 1 - retention:
                finals.save(timestamp + 1, close)
            try:
                if timestamp < size:
                    early(serialize(key), key, value, timestamp, close)
                else:
                    usual(serialize(key), key, value, timestamp, close)
            except FATAL:
                raise
            except Exception as error:  # noqa: BLE001 - user code raises anything
                send()
                return failed(error, key, value, timestamp)
            if changes:
                send()
            # As in Kafka Streams, a record that is earlier than the first whole window sends no results.
            if finals is not None and timestamp >= size:
                finals.check(close)

        def send() -> None:
            for change in changes:
                forward(*change)
            changes.clear()

        if finals is not None:
            node.holds_back(self.store, lambda: finals.waiting(stream_time, grace))
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
        changes: list[_Change],
        late: Callable[[int, int, int, int], None],
        note: Callable[[int, bytes], None] | None,
    ) -> None:
        self._body, self._store, self._late, self._note = body, store, late, note
        self._size = body.windows.size_ms
        self._decode = None if store.value_serde.immutable else reader_of(store)
        self._change = changes.append if not store.caching and note is None else None
        self._stage = store.stage_count if body.counting else store.stage

    def usual(self) -> _Update:  # noqa: C901 - one flat function per record
        """Return the function for records whose left window does not start before 0."""
        size, matches, store = self._size, self._store.matches, self._store
        put, create, copy = self._putting(), self._creating(), self._copying()
        final = self._note is not None

        def update(raw: bytes, key: Any, value: Any, timestamp: int, close: int) -> None:  # noqa: C901 - one pass over the windows
            found: list[int] = []
            left: Any = None
            right: _Aggregate | None = None
            left_exists = right_exists = False
            before: int | None = None  # the timestamp of the record before this one
            lowest = timestamp - 2 * size
            if final:
                lowest = max(lowest, store.visible_from)
            for start, kept, latest in reversed(matches(raw, lowest, timestamp + 1)):
                if kept is None:
                    continue  # deleted
                found.append(start)
                end = start + size
                if start > timestamp:
                    right_exists = True
                elif end > timestamp:
                    if right is None:
                        right = kept, latest
                    put(raw, key, value, timestamp, close, start, kept, latest)
                elif end == timestamp:
                    left_exists = True
                    put(raw, key, value, timestamp, close, start, kept, latest)
                    if latest >= timestamp:
                        return  # a record of the same time has created all windows
                    before = latest
                else:
                    left, before = kept, latest
                    break
            if before is not None and before + 1 + size >= timestamp and before + 1 not in found:
                create(raw, key, value, timestamp, close, before + 1, _NEW)
            if not left_exists:
                kept = left if before is not None and timestamp - size <= before else _NEW
                create(raw, key, value, timestamp, close, timestamp - size, kept)
            if not right_exists and right is not None and right[1] > timestamp:
                copy(raw, key, timestamp, right)

        return update

    def early(self) -> _Update:  # noqa: C901 - one flat function per record
        """Return the function for records before `size`: the left window would start before 0, and is [0, size]."""
        matches, store = self._store.matches, self._store
        put, create, copy = self._putting(), self._creating(), self._copying()
        final = self._note is not None

        def update(raw: bytes, key: Any, value: Any, timestamp: int, close: int) -> None:
            found: list[int] = []
            combined: _Aggregate | None = None
            right: _Aggregate | None = None
            right_exists = False
            before: int | None = None
            for start, kept, latest in matches(raw, store.visible_from if final else 0, timestamp + 1):
                if kept is None:
                    continue
                found.append(start)
                if start == 0:
                    combined = kept, latest
                    if latest < timestamp:
                        before = latest
                elif start <= timestamp:
                    right = kept, latest
                    put(raw, key, value, timestamp, close, start, kept, latest)
                else:
                    right_exists = True
            if right is None and combined is not None and combined[1] > timestamp:
                right = combined
            if not right_exists and right is not None and right[1] > timestamp:
                copy(raw, key, timestamp, right)
            if before is not None and before + 1 not in found:
                create(raw, key, value, timestamp, close, before + 1, _NEW)
            if combined is None:
                create(raw, key, value, timestamp, close, 0, _NEW)
            else:
                put(raw, key, value, timestamp, close, 0, *combined)

        return update

    def _putting(self) -> Callable[[bytes, Any, Any, int, int, int, Any, int], None]:
        """Return the function that adds a record to a window that exists."""
        size, stage, late, change, decode = self._size, self._stage, self._late, self._change, self._decode
        grace = self._body.windows.grace_ms
        aggregator, counting = self._body.aggregator, self._body.counting
        copies_old = self._body.send_old and change is not None and decode is not None

        def put(  # noqa: PLR0913 - the hot path
            raw: bytes, key: Any, value: Any, timestamp: int, close: int, start: int, kept: Any, latest: int, /
        ) -> None:
            if start + size < close:
                return late(start, start + size, start + size + grace, close + grace)
            old = kept if decode is None else decode(kept)
            result = old + 1 if counting else aggregator(key, value, old)
            if copies_old and decode is not None:
                old = decode(kept)  # since the aggregator may have changed its aggregate in place
            if latest < timestamp:
                latest = timestamp
            # The store keeps no timestamp of a deletion: it gets that of its record.
            stage(raw, start, key, result, timestamp if result is None else latest, old)
            if change is not None:
                change((Windowed(key, start, start + size), result, old, latest))

        return put

    def _creating(self) -> Callable[[bytes, Any, Any, int, int, int, Any], None]:
        """Return the function that creates a window for a record, with an aggregate of earlier records or `_NEW`."""
        size, stage, late, note, change = self._size, self._stage, self._late, self._note, self._change
        grace = self._body.windows.grace_ms
        initializer, aggregator, decode = self._body.initializer, self._body.aggregator, self._decode

        def create(  # noqa: PLR0913 - the hot path
            raw: bytes, key: Any, value: Any, timestamp: int, close: int, start: int, kept: Any, /
        ) -> None:
            aggregate = initializer() if kept is _NEW else kept if decode is None else decode(kept)
            if start + size < close:
                return late(start, start + size, start + size + grace, close + grace)
            result = aggregator(key, value, aggregate)
            stage(raw, start, key, result, timestamp, None)
            if note is not None:
                note(start, raw)
            if change is not None:
                change((Windowed(key, start, start + size), result, None, timestamp))

        return create

    def _copying(self) -> Callable[[bytes, Any, int, _Aggregate], None]:
        """Return the function that creates the right window of a record, with the aggregate of the records after it."""
        size, stage, note, change, decode = self._size, self._stage, self._note, self._change, self._decode

        def copy(raw: bytes, key: Any, timestamp: int, right: _Aggregate) -> None:
            start, (kept, latest) = timestamp + 1, right
            aggregate = kept if decode is None else decode(kept)
            stage(raw, start, key, aggregate, latest, None)
            if note is not None:
                note(start, raw)
            if change is not None:
                change((Windowed(key, start, start + size), aggregate, None, latest))

        return copy
