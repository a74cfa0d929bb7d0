"""Creates the active tasks from their committed offsets, starts them, and stops them."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Any

from confluent_kafka import TopicPartition

from millpond.runtime.offsets.metadata import Partition, check_metadata, remembered
from millpond.runtime.processing.context import Outgoing
from millpond.runtime.processing.stream_task import StreamTask
from millpond.runtime.topics.plan import Plan

from .backpressure import BackPressure
from .held_tasks import HeldTask
from .resources import TaskResources
from .start_positions import StartPositions

__all__ = ("ActiveTasks",)

log: logging.Logger = logging.getLogger(__name__)


class ActiveTasks:
    """The active tasks of a worker, with the assignment of their inputs to the consumer.

    Args:
        resources: the shared parts of the worker's tasks.
        positions: the start positions of inputs.
        topology: the hash of the worker's topology.

    Attributes:
        running: the tasks that process records, in the order in which they were started.
        by_input: the running task of each input partition.
        outbox: the list for the output of tasks. Set before the first task is started, and again with each producer.
    """

    def __init__(self, resources: TaskResources, positions: StartPositions, topology: str) -> None:
        self.running: list[StreamTask] = []
        self.by_input: dict[Partition, StreamTask] = {}
        self.outbox: list[Outgoing] = []
        self._environment = resources.environment
        self._consumer = resources.consumer
        self._back_pressure = BackPressure(resources.consumer, resources.config.buffered_records_per_partition)
        self._positions = positions
        self._topology = topology
        self._without_topics: set[int] = set()
        self.adopt(resources.plan)

    def adopt(self, plan: Plan) -> None:
        """Use a plan with more inputs or tasks."""
        self._plan = plan
        self._subtopologies = {each.id: each for each in plan.subtopologies}

    def start(self, held_tasks: Iterable[HeldTask], global_stores: Mapping[str, Any]) -> None:
        """Create tasks whose stores are restored, and start to read their inputs."""
        starts: list[TopicPartition] = []
        for held in held_tasks:
            # Not earlier: init() of its processors may read the stores, which are complete only now.
            held.task = task = self._make_task(held, global_stores)
            for partition in held.committed:
                self.by_input[partition] = task
                position = task.inputs[partition.topic].position
                starts.append(TopicPartition(partition.topic, partition.partition, position))
            self.running.append(task)
            log.info("task %s: running", held.id)
        self._consumer.incremental_assign(starts)

    def _make_task(self, held: HeldTask, global_stores: Mapping[str, Any]) -> StreamTask:
        lookup = held.activated_with
        assert lookup is not None
        task = StreamTask(
            self._subtopologies[held.id.subtopology], held.id.partition, held.stores, global_stores,
            self._environment, self.outbox, remembered(lookup.committed.values()), self._plan.tasks[held.id],
        )  # fmt: skip
        if not check_metadata(task.id, task.remembered_names, self._topology, task.shared_names):
            self._leave_out_topics(held)
        task.resume_at(
            {
                partition.topic: (self._positions.resume(partition, lookup), each.metadata)
                for partition, each in lookup.committed.items()
            }
        )
        if any(
            each.offset is None
            or each.metadata.topology != self._topology
            or each.metadata.former_changelogs
            or (task.inputs[partition.topic].position and held.topics.get(partition.topic) and not each.metadata.topic)
            for partition, each in held.committed.items()
        ):
            # The next commit has to write this topology, the start position of an input that is new to the task, and
            # the topics in which the offsets are.
            task.commit_needed = True
        return task

    def _leave_out_topics(self, held: HeldTask) -> None:
        """Write no digests of the inputs' topics, since the metadata of the task has no room for them."""
        held.topics = {}
        if held.id.subtopology not in self._without_topics:
            self._without_topics.add(held.id.subtopology)
            log.warning(
                "sub-topology %d: the stream times of its operators fill the metadata of its committed offsets; if an "
                "input is deleted and created again while the application is stopped, that cannot be noticed. Split "
                "it with repartition()",
                held.id.subtopology,
            )

    def stop(self, held: HeldTask) -> None:
        """Stop reading the inputs of a task, without closing it."""
        task = held.task
        if task is None:
            return
        inputs = [partition for partition in held.committed if self.by_input.get(partition) is task]
        for partition in inputs:
            del self.by_input[partition]
        if task in self.running:
            self.running.remove(task)
        self._unassign(self._back_pressure.forget(inputs))

    def stop_all(self, *, unassign: bool) -> None:
        """Stop reading all inputs.

        Args:
            unassign: whether to unassign them from the consumer, which is not needed if the consumer is replaced.
        """
        reading = self._back_pressure.forget(list(self.by_input))
        self._back_pressure.clear()
        self.running.clear()
        self.by_input.clear()
        if unassign:
            self._unassign(reading)

    def _unassign(self, partitions: Iterable[Partition]) -> None:
        if assigned := [TopicPartition(each.topic, each.partition) for each in partitions]:
            self._consumer.incremental_unassign(assigned)

    def balance(self) -> None:
        """Pause inputs that have too many records buffered, and resume those that have room again."""
        self._back_pressure.balance(self.running)
