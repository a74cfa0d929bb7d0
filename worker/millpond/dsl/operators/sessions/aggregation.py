"""The bodies of count, reduce and aggregate of a stream by key and session.

A record merges all open sessions of its key that are at most one gap away from it. If the session changes by that, the
merged ones are removed first, and each removal is forwarded. A session takes records until stream time has passed its
end plus gap plus grace; after that, none joins it, however long its store keeps it, since it may have been sent as a
final result. Stream time is that of this operator in this task, over records of all keys. It is
committed with the task's offsets, so that a record that was late before a restart is late after it, too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from millpond.drops import Drop
from millpond.dsl.operators.guard import FATAL
from millpond.dsl.operators.lookup import Get, TimedGet
from millpond.dsl.sessions.windows import SessionWindows
from millpond.serdes import Windowed
from millpond.topology import Body, NodeContext, StreamForward, TableForward

from .final import AggregateFinalSessions

__all__ = (
    "AggregateSessions",
    "CountSessions",
    "ReduceSessions",
    "SessionLookup",
    "final_count",
    "final_reduce",
)

STREAM_TIME = "stream_time"

_Step = Callable[[Any, Any, Any], Any]
"""f(key, value, aggregate of the merged sessions) -> new aggregate."""

_Merge = Callable[[Any, Any, Any], Any]
"""f(key, one aggregate, aggregate of the next session) -> aggregate of both."""


@dataclass(frozen=True, slots=True)
class CountSessions:
    """A body that counts the records of each key and session; records without a value count too."""

    store: str
    windows: SessionWindows

    def bind(self, node: NodeContext) -> StreamForward:
        """Return the function that one task calls for each record."""
        store = node.store(self.store)
        return _bind(node, self.store, self.windows, lambda: 0, _count, _sum, stage=store.stage_count, copy_old=False)


def final_count(store: str, windows: SessionWindows) -> Body:
    """Return the body of a count that forwards each session once, after it has closed."""
    return AggregateFinalSessions(store, windows, int, _count, _sum, counting=True)


def final_reduce(store: str, windows: SessionWindows, reducer: Callable[[Any, Any], Any]) -> Body:
    """Return the body of a reduction that forwards each session once, after it has closed."""
    return AggregateFinalSessions(store, windows, _nothing, _reducing(reducer), _merging(reducer))


@dataclass(frozen=True, slots=True)
class ReduceSessions:
    """A body that calls `reducer(aggregate, value)` per key and session; the first value is the first aggregate."""

    store: str
    windows: SessionWindows
    reducer: Callable[[Any, Any], Any]
    send_old: bool

    def bind(self, node: NodeContext) -> StreamForward:
        """Return the function that one task calls for each record."""
        step, merge = _reducing(self.reducer), _merging(self.reducer)
        return _bind_copying(node, self.store, self.windows, _nothing, step, merge, send_old=self.send_old)


@dataclass(frozen=True, slots=True)
class AggregateSessions:
    """A body that starts with `initializer()`, merges sessions with `merger`, and calls `aggregator` for the record."""

    store: str
    windows: SessionWindows
    initializer: Callable[[], Any]
    aggregator: _Step
    merger: _Merge
    send_old: bool

    def bind(self, node: NodeContext) -> StreamForward:
        """Return the function that one task calls for each record."""
        return _bind_copying(
            node, self.store, self.windows, self.initializer, self.aggregator, self.merger, send_old=self.send_old
        )


@dataclass(frozen=True, slots=True)
class SessionLookup:
    """A lookup that reads a session store by windowed key."""

    store: str

    def bind(self, node: NodeContext) -> Get:
        """Return the function with which one task looks up a key."""
        store = node.store(self.store)
        serialize, entry = store.serialize_key, store.entry

        def get(windowed: Any) -> Any:
            return entry(serialize(windowed.key), windowed.start_ms, windowed.end_ms)

        return get

    def bind_timed(self, node: NodeContext) -> TimedGet:
        """Return the function with which one task looks up a key; the time of a session's value is its end."""
        get = self.bind(node)
        return lambda windowed: (get(windowed), windowed.end_ms)


def _without_headers(node: NodeContext) -> TableForward:
    """Return the function that forwards a change without its record's headers, as Kafka Streams does for sessions."""
    task, children = node.task, node.forward

    def forward(key: Any, new: Any, old: Any, timestamp: int) -> None:
        headers = task.headers
        if headers is None:
            return children(key, new, old, timestamp)
        task.headers = None
        try:
            children(key, new, old, timestamp)
        finally:
            task.headers = headers

    return forward


def _nothing() -> None:
    return None


def _reducing(reducer: Callable[[Any, Any], Any]) -> _Step:
    def step(_key: Any, value: Any, aggregate: Any) -> Any:
        return value if aggregate is None else reducer(aggregate, value)

    return step


def _merging(reducer: Callable[[Any, Any], Any]) -> _Merge:
    def merge(_key: Any, one: Any, other: Any) -> Any:
        return other if one is None else reducer(one, other)

    return merge


def _count(_key: Any, _value: Any, aggregate: Any) -> Any:
    return aggregate + 1


def _sum(_key: Any, one: Any, other: Any) -> Any:
    return one + other


def _bind_copying(  # noqa: PLR0913 - the functions of an aggregation
    node: NodeContext,
    name: str,
    windows: SessionWindows,
    initializer: Callable[[], Any],
    step: _Step,
    merge: _Merge,
    *,
    send_old: bool,
) -> StreamForward:
    store = node.store(name)
    # The merger may change an old aggregate in place; children get a second copy of it.
    copy_old = send_old and not store.caching and not store.value_serde.immutable
    return _bind(node, name, windows, initializer, step, merge, stage=store.stage, copy_old=copy_old)


def _bind(  # noqa: C901, PLR0913 - one flat function per record
    node: NodeContext,
    name: str,
    windows: SessionWindows,
    initializer: Callable[[], Any],
    step: _Step,
    merge: _Merge,
    *,
    stage: Callable[..., None],
    copy_old: bool,
) -> StreamForward:
    store = node.store(name)
    serialize, find = store.serialize_key, store.find
    failed, dropped, late = node.failed, node.dropped, node.late
    forward = _without_headers(node)
    forwarding = not store.caching
    if store.caching:
        store.on_flush(node.forward)
    gap = windows.gap_ms
    open_for = gap + windows.grace_ms
    stream_time = -1

    def aggregate(key: Any, value: Any, timestamp: int) -> None:  # noqa: C901 - one flat function per record
        nonlocal stream_time
        if key is None:
            return dropped(Drop.NULL_KEY)
        if timestamp > stream_time:
            stream_time = timestamp
        try:
            raw = serialize(key)
            new = initializer()
            start = end = timestamp
            closes = stream_time - open_for
            merged = find(raw, max(timestamp - gap, closes), timestamp + gap)
            for session in merged:
                new = merge(key, new, session[2])
                if session[1] < start:
                    start = session[1]
                if session[0] > end:
                    end = session[0]
            if end < closes:
                return late(start, end, end + open_for, stream_time)
        except FATAL:
            raise
        except Exception as error:  # noqa: BLE001 - user code raises anything
            return failed(error, key, value, timestamp)
        if start != end:
            if copy_old:
                merged = find(raw, max(timestamp - gap, closes), timestamp + gap)
            for session_end, session_start, old in merged:
                stage(raw, key, session_start, session_end, None, timestamp)
                if forwarding:
                    forward(Windowed(key, session_start, session_end), None, old, session_end)
        try:
            new = step(key, value, new)
            stage(raw, key, start, end, new, timestamp)
        except FATAL:
            raise
        except Exception as error:  # noqa: BLE001 - user code raises anything
            return failed(error, key, value, timestamp)
        if forwarding:
            forward(Windowed(key, start, end), new, None, end)

    restored = node.remember(STREAM_TIME, lambda: stream_time)
    if restored is not None:
        stream_time = restored
    return aggregate
