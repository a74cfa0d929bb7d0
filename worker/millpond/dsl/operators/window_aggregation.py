"""The bodies of count, reduce and aggregate of a stream by key and window.

A record belongs to one tumbling window or to several hopping ones. A window takes records until stream time has reached
its end plus grace. Stream time is that of this operator in this task, over records of all keys. It is committed with
the task's offsets, so that a record that was late before a restart is late after it, too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from millpond.drops import Drop
from millpond.dsl.windows import TimeWindows
from millpond.serdes import Windowed
from millpond.topology import NodeContext, StreamForward

from .guard import FATAL

__all__ = ("AggregateWindows", "CountWindows", "ReduceWindows")

_Step = Callable[[Any, Any, Any], Any]
"""f(key, value, old aggregate or None) -> new aggregate."""

STREAM_TIME = "stream_time"


@dataclass(frozen=True, slots=True)
class CountWindows:
    """A body that counts the records of each key and window; records without a value count too."""

    store: str
    windows: TimeWindows

    def bind(self, node: NodeContext) -> StreamForward:
        """Return the function that one task calls for each record."""
        if not self.windows.tumbling:
            return _hopping(node, self.store, self.windows, _count, copy_old=False)
        return _count_tumbling(node, self.store, self.windows)


@dataclass(frozen=True, slots=True)
class ReduceWindows:
    """A body that calls `reducer(aggregate, value)` per key and window; the first value is the first aggregate."""

    store: str
    windows: TimeWindows
    reducer: Callable[[Any, Any], Any]
    send_old: bool

    def bind(self, node: NodeContext) -> StreamForward:
        """Return the function that one task calls for each record."""
        reducer = self.reducer

        def step(_key: Any, value: Any, aggregate: Any) -> Any:
            return value if aggregate is None else reducer(aggregate, value)

        return _bind(node, self.store, self.windows, step, send_old=self.send_old)


@dataclass(frozen=True, slots=True)
class AggregateWindows:
    """A body that calls `aggregator(key, value, aggregate)` per key and window, starting with `initializer()`."""

    store: str
    windows: TimeWindows
    initializer: Callable[[], Any]
    aggregator: Callable[[Any, Any, Any], Any]
    send_old: bool

    def bind(self, node: NodeContext) -> StreamForward:
        """Return the function that one task calls for each record."""
        if self.windows.tumbling:
            return _aggregate_tumbling(self, node)
        initializer, aggregator = self.initializer, self.aggregator

        def step(key: Any, value: Any, aggregate: Any) -> Any:
            return aggregator(key, value, initializer() if aggregate is None else aggregate)

        return _bind(node, self.store, self.windows, step, send_old=self.send_old)


def _count(_key: Any, _value: Any, aggregate: Any) -> Any:
    return 1 if aggregate is None else aggregate + 1


def _bind(node: NodeContext, store: str, windows: TimeWindows, step: _Step, *, send_old: bool) -> StreamForward:
    kept = node.store(store)
    copy_old = send_old and not kept.caching and not kept.value_serde.immutable
    return _hopping(node, store, windows, step, copy_old=copy_old)


def _count_tumbling(node: NodeContext, name: str, windows: TimeWindows) -> StreamForward:  # noqa: C901 - one flat function per record
    store = node.store(name)
    serialize, entry, stage = store.serialize_key, store.entry, store.stage_count
    forward, failed, dropped, late = node.forward, node.failed, node.dropped, node.late
    forwarding = not store.caching
    if store.caching:
        store.on_flush(forward)
    size = windows.size_ms
    open_for = size + windows.grace_ms
    stream_time = -1

    def count(key: Any, value: Any, timestamp: int) -> None:
        nonlocal stream_time
        if key is None:
            return dropped(Drop.NULL_KEY)
        if timestamp > stream_time:
            stream_time = timestamp
        start = timestamp - timestamp % size
        if start + open_for <= stream_time:
            return late(start, start + size, start + open_for, stream_time)
        try:
            raw = serialize(key)
            old, old_timestamp = entry(raw, start)
            if old is None:
                new = 1
            else:
                new = old + 1
                if old_timestamp > timestamp:
                    timestamp = old_timestamp
            stage(raw, start, key, new, timestamp, old)
        except FATAL:
            raise
        except Exception as error:  # noqa: BLE001 - user code raises anything
            return failed(error, key, value, timestamp)
        if forwarding:
            forward(Windowed(key, start, start + size), new, old, timestamp)

    restored = node.remember(STREAM_TIME, lambda: stream_time)
    if restored is not None:
        stream_time = restored
    return count


def _aggregate_tumbling(body: AggregateWindows, node: NodeContext) -> StreamForward:  # noqa: C901 - one flat function per record
    store, initializer, aggregator = node.store(body.store), body.initializer, body.aggregator
    serialize, entry, stage = store.serialize_key, store.entry, store.stage
    forward, failed, dropped, late = node.forward, node.failed, node.dropped, node.late
    forwarding = not store.caching
    # The aggregator may change the old aggregate in place; children get a second copy of it.
    copy_old = body.send_old and forwarding and not store.value_serde.immutable
    if store.caching:
        store.on_flush(forward)
    size = body.windows.size_ms
    open_for = size + body.windows.grace_ms
    stream_time = -1

    def aggregate(key: Any, value: Any, timestamp: int) -> None:
        nonlocal stream_time
        if key is None:
            return dropped(Drop.NULL_KEY)
        if timestamp > stream_time:
            stream_time = timestamp
        start = timestamp - timestamp % size
        if start + open_for <= stream_time:
            return late(start, start + size, start + open_for, stream_time)
        try:
            raw = serialize(key)
            old, old_timestamp = entry(raw, start)
            if old is None:
                new = aggregator(key, value, initializer())
                stage(raw, start, key, new, timestamp, None)
            else:
                new = aggregator(key, value, old)
                if copy_old:
                    old = entry(raw, start)[0]
                # The store keeps no timestamp of a deletion: it gets that of its record.
                stage(
                    raw,
                    start,
                    key,
                    new,
                    old_timestamp if old_timestamp > timestamp and new is not None else timestamp,
                    old,
                )
                if old_timestamp > timestamp:
                    timestamp = old_timestamp
        except FATAL:
            raise
        except Exception as error:  # noqa: BLE001 - user code raises anything
            return failed(error, key, value, timestamp)
        if forwarding:
            forward(Windowed(key, start, start + size), new, old, timestamp)

    restored = node.remember(STREAM_TIME, lambda: stream_time)
    if restored is not None:
        stream_time = restored
    return aggregate


def _hopping(  # noqa: C901 - one flat function per record
    node: NodeContext, name: str, windows: TimeWindows, step: _Step, *, copy_old: bool
) -> StreamForward:
    store = node.store(name)
    serialize, entry, stage = store.serialize_key, store.entry, store.stage
    forward, failed, dropped, late = node.forward, node.failed, node.dropped, node.late
    forwarding = not store.caching
    if store.caching:
        store.on_flush(forward)
    size, advance = windows.size_ms, windows.advance_ms
    open_for = size + windows.grace_ms
    reach = advance - size
    stream_time = -1

    def aggregate(key: Any, value: Any, timestamp: int) -> None:
        nonlocal stream_time
        if key is None:
            return dropped(Drop.NULL_KEY)
        if timestamp > stream_time:
            stream_time = timestamp
        first = timestamp + reach
        first = first - first % advance if first > 0 else 0
        try:
            raw = serialize(key)
        except Exception as error:  # noqa: BLE001 - user code raises anything
            return failed(error, key, value, timestamp)
        for start in range(first, timestamp + 1, advance):
            if start + open_for <= stream_time:
                late(start, start + size, start + open_for, stream_time)
                continue
            try:
                old, latest = entry(raw, start)
                new = step(key, value, old)
                if old is not None and copy_old:
                    old = entry(raw, start)[0]
                latest = timestamp if old is None or latest < timestamp else latest
                # The store keeps no timestamp of a deletion: it gets that of its record.
                stage(raw, start, key, new, timestamp if new is None else latest, old)
            except FATAL:
                raise
            except Exception as error:  # noqa: BLE001 - user code raises anything
                return failed(error, key, value, timestamp)
            if forwarding:
                forward(Windowed(key, start, start + size), new, old, latest)

    restored = node.remember(STREAM_TIME, lambda: stream_time)
    if restored is not None:
        stream_time = restored
    return aggregate
