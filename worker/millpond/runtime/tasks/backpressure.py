"""Back-pressure per partition: an input that is far ahead of the other inputs of its task is not fetched for a while.

After the client's pause(), resuming takes a second; unassigning the partition and assigning it again takes
milliseconds.
"""

from __future__ import annotations

from collections.abc import Iterable

from confluent_kafka import Consumer, TopicPartition

from millpond.runtime.offsets.metadata import Partition
from millpond.runtime.processing.stream_task import StreamTask

__all__ = ("BackPressure",)


class BackPressure:
    """The inputs that are currently unassigned, since too many of their records are buffered.

    Args:
        consumer: the consumer of the worker's inputs.
        limit: the number of records that may be buffered per partition (`buffered.records.per.partition`).
    """

    def __init__(self, consumer: Consumer, limit: int) -> None:
        self._consumer = consumer
        self._limit = limit
        self._detached: dict[Partition, StreamTask] = {}

    def balance(self, tasks: Iterable[StreamTask]) -> None:
        """Unassign partitions above the limit, and assign those below it again. Call it after processing.

        Only tasks with several inputs buffer records: they may have to wait for one of the inputs.
        """
        for task in tasks:
            if len(task.inputs) > 1:
                for topic, queue in task.inputs.items():
                    if queue.buffered > self._limit:
                        self._detach(Partition(topic, task.id.partition), task)
        if self._detached:
            self._reattach()

    def _detach(self, partition: Partition, task: StreamTask) -> None:
        if partition not in self._detached:
            self._consumer.incremental_unassign([TopicPartition(partition.topic, partition.partition)])
            self._detached[partition] = task

    def _reattach(self) -> None:
        for partition, task in list(self._detached.items()):
            queue = task.inputs[partition.topic]
            if queue.buffered <= self._limit:
                del self._detached[partition]
                self._consumer.incremental_assign(
                    [TopicPartition(partition.topic, partition.partition, queue.fetch_position)]
                )

    def forget(self, partitions: Iterable[Partition]) -> list[Partition]:
        """Forget partitions that are no longer read; return those that are still assigned."""
        return [each for each in partitions if self._detached.pop(each, None) is None]

    def clear(self) -> None:
        """Forget all partitions, which are about to be assigned again."""
        self._detached.clear()
