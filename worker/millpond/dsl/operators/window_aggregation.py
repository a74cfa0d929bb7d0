"""Aggregations of a stream by key and window.

A record belongs to one window when windows tumble, to several when they hop; each window judges lateness for
itself: it takes records while its end lies after stream time minus grace. Stream time here is that of this
operator in this task, counts records of all keys, and is committed with the task's offsets, so that a restart
does not accept what was late before it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from millpond.dsl.windows import TimeWindows
from millpond.serdes import Windowed
from millpond.topology import NodeContext, StreamForward

from .guard import FATAL

__all__ = ("AggregateWindows", "CountWindows", "ReduceWindows")

#: f(key, value, old aggregate or None) -> new aggregate
_Step = Callable[[Any, Any, Any], Any]

STREAM_TIME = "stream_time"


@dataclass(frozen=True, slots=True)
class CountWindows:
    """How many records each key has had in each window; records without a value count too."""

    store: str
    windows: TimeWindows

    def bind(self, node: NodeContext) -> StreamForward:
        """The task's function."""
        if not self.windows.tumbling:
            return _hopping(node, self.store, self.windows, _count, copy_old=False)
        return _count_tumbling(node, self.store, self.windows)


@dataclass(frozen=True, slots=True)
class ReduceWindows:
    """`reducer(aggregate, value)` per key and window; the first value is the first aggregate."""

    store: str
    windows: TimeWindows
    reducer: Callable[[Any, Any], Any]
    send_old: bool

    def bind(self, node: NodeContext) -> StreamForward:
        """The task's function."""
        reducer = self.reducer

        def step(_key: Any, value: Any, aggregate: Any) -> Any:
            return value if aggregate is None else reducer(aggregate, value)

        return _bind(node, self.store, self.windows, step, send_old=self.send_old)


@dataclass(frozen=True, slots=True)
class AggregateWindows:
    """`aggregator(key, value, aggregate)` per key and window, starting from `initializer()`."""

    store: str
    windows: TimeWindows
    initializer: Callable[[], Any]
    aggregator: Callable[[Any, Any, Any], Any]
    send_old: bool

    def bind(self, node: NodeContext) -> StreamForward:
        """The task's function."""
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


def _count_tumbling(node: NodeContext, name: str, windows: TimeWindows) -> StreamForward:
    store = node.store(name)
    serialize, entry, stage = store.serialize_key, store.entry, store.stage_count
    forward, failed, dropped = node.forward, node.failed, node.dropped
    forwarding = not store.caching
    if store.caching:
        store.on_flush(forward)
    size = windows.size_ms
    open_for = size + windows.grace_ms
    stream_time = -1

    def count(key: Any, value: Any, timestamp: int) -> None:
        nonlocal stream_time
        if key is None:
            return dropped()
        if timestamp > stream_time:
            stream_time = timestamp
        start = timestamp - timestamp % size
        if start + open_for <= stream_time:
            return dropped()
        try:
            raw = serialize(key)
            old, then = entry(raw, start)
            if old is None:
                new = 1
            else:
                new = old + 1
                if then > timestamp:
                    timestamp = then
            stage(raw, start, key, new, timestamp, old)
        except FATAL:
            raise
        except Exception as error:
            return failed(error, key, value, timestamp)
        if forwarding:
            forward(Windowed(key, start, start + size), new, old, timestamp)

    restored = node.remember(STREAM_TIME, lambda: stream_time)
    if restored is not None:
        stream_time = restored
    return count


def _aggregate_tumbling(body: AggregateWindows, node: NodeContext) -> StreamForward:
    store, initializer, aggregator = node.store(body.store), body.initializer, body.aggregator
    serialize, entry, stage = store.serialize_key, store.entry, store.stage
    forward, failed, dropped = node.forward, node.failed, node.dropped
    forwarding = not store.caching
    # The aggregator may change the old aggregate in place; a second copy shows consumers what it was.
    copy_old = body.send_old and forwarding and not store.value_serde.immutable
    if store.caching:
        store.on_flush(forward)
    size = body.windows.size_ms
    open_for = size + body.windows.grace_ms
    stream_time = -1

    def aggregate(key: Any, value: Any, timestamp: int) -> None:
        nonlocal stream_time
        if key is None:
            return dropped()
        if timestamp > stream_time:
            stream_time = timestamp
        start = timestamp - timestamp % size
        if start + open_for <= stream_time:
            return dropped()
        try:
            raw = serialize(key)
            old, then = entry(raw, start)
            if old is None:
                new = aggregator(key, value, initializer())
                stage(raw, start, key, new, timestamp, None)
            else:
                new = aggregator(key, value, old)
                if copy_old:
                    old = entry(raw, start)[0]
                # A deletion has no timestamp of its own in the store: it gets that of its record.
                stage(raw, start, key, new, then if then > timestamp and new is not None else timestamp, old)
                if then > timestamp:
                    timestamp = then
        except FATAL:
            raise
        except Exception as error:
            return failed(error, key, value, timestamp)
        if forwarding:
            forward(Windowed(key, start, start + size), new, old, timestamp)

    restored = node.remember(STREAM_TIME, lambda: stream_time)
    if restored is not None:
        stream_time = restored
    return aggregate


def _hopping(node: NodeContext, name: str, windows: TimeWindows, step: _Step, *, copy_old: bool) -> StreamForward:
    store = node.store(name)
    serialize, entry, stage = store.serialize_key, store.entry, store.stage
    forward, failed, dropped = node.forward, node.failed, node.dropped
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
            return dropped()
        if timestamp > stream_time:
            stream_time = timestamp
        first = timestamp + reach
        first = first - first % advance if first > 0 else 0
        try:
            raw = serialize(key)
        except Exception as error:
            return failed(error, key, value, timestamp)
        for start in range(first, timestamp + 1, advance):
            if start + open_for <= stream_time:
                dropped()
                continue
            try:
                old, then = entry(raw, start)
                new = step(key, value, old)
                if old is not None and copy_old:
                    old = entry(raw, start)[0]
                then = timestamp if old is None or then < timestamp else then
                # A deletion has no timestamp of its own in the store: it gets that of its record.
                stage(raw, start, key, new, timestamp if new is None else then, old)
            except FATAL:
                raise
            except Exception as error:
                return failed(error, key, value, timestamp)
            if forwarding:
                forward(Windowed(key, start, start + size), new, old, then)

    restored = node.remember(STREAM_TIME, lambda: stream_time)
    if restored is not None:
        stream_time = restored
    return aggregate
