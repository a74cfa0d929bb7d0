"""Measures the worker's load, at most once a second, from counters that are kept per batch anyway."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Protocol

import msgspec
from confluent_kafka import KafkaException, TopicPartition

from millpond.protocol.loads import InputLoad, TaskLoad, WorkerLoad
from millpond.runtime.http.metrics import WorkerMetrics
from millpond.runtime.kafka.end_offsets import EndOffsetCallback, EndOffsets, EndOffsetSource
from millpond.runtime.offsets.completeness import Moment
from millpond.runtime.offsets.metadata import Partition
from millpond.runtime.processing.record_queue import RecordQueue
from millpond.runtime.processing.stream_task import StreamTask
from millpond.topology import TaskId

__all__ = ("EndReader", "LoadMeter")

log: logging.Logger = logging.getLogger(__name__)

_INTERVAL_S = 1.0
#: Sizes on disk change slowly, and asking for them takes longer than reading counters.
_DISK_INTERVAL_S = 10.0
#: While the client has enough records to process it does not fetch, and its ends of partitions become out of date. The
#: ends of such partitions are requested at this interval.
_END_INTERVAL_S = 5.0


#: The inputs of a heartbeat's load take at most about this much: the coordinator drops load of more than 128 KiB of
#: inputs, and rejects heartbeats above 256 KiB plus 384 bytes per task (1 MiB while it does not know the topology).
_MAX_INPUT_BYTES, _INPUT_BYTES = 96 * 1024, 64


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
        ends: requests the ends of partitions.
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
        ends: EndOffsetSource,
        directory: Path,
        now_ms: Callable[[], int],
    ) -> None:
        self.latest: WorkerLoad | None = None
        self._metrics = metrics
        self._running = running
        self._consumer = consumer
        self._now = 0.0
        self._ends = EndOffsets(ends, _END_INTERVAL_S, lambda: Moment(self._now, now_ms()))
        #: The end of each partition that is not read to its end, and when it was seen first, in monotonic seconds.
        self._seen: dict[Partition, tuple[int, float]] = {}
        self._requested: dict[Partition, int] = {}
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
            self._now = now
            self.latest = self._measured()

    def _measured(self) -> WorkerLoad:
        now = self._now
        if now >= self._next_disk:
            self._next_disk = now + _DISK_INTERVAL_S
            self._sizes = self._disk()
        self._ends.poll(self._outdated)
        before, self._created_with = self._created_with, {}
        seen, self._seen = self._seen, {}
        tasks = {}
        for task in self._running():
            known = before.get(task.id)
            # A task is created again when the worker goes back to its last commit: its own counters begin at zero.
            base = known[1] if known is not None and known[0] is task else self._last.get(task.id, TaskLoad())
            self._created_with[task.id] = task, base
            tasks[str(task.id)] = self._last[task.id] = self._task(task, base, seen)
        state, volume, free = self._sizes
        return WorkerLoad(
            measured_ms=int(now * 1000),
            busy_ms=int(self._metrics.busy_seconds * 1000),
            processed=self._metrics.records_processed,
            tasks=_bounded(tasks),
            state_bytes=state,
            volume_bytes=volume,
            volume_free_bytes=free,
        )

    def _outdated(self) -> dict[Partition, EndOffsetCallback]:
        """Return the partitions whose end may be out of date, each with the function that notes the end."""

        def note(partition: Partition, _requested_at: Moment, end: int) -> None:
            self._requested[partition] = end

        return {
            partition: partial(note, partition)
            for partition, (_, since) in self._seen.items()
            if self._now - since >= _END_INTERVAL_S
        }

    def _task(self, task: StreamTask, base: TaskLoad, seen: Mapping[Partition, tuple[int, float]]) -> TaskLoad:
        inputs = {}
        for topic, queue in task.inputs.items():
            earlier = base.inputs.get(topic)
            consumed = queue.consumed - queue.buffered + (0 if earlier is None else earlier.consumed)
            partition = Partition(topic, task.id.partition)
            end = self._end(queue, partition)
            if end is None or (queue.at_end and not queue.chunks):
                self._requested.pop(partition, None)
            else:
                before = seen.get(partition, (-1, self._now))
                self._seen[partition] = before if before[0] == end else (end, self._now)
                end = max(end, self._requested.get(partition, -1))
            inputs[topic] = InputLoad(consumed, _lag(queue, end))
        latest = task.latest_timestamp
        return TaskLoad(
            processed=base.processed + task.processed,
            inputs=inputs,
            latency_ms=None if latest < 0 else max(0, self._now_ms() - latest),
        )

    def _end(self, queue: RecordQueue, partition: Partition) -> int | None:
        """Return the end of a partition as far as the consumer knows it without a request; None while unknown."""
        if queue.at_end:
            # Behind this there are only transaction markers and open transactions.
            return queue.fetch_position
        try:
            # The broker adds the end to each answer to a fetch.
            offsets = self._consumer.get_watermark_offsets(
                TopicPartition(partition.topic, partition.partition), cached=True
            )
        except KafkaException:  # not assigned yet, after the consumer was replaced
            return None
        return None if offsets is None or offsets[1] < 0 else offsets[1]

    def _disk(self) -> tuple[int, int, int]:
        """Return the size of the state directory, and the size and the free space of its file system, in bytes."""
        state = _bytes_in(self._directory)
        try:
            volume = os.statvfs(self._directory)
        except OSError as error:
            log.debug("state directory: cannot read the size of its file system: %s", error)
            return state, 0, 0
        return state, volume.f_blocks * volume.f_frsize, volume.f_bavail * volume.f_frsize


def _bytes_in(directory: Path) -> int:
    """Return the size of all files in a directory, in bytes. Files that are deleted meanwhile are passed over."""
    size = 0
    for folder, _, names in os.walk(directory):
        for name in names:
            with suppress(OSError):
                size += os.stat(os.path.join(folder, name), follow_symlinks=False).st_size  # noqa: PTH116, PTH118 - many files
    return size


def _bounded(tasks: dict[str, TaskLoad]) -> dict[str, TaskLoad]:
    """Return the tasks; with very many inputs, those of each task are summed up as the input ""."""
    size = sum(_INPUT_BYTES + len(topic) for task in tasks.values() for topic in task.inputs)
    if size <= _MAX_INPUT_BYTES:
        return tasks
    return {
        name: msgspec.structs.replace(task, inputs={"": _sum(task.inputs.values())}) for name, task in tasks.items()
    }


def _sum(inputs: Collection[InputLoad]) -> InputLoad:
    lags = [each.lag for each in inputs]
    known = [lag for lag in lags if lag is not None]
    return InputLoad(sum(each.consumed for each in inputs), sum(known) if len(known) == len(lags) else None)


def _lag(queue: RecordQueue, end: int | None) -> int | None:
    """Return the number of records that a task has not processed; None while the end is unknown."""
    return None if end is None else queue.buffered + max(0, end - max(queue.fetch_position, 0))
