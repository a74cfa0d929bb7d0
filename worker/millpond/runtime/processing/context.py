"""The mutable context of one task: the record at hand, stream time, the outbox.

There is one of it per task and no per-record object: the task's loop moves `message` along, everything else
is derived when somebody asks.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, cast

from confluent_kafka import Message

from millpond.state import RecordContext
from millpond.topology import TaskId

__all__ = ("Outgoing", "TaskContext", "headers_of", "wall_clock_ms")

Headers = list[tuple[str, bytes | None]]

#: A record on its way out, in the order of `Producer.produce`'s positional arguments:
#: (topic, value, key, partition or -1, on_delivery, None, timestamp[, headers]).
Outgoing = tuple[Any, ...]


def headers_of(message: Message) -> Headers | None:
    """A consumed record's headers; the client gives them as a list."""
    return cast("Headers | None", message.headers())


def wall_clock_ms() -> int:
    """Epoch milliseconds."""
    return time.time_ns() // 1_000_000


class TaskContext:
    """What the nodes of one task share.

    Attributes:
        task_id: which task.
        application_id: the application's id, the prefix of its internal topics.
        message: the source record being processed; None in punctuators and flushes.
        origin: the source record of what is forwarded, where that is not `message`: a flushed cache or a suppressed change.
        headers: the headers a forwarded record carries, None for none.
        stream_time: the highest timestamp processed, epoch ms, -1 when unknown.
        timestamp: of the record at hand, epoch ms.
        config: application settings by name.
        outbox: records produced since the last drain.
        commit_requested: a processor asked for a commit.
        dropped: records dropped by operators and handlers.
    """

    __slots__ = (
        "_now",
        "application_id",
        "commit_requested",
        "config",
        "dropped",
        "headers",
        "message",
        "origin",
        "outbox",
        "stream_time",
        "task_id",
        "timestamp",
    )

    def __init__(
        self,
        task_id: TaskId,
        application_id: str,
        config: Mapping[str, object],
        outbox: list[Outgoing],
        now_ms: Callable[[], int] = wall_clock_ms,
    ) -> None:
        self.task_id = task_id
        self.application_id = application_id
        self.config = config
        self.outbox = outbox
        self.message: Message | None = None
        self.origin: Message | RecordContext | None = None
        self.headers: Headers | None = None
        self.stream_time = -1
        self.timestamp = -1
        self.commit_requested = False
        self.dropped = 0
        self._now = now_ms

    @property
    def topic(self) -> str | None:
        """The real topic of the record at hand, None when there is none."""
        source = self.message if self.origin is None else self.origin
        return None if source is None else source.topic if isinstance(source, RecordContext) else source.topic()

    @property
    def partition(self) -> int:
        """The partition of the record at hand; without one, the task's."""
        source = self.message if self.origin is None else self.origin
        if source is None:
            return self.task_id.partition
        return source.partition if isinstance(source, RecordContext) else int(source.partition() or 0)

    @property
    def offset(self) -> int:
        """The offset of the record at hand, -1 without one."""
        source = self.message if self.origin is None else self.origin
        if source is None:
            return -1
        return source.offset if isinstance(source, RecordContext) else int(source.offset() or 0)

    def now_ms(self) -> int:
        """Wall-clock time, epoch ms; the TopologyTestDriver's own clock inside a test."""
        return self._now()

    def request_commit(self) -> None:
        """Commit as soon as the batch at hand is through."""
        self.commit_requested = True
