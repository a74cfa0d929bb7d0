"""The context of one task: the current record, stream time and the outbox.

Each task has one mutable object, and no record has its own: the task's loop sets `message`, and topic, partition and
offset are derived when they are read.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast

from confluent_kafka import Message

from millpond.drops import Drop
from millpond.errors import TopologyError
from millpond.serdes import Serde
from millpond.state import RecordContext
from millpond.topology import TaskId
from millpond.topology.user_metrics import TaskMetrics, UserMetrics

from .drop_log import DropLog, Failure, LateForJoin, LateWindow

__all__ = ("Outgoing", "TaskContext", "headers_of", "wall_clock_ms")

Headers = list[tuple[str, bytes | None]]

#: An output record, in the order of the positional arguments of `Producer.produce`:
#: (topic, value, key, partition or -1, on_delivery, None, timestamp[, headers]).
Outgoing = tuple[Any, ...]


def headers_of(message: Message) -> Headers | None:
    """Return the headers of a consumed record; the client returns a list."""
    return cast("Headers | None", message.headers())


def wall_clock_ms() -> int:
    """Return the wall-clock time in epoch milliseconds."""
    return time.time_ns() // 1_000_000


class TaskContext:
    """The state that the nodes of one task share.

    Attributes:
        task_id: the task's id.
        application_id: the application's id, the prefix of its internal topics.
        message: the source record that is being processed; None in punctuators and flushes.
        origin: the source record of a forwarded record if it is not `message`, as for a flushed cache or a suppressed
            change.
        headers: the headers of a forwarded record; None without headers.
        stream_time: the highest timestamp processed, in epoch milliseconds; -1 if unknown.
        timestamp: the timestamp of the current record, in epoch milliseconds.
        config: all settings by key.
        outbox: output records since the last drain.
        commit_requested: whether a processor requested a commit.
        dropped: number of records dropped by operators and handlers.
        drops: number of them by reason, and of those that Kafka Streams does not count.
        released: whether a record that waited, whose source position is unknown, is being forwarded.
        latest: whether the change that is being forwarded is the latest of its key; false only below versioned stores.
        late: number of records that came after their window had closed, and of those that a join of two streams was
            ahead of, which do not count as dropped.
        failed: number of those that a handler dropped after an error.
        dead_letters: number of records sent to dead-letter topics.
        metrics: what its processors record.
        key_serde: the default serde of keys; None without one.
        value_serde: the default serde of values; None without one.
    """

    __slots__ = (
        "_directory",
        "_drop_log",
        "_now",
        "_unjoined",
        "application_id",
        "commit_requested",
        "config",
        "dead_letters",
        "dropped",
        "drops",
        "failed",
        "headers",
        "key_serde",
        "late",
        "latest",
        "message",
        "metrics",
        "origin",
        "outbox",
        "released",
        "stream_time",
        "task_id",
        "timestamp",
        "value_serde",
    )

    def __init__(  # noqa: PLR0913 - the environment makes it
        self,
        task_id: TaskId,
        application_id: str,
        config: Mapping[str, object],
        outbox: list[Outgoing],
        now_ms: Callable[[], int] = wall_clock_ms,
        *,
        key_serde: Serde[Any] | None = None,
        value_serde: Serde[Any] | None = None,
        directory: Callable[[TaskId], Path] | None = None,
        metrics: UserMetrics | None = None,
        drop_log: DropLog | None = None,
    ) -> None:
        self.task_id: TaskId = task_id
        self.application_id: str = application_id
        self.config: Mapping[str, object] = config
        self.outbox: list[Outgoing] = outbox
        self.message: Message | None = None
        self.origin: Message | RecordContext | None = None
        self.headers: Headers | None = None
        self.latest: bool = True
        self.released: bool = False
        self.stream_time: int = -1
        self.timestamp: int = -1
        self.commit_requested: bool = False
        self.dropped: int = 0
        self.drops: dict[Drop, int] = dict.fromkeys(Drop, 0)
        self._drop_log = DropLog() if drop_log is None else drop_log
        self.late: int = 0
        self.failed: int = 0
        self.dead_letters: int = 0
        self.metrics: TaskMetrics = TaskMetrics(UserMetrics() if metrics is None else metrics)
        self.key_serde: Serde[Any] | None = key_serde
        self.value_serde: Serde[Any] | None = value_serde
        self._directory = directory
        self._now = now_ms
        self._unjoined: Message | None = None

    @property
    def topic(self) -> str | None:
        """The topic of the current record, by its name in Kafka; None without a record."""
        source = self.message if self.origin is None else self.origin
        return None if source is None else source.topic if isinstance(source, RecordContext) else source.topic()

    @property
    def partition(self) -> int:
        """The partition of the current record; the task's without a record."""
        source = self.message if self.origin is None else self.origin
        if source is None:
            return self.task_id.partition
        return source.partition if isinstance(source, RecordContext) else int(source.partition() or 0)

    @property
    def offset(self) -> int:
        """The offset of the current record; -1 without a record."""
        source = self.message if self.origin is None else self.origin
        if source is None:
            return -1
        return source.offset if isinstance(source, RecordContext) else int(source.offset() or 0)

    def drop(self, node: str, reason: Drop, window: LateWindow | None = None, *, counted: bool = True) -> None:
        """Count the current record as one that a node dropped; a log line tells of it once per period."""
        self.dropped += counted
        self.drops[reason] += 1
        if reason is Drop.LATE:
            self.late += 1
        elif reason is Drop.FAILED:
            self.failed += 1
        self._drop_log.note(node, reason, self, window)

    def drop_failed(self, node: str, failure: Failure, cause: str, place: str) -> None:
        """Count a record on which an exception handler gave up; a log line tells of it once per period and cause."""
        self.drop(node, Drop.FAILED)
        self._drop_log.note_failed(node, failure, cause, place, self.now_ms())

    def unjoined(self, join: str, late_ms: int) -> None:
        """Count the current record, once, as too late for a join; a log line tells of it once per period."""
        if self.message is not None and self.message is self._unjoined:
            return
        self._unjoined = self.message
        self.drops[Drop.LATE_FOR_JOIN] += 1
        self.late += 1
        self._drop_log.note(join, Drop.LATE_FOR_JOIN, self, LateForJoin(late_ms))

    def state_dir(self) -> Path:
        """Return the task's directory for files of the application, which is made if it does not exist.

        Raises:
            TopologyError: there is no such directory here.
        """
        if self._directory is None:
            raise TopologyError("there is no directory for state here; a running worker and the test driver have one.")
        path = self._directory(self.task_id)
        path.mkdir(parents=True, exist_ok=True)
        return path

    def now_ms(self) -> int:
        """Return the wall-clock time in epoch milliseconds; under the `TopologyTestDriver`, its mock time."""
        return self._now()

    def request_commit(self) -> None:
        """Request a commit as soon as the current batch is processed."""
        self.commit_requested = True
