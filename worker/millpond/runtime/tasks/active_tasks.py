"""The active tasks that process: made from what is committed, started, and stopped."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Any

from confluent_kafka import TopicPartition

from millpond.runtime.kafka.replaceable_consumer import ReplaceableConsumer
from millpond.runtime.offsets.metadata import Partition, check_metadata
from millpond.runtime.ownership.lookups import TaskLookup
from millpond.runtime.processing.context import Outgoing
from millpond.runtime.processing.environment import Environment
from millpond.runtime.processing.stream_task import StreamTask
from millpond.runtime.topics.plan import Plan

from .backpressure import BackPressure
from .held_tasks import HeldTask
from .start_positions import StartPositions, within_range

__all__ = ("ActiveTasks",)

log: logging.Logger = logging.getLogger(__name__)


class ActiveTasks:
    """Keeps the consumer of inputs at what is being processed.

    Args:
        plan: the tasks of the application and their inputs.
        environment: of the worker.
        consumer: reads inputs, and the topics of global stores.
        buffered_records: how many records a partition may have waiting (`buffered.records.per.partition`).
        positions: where tasks start to read.
        topology: the hash of the worker's topology.

    Attributes:
        running: the tasks that process, in the order in which they were started.
        by_input: the running task of each input partition.
        outbox: takes the output of tasks. Set before the first task is started, and anew with each producer.
    """

    def __init__(
        self,
        plan: Plan,
        environment: Environment,
        consumer: ReplaceableConsumer,
        buffered_records: int,
        positions: StartPositions,
        topology: str,
    ) -> None:
        self.running: list[StreamTask] = []
        self.by_input: dict[Partition, StreamTask] = {}
        self.outbox: list[Outgoing] = []
        self._environment = environment
        self._consumer = consumer
        self._back_pressure = BackPressure(consumer, buffered_records)
        self._positions = positions
        self._topology = topology
        self.adopt(plan)

    def adopt(self, plan: Plan) -> None:
        """Use a plan with more inputs, or with more tasks."""
        self._plan = plan
        self._subtopologies = {each.id: each for each in plan.subtopologies}

    def start(self, held_tasks: Iterable[HeldTask], global_stores: Mapping[str, Any]) -> None:
        """Make tasks whose stores are restored, and read their inputs.

        Raises:
            TopicError: a committed offset is beyond the end of its topic.
        """
        starts: list[TopicPartition] = []
        for held in held_tasks:
            # Its processors' init() may read the stores: they are complete only now.
            held.task = task = self._make_task(held, global_stores)
            for partition in held.committed:
                self.by_input[partition] = task
                position = task.inputs[partition.topic].position
                starts.append(TopicPartition(partition.topic, partition.partition, position))
            self.running.append(task)
            log.info("task %s: running", held.id)
        self._consumer.incremental_assign(starts)

    def _make_task(self, held: HeldTask, global_stores: Mapping[str, Any]) -> StreamTask:
        where = held.where
        assert where is not None
        remembered: dict[str, int] = {}
        for each in where.committed.values():
            for name, value in each.metadata.processors.items():
                remembered[name] = max(value, remembered.get(name, value))
        task = StreamTask(
            self._subtopologies[held.id.subtopology], held.id.partition, held.stores, global_stores,
            self._environment, self.outbox, remembered, self._plan.tasks[held.id],
        )  # fmt: skip
        check_metadata(task.id, task.remembered_names, self._topology)
        task.resume_at(
            {
                partition.topic: (self._position(partition, where), each.metadata)
                for partition, each in where.committed.items()
            }
        )
        if any(
            each.offset is None or each.metadata.topology != self._topology or each.metadata.former_changelogs
            for each in held.committed.values()
        ):
            # The next commit names this topology as the task's, and keeps the start of an input that is new to the task.
            task.commit_needed = True
        return task

    def _position(self, partition: Partition, where: TaskLookup) -> int:
        return within_range(partition, self._positions.position(partition, where), where.ranges[partition])

    def stop(self, held: HeldTask) -> None:
        """Read the inputs of a task no more; it stays as it is."""
        task = held.task
        if task is None:
            return
        inputs = [partition for partition in held.committed if self.by_input.get(partition) is task]
        for partition in inputs:
            del self.by_input[partition]
        self._unassign(self._back_pressure.forget(inputs))
        if task in self.running:
            self.running.remove(task)

    def stop_all(self, *, unassign: bool) -> None:
        """Read no input any more.

        Args:
            unassign: whether to tell the consumer, too; it need not know where another one takes its place.
        """
        reading = self._back_pressure.forget(list(self.by_input))
        if unassign:
            self._unassign(reading)
        self._back_pressure.clear()
        self.running.clear()
        self.by_input.clear()

    def _unassign(self, partitions: Iterable[Partition]) -> None:
        if assigned := [TopicPartition(each.topic, each.partition) for each in partitions]:
            self._consumer.incremental_unassign(assigned)

    def balance(self) -> None:
        """Leave inputs that are too far ahead, come back to those with room."""
        self._back_pressure.balance(self.running)
