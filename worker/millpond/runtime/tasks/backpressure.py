"""Back-pressure per partition: an input that is far ahead of the others of its task is not fetched for a while.

The client's pause() costs a second on resume; leaving the partition and coming back costs milliseconds.
"""

from __future__ import annotations

from collections.abc import Iterable

from confluent_kafka import Consumer, TopicPartition

from millpond.runtime.offsets.metadata import Partition
from millpond.runtime.processing.stream_task import StreamTask

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

    def balance(self, tasks: Iterable[StreamTask]) -> None:
        """After processing: leave partitions that have more waiting than they may, come back to those with room.

        What is processed as it comes is never waiting, so only a task that waits for one of its inputs is concerned.
        """
        for task in tasks:
            if len(task.inputs) > 1:
                for topic, queue in task.inputs.items():
                    if queue.buffered > self._limit:
                        self._leave(Partition(topic, task.id.partition), task)
        if self._detached:
            self._come_back()

    def _leave(self, partition: Partition, task: StreamTask) -> None:
        if partition not in self._detached:
            self._consumer.incremental_unassign([TopicPartition(partition.topic, partition.partition)])
            self._detached[partition] = task

    def _come_back(self) -> None:
        for partition, task in list(self._detached.items()):
            queue = task.inputs[partition.topic]
            if queue.buffered <= self._limit:
                del self._detached[partition]
                self._consumer.incremental_assign(
                    [TopicPartition(partition.topic, partition.partition, queue.fetch_position)]
                )

    def forget(self, partitions: Iterable[Partition]) -> list[Partition]:
        """These partitions are given up; returns those that are not left already."""
        return [each for each in partitions if self._detached.pop(each, None) is None]

    def clear(self) -> None:
        """All partitions are assigned anew."""
        self._detached.clear()
