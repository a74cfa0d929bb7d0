"""The times that both sides of a left or outer stream-stream join share."""

from __future__ import annotations

from typing import Any

from millpond.state import OuterJoinStore
from millpond.topology import NodeContext, TaskContext

__all__ = ("EMIT_INTERVAL", "TimeTracker", "time_tracker")

STREAM_TIME = "stream_time"

EMIT_INTERVAL = "__emit.interval.ms.kstreams.outer.join.spurious.results.fix__"
"""Kafka Streams' internal setting: the shortest time between two searches for records whose windows have closed.

In milliseconds of wall-clock time.
"""

_DEFAULT_EMIT_INTERVAL_MS = 1000


class TimeTracker:
    """The times that both sides of a join share in one task.

    Attributes:
        stream_time: the largest time of the records of both sides, in epoch ms; -1 before the first one.
        next_emit_ms: the wall-clock time before which no records are searched for whose windows have closed.
        emit_interval_ms: the time between two such searches.
    """

    __slots__ = ("emit_interval_ms", "next_emit_ms", "stream_time", "task")

    def __init__(self, task: TaskContext) -> None:
        self.task: TaskContext = task
        self.stream_time: int = -1
        self.next_emit_ms: int = 0
        interval = task.config.get(EMIT_INTERVAL, _DEFAULT_EMIT_INTERVAL_MS)
        self.emit_interval_ms: int = interval if isinstance(interval, int) else _DEFAULT_EMIT_INTERVAL_MS


def time_tracker(node: NodeContext, store: OuterJoinStore[Any], *, right: bool) -> TimeTracker:
    """Return the times of a join in the task of one of its nodes; the right side's node commits the stream time.

    Args:
        node: the node of one of the sides.
        store: the store that both sides share.
        right: whether the node is that of the right side.
    """
    times = store.times
    if not isinstance(times, TimeTracker) or times.task is not node.task:
        times = store.times = TimeTracker(node.task)
    if right:
        restored = node.remember(STREAM_TIME, lambda: times.stream_time)
        if restored is not None:
            times.stream_time = restored
    return times
