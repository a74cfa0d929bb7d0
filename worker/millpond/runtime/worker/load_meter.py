"""Measures the worker's load, at most once a second, from counters that are kept per batch anyway."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from confluent_kafka import KafkaException, TopicPartition

from millpond.protocol.loads import InputLoad, TaskLoad, WorkerLoad
from millpond.runtime.http.metrics import WorkerMetrics
from millpond.runtime.processing.record_queue import RecordQueue
from millpond.runtime.processing.stream_task import StreamTask
from millpond.topology import TaskId

__all__ = ("EndReader", "LoadMeter")

log: logging.Logger = logging.getLogger(__name__)

_INTERVAL_S = 1.0
#: Sizes on disk change slowly, and asking for them takes longer than reading counters.
_DISK_INTERVAL_S = 10.0


class EndReader(Protocol):
    """The part of a consumer that knows the ends of partitions from its fetches."""

    def get_watermark_offsets(
        self, partition: TopicPartition, timeout: float = ..., *, cached: bool = ...
    ) -> tuple[int, int]:
        """Return the first and the last offset of a partition; with `cached`, without a request."""


class LoadMeter:
    """The load of one worker. The worker's loop calls `turn`; any thread may read `latest`.

    Args:
        metrics: counts the records and the busy time of all tasks.
        running: returns the active tasks that run.
        consumer: reads the inputs.
        usage: returns the sizes of the state's files, as `StateFile.usage` does.
        directory: the state directory.
        now_ms: the wall clock, epoch milliseconds.

    Attributes:
        latest: the last measurement; None before the first.
    """

    def __init__(  # noqa: PLR0913 - the parts that it reads
        self,
        metrics: WorkerMetrics,
        running: Callable[[], Sequence[StreamTask]],
        consumer: EndReader,
        usage: Callable[[], Mapping[str, int]],
        directory: Path,
        now_ms: Callable[[], int],
    ) -> None:
        self.latest: WorkerLoad | None = None
        self._metrics = metrics
        self._running = running
        self._consumer = consumer
        self._usage = usage
        self._directory = directory
        self._now_ms = now_ms
        self._next = self._next_disk = 0.0
        self._sizes = 0, 0, 0
        #: The last load of each task that has run in this process.
        self._last: dict[TaskId, TaskLoad] = {}
        #: The tasks of the last measurement, each with its load when it was created.
        self._created_with: dict[TaskId, tuple[StreamTask, TaskLoad]] = {}

    def turn(self, now: float) -> None:
        """Measure if it is due.

        Args:
            now: monotonic seconds.
        """
        if now >= self._next:
            self._next = now + _INTERVAL_S
            self.latest = self._measured(now)

    def _measured(self, now: float) -> WorkerLoad:
        if now >= self._next_disk:
            self._next_disk = now + _DISK_INTERVAL_S
            self._sizes = self._disk()
        before, self._created_with = self._created_with, {}
        tasks = {}
        for task in self._running():
            known = before.get(task.id)
            # A task is created again when the worker goes back to its last commit: its own counters begin at zero.
            base = known[1] if known is not None and known[0] is task else self._last.get(task.id, TaskLoad())
            self._created_with[task.id] = task, base
            tasks[str(task.id)] = self._last[task.id] = self._task(task, base)
        state, volume, free = self._sizes
        return WorkerLoad(
            measured_ms=int(now * 1000),
            busy_ms=int(self._metrics.busy_seconds * 1000),
            processed=self._metrics.records_processed,
            tasks=tasks,
            state_bytes=state,
            volume_bytes=volume,
            volume_free_bytes=free,
        )

    def _task(self, task: StreamTask, base: TaskLoad) -> TaskLoad:
        inputs = {}
        for topic, queue in task.inputs.items():
            earlier = base.inputs.get(topic)
            consumed = queue.consumed - queue.buffered + (0 if earlier is None else earlier.consumed)
            inputs[topic] = InputLoad(consumed, self._lag(queue, task.id.partition))
        latest = task.latest_timestamp
        return TaskLoad(
            processed=base.processed + task.processed,
            inputs=inputs,
            latency_ms=None if latest < 0 else max(0, self._now_ms() - latest),
        )

    def _lag(self, queue: RecordQueue, partition: int) -> int | None:
        """Return the number of records from the position to the end; None while the end is unknown.

        At the end, only records in the queue count: behind them are transaction markers and open transactions.
        """
        if queue.at_end:
            return queue.buffered
        try:
            # Without a request: the broker adds the end to each answer to a fetch.
            offsets = self._consumer.get_watermark_offsets(TopicPartition(queue.topic, partition), cached=True)
        except KafkaException:  # not assigned yet, after the consumer was replaced
            return None
        if offsets is None or offsets[1] < 0:
            return None
        return queue.buffered + max(0, offsets[1] - max(queue.fetch_position, 0))

    def _disk(self) -> tuple[int, int, int]:
        """Return the size of the state, and the size and the free space of its file system, in bytes."""
        try:
            volume = os.statvfs(self._directory)
        except OSError as error:
            log.debug("state directory: cannot read the size of its file system: %s", error)
            return self._usage().get("sst_bytes", 0), 0, 0
        return self._usage().get("sst_bytes", 0), volume.f_blocks * volume.f_frsize, volume.f_bavail * volume.f_frsize
