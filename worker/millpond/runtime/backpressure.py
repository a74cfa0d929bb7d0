"""Back-pressure per partition: an input that is far ahead of the others of its task is not fetched for a while.

The client's pause() costs a second on resume; leaving the partition and coming back costs milliseconds.
"""

from __future__ import annotations

from confluent_kafka import Consumer, TopicPartition

from .ownership import Partition
from .task import StreamTask

__all__ = ("BackPressure",)


class BackPressure:
    """Which inputs are left alone at the moment.

    Args:
        consumer: the worker's.
        limit: records a partition may have waiting (`buffered.records.per.partition`).
    """

    def __init__(self, consumer: Consumer, limit: int) -> None:
        self._consumer = consumer
        self._limit = limit
        self._detached: dict[Partition, StreamTask] = {}

    def __len__(self) -> int:
        return len(self._detached)

    def added(self, partition: Partition, task: StreamTask) -> None:
        """Records came for the partition: leave it when that is more than it may have waiting."""
        queue = task.inputs[partition.topic]
        if queue.buffered > self._limit and len(task.inputs) > 1 and partition not in self._detached:
            self._consumer.incremental_unassign([TopicPartition(partition.topic, partition.partition)])
            self._detached[partition] = task

    def reattach(self) -> None:
        """Come back to the partitions that have room again, where their reading ended."""
        for partition, task in list(self._detached.items()):
            queue = task.inputs[partition.topic]
            if queue.buffered <= self._limit:
                del self._detached[partition]
                self._consumer.incremental_assign(
                    [TopicPartition(partition.topic, partition.partition, queue.fetch_position)]
                )

    def clear(self) -> None:
        """All partitions are assigned anew."""
        self._detached.clear()
