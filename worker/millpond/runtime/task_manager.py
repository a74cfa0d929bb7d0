"""Makes the tasks of a worker: whose they are, where they start, their stores and what those have to restore."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from millpond.errors import OwnershipError, StateCorrupted, TopicError
from millpond.state import MemoryBackend, StateFile
from millpond.topology import SourceNode, Subtopology, TaskId, Topology

from .claims import UNOWNED, OffsetStore, claimed, swap_owner
from .commit import is_fenced, topic_partitions
from .config import Config
from .context import Outgoing
from .environment import Environment
from .global_state import GlobalStateUpdater
from .ownership import CommittedOffset, OffsetMetadata, Partition, tasks_by_claim
from .plan import Plan, changelog_topic
from .restore import ChangelogReader, Restoration
from .task import StreamTask

__all__ = ("TaskManager",)

log = logging.getLogger(__name__)

ProducerOf = Callable[[str], Producer]


class TaskManager:
    """The tasks a worker holds.

    Attributes:
        tasks: by id.
        epoch: this worker's epoch, one higher at each start; written with every commit.
        reader: restorations in progress.
        globals: the global stores.
        by_input: the task of each input partition.
    """

    def __init__(
        self,
        topology: Topology,
        plan: Plan,
        config: Config,
        environment: Environment,
        state_file: StateFile,
        consumer: Consumer,
        offsets: OffsetStore,
        reader: ChangelogReader,
    ) -> None:
        self._subtopologies = {each.id: each for each in plan.subtopologies}
        self._global_definitions = topology.global_stores
        self._internal = frozenset(topology.repartition_topics)
        self._plan = plan
        self._config = config
        self._environment = environment
        self._state_file = state_file
        self._memory = MemoryBackend()
        self.backends: tuple[Any, ...] = (state_file, self._memory)
        self._backend_of_store = {
            builder.name: self.backend_of(builder)
            for subtopology in plan.subtopologies
            for builder in subtopology.stores
        }
        self._consumer = consumer
        self._offsets = offsets
        self.reader = reader
        self.epoch = 0
        self.tasks: dict[TaskId, StreamTask] = {}
        self.by_input: dict[Partition, StreamTask] = {}
        self.globals: list[GlobalStateUpdater] = []
        self._committed: dict[TaskId, dict[Partition, CommittedOffset]] = {}

    # Ownership ------------------------------------------------------------------------------------------------

    def read_committed(self) -> None:
        """Read the committed offsets and metadata of all tasks."""
        inputs = {
            task: [Partition(topic, task.partition) for topic in topics] for task, topics in self._plan.tasks.items()
        }
        everything = self._offsets.read([partition for partitions in inputs.values() for partition in partitions])
        self._committed = {
            task: {partition: everything[partition] for partition in partitions} for task, partitions in inputs.items()
        }

    def claim_all(self, producer_of: ProducerOf | None, *, take_over: bool) -> None:
        """Make every task this worker's own, by the rules of `ownership`.

        Args:
            producer_of: makes a producer with an owner's transactional id and initialises it; None under at_least_once.
            take_over: whether tasks of other workers are taken over.

        Raises:
            OwnershipError: a task belongs to another worker, or another claimed it at the same moment.
        """
        worker = self._config.worker_id
        _, unowned, foreign = tasks_by_claim(worker, self._committed)
        if foreign and not take_over:
            owner, tasks = next(iter(foreign.items()))
            raise OwnershipError(
                f"{len(tasks)} task{'s' if len(tasks) > 1 else ''} of '{self._config.application_id}' (first: "
                f"{tasks[0]}) belong to worker '{owner}', and this one is '{worker}'. Start it with --worker-id "
                f"{owner} to go on with that worker's state, or, once that worker is gone, with --take-over."
            )
        epochs = [each.metadata.epoch for task in self._committed.values() for each in task.values()]
        self.epoch = max([self.epoch, *epochs]) + 1
        if producer_of is None:
            self._commit_directly()
            return
        group = self._consumer.consumer_group_metadata()
        # By partition: a task whose inputs changed with the topology may have some that nobody owns, or another does.
        by_owner: dict[str | None, dict[Partition, CommittedOffset]] = {}
        for task in [*unowned, *(task for tasks in foreign.values() for task in tasks)]:
            for partition, each in self._committed[task].items():
                if each.metadata.owner != worker:
                    by_owner.setdefault(each.metadata.owner, {})[partition] = each
        for previous, wanted in by_owner.items():
            swap_owner(producer_of(previous or UNOWNED), group, self._offsets, self._own(wanted), previous)
        self.read_committed()

    def announce(self, producer: Producer) -> None:
        """Write this worker's new epoch beside the offsets of all its tasks, in a transaction of its own.

        Raises:
            OwnershipError: another process uses this worker's transactional id.
        """
        everything = {partition: each for task in self._committed.values() for partition, each in task.items()}
        if everything:
            group = self._consumer.consumer_group_metadata()
            try:
                producer.begin_transaction()
                producer.send_offsets_to_transaction(topic_partitions(self._own(everything)), group, 60)
                producer.commit_transaction(60)
            except KafkaException as error:
                if is_fenced(error):
                    raise OwnershipError(
                        f"another process runs as worker '{self._config.worker_id}' of "
                        f"'{self._config.application_id}' (it fenced this one while it started). Give each worker its "
                        f"own 'worker.id'."
                    ) from error
                raise
            self.read_committed()

    def check_still_mine(self) -> None:
        """After a failed commit: read the metadata again.

        Raises:
            OwnershipError: another worker, or another process with this worker's id, has the tasks now.
        """
        self.read_committed()
        for task, partitions in self._committed.items():
            for partition, committed in partitions.items():
                owner, epoch = committed.metadata.owner, committed.metadata.epoch
                if owner != self._config.worker_id:
                    raise OwnershipError(
                        f"task {task} was taken over by worker '{owner}' while this worker '{self._config.worker_id}' "
                        f"was silent. Nothing is lost: what it had not committed, '{owner}' processes again."
                    )
                if epoch != self.epoch:
                    raise OwnershipError(
                        f"another process runs as worker '{owner}' of '{self._config.application_id}' (it has "
                        f"{partition} since epoch {epoch}, this one is at {self.epoch}). Give each worker its own "
                        f"'worker.id'."
                    )

    def _commit_directly(self) -> None:
        everything = {partition: each for task in self._committed.values() for partition, each in task.items()}
        if everything:
            answer = self._consumer.commit(offsets=topic_partitions(self._own(everything)), asynchronous=False)
            for each in answer or ():
                if each.error is not None:
                    raise KafkaException(each.error)
            self.read_committed()

    def _own(self, committed: Mapping[Partition, CommittedOffset]) -> dict[Partition, tuple[int, OffsetMetadata]]:
        return claimed(committed, self._start_of, self._config.worker_id, self.epoch)

    def _start_of(self, partition: Partition) -> int:
        """Where a partition that was never committed begins."""
        first, end = self._offsets.range(partition)
        reset = self._reset_of(partition.topic)
        if reset == "none":
            raise TopicError(
                f"{partition} has no committed offset and 'auto.offset.reset' is none: set it to earliest or latest."
            )
        return end if reset == "latest" else first

    def _reset_of(self, topic: str) -> str:
        for subtopology in self._subtopologies.values():
            for source in subtopology.sources:
                if topic in map(self._environment.real_topic, source.topics):
                    return source.reset or self._default_reset(source, topic)
        return self._config.auto_offset_reset

    def _default_reset(self, source: SourceNode, topic: str) -> str:
        # Internal topics are read from their beginning whatever the policy: their records are this application's.
        return "earliest" if topic in self._plan.repartition else self._config.auto_offset_reset

    # Tasks ----------------------------------------------------------------------------------------------------

    def create(self, outbox: list[Outgoing]) -> None:
        """Build all tasks at their committed offsets and begin to restore their stores."""
        stores_by_task = {task: self._stores(task) for task in self._plan.tasks}
        every_store = [store for stores in stores_by_task.values() for store in stores.values()]
        for store in every_store:
            store.cache_limit = self._environment.row_cache_bytes // len(every_store)
        global_stores = {updater.store.name: updater.store for updater in self.globals}
        for task_id, stores in stores_by_task.items():
            committed = self._committed[task_id]
            remembered: dict[str, int] = {}
            for each in committed.values():
                for name, value in each.metadata.processors.items():
                    remembered[name] = max(value, remembered.get(name, value))
            task = StreamTask(
                self._subtopologies[task_id.subtopology], task_id.partition, stores, global_stores,
                self._environment, outbox, remembered, self._plan.tasks[task_id],
            )  # fmt: skip
            task.resume_at(
                {
                    partition.topic: (self._within_range(partition, each.offset or 0), each.metadata)
                    for partition, each in committed.items()
                }
            )
            self.tasks[task_id] = task
            self.by_input.update(dict.fromkeys(committed, task))
        self._assign_restoring()

    def _within_range(self, partition: Partition, offset: int) -> int:
        """The offset to go on at: the committed one, unless retention was faster."""
        first, end = self._offsets.range(partition)
        if offset > end:
            raise TopicError(
                f"the committed offset of {partition} is {offset}, but the topic ends at {end}: it was deleted and made "
                f"anew. Run 'millpond reset' to begin with the new topic, or restore the old one."
            )
        if offset < first:
            log.error(
                "%s: records %d to %d were deleted by the topic's retention before this application processed them; "
                "going on at %d", partition, offset, first - 1, first,
            )  # fmt: skip
        return max(offset, first)

    def _stores(self, task: TaskId) -> dict[str, Any]:
        subtopology = self._subtopologies[task.subtopology]
        stores: dict[str, Any] = {}
        for builder in subtopology.stores:
            made = self._environment.complete(builder)
            topic = changelog_topic(subtopology, made.name, self._internal, self._config.application_id)
            backend = self.backend_of(made)
            store = made.build(task.partition, backend, topic)
            stores[made.name] = store
            if topic is not None:
                self._restore(subtopology, store, backend, Partition(topic, task.partition), task)
        return stores

    def backend_of(self, builder: Any) -> Any:
        """Where a store's committed rows are."""
        return self._state_file if builder.persistent else self._memory

    def backend_for(self, store: Any) -> Any:
        """As `backend_of`, for a store instance."""
        return self._backend_of_store[store.name]

    def _restore(self, subtopology: Subtopology, store: Any, backend: Any, source: Partition, task: TaskId) -> None:
        first, end = self._offsets.range(source)
        committed = self._committed[task].get(source)
        if committed is not None:
            # The changelog is the source topic itself: what lies beyond the committed offset is not processed yet.
            end = min(end, committed.offset or 0)
        offset = backend.offset(store.name, store.partition)
        if offset is not None and offset > end and committed is None:
            log.warning(
                "the state of store %s partition %d is ahead of its changelog %s (%d > %d): the topic was made anew; "
                "restoring from its beginning", store.name, store.partition, source, offset, end,
            )  # fmt: skip
            backend.drop(store.name, store.partition)
            store.revert()
            offset = None
        start = first if offset is None else max(offset, first)
        self.reader.add(Restoration(store, backend, source, min(start, end), end, bounded=committed is not None))

    def rebuild_corrupted(self, error: StateCorrupted) -> None:
        """Forget the local rows of a corrupted store; the next `create` restores it from its changelog."""
        assert error.store is not None
        log.error("%s Rebuilding store %s from its changelog.", error, error.store)
        self._state_file.rebuild(error.store)

    def create_globals(self) -> list[TopicPartition]:
        """Build the global stores; returns their partitions, at the offsets to read from."""
        wanted: list[TopicPartition] = []
        for definition in self._global_definitions:
            builder = self._environment.complete(definition.store)
            backend = self.backend_of(builder)
            updater = GlobalStateUpdater(definition, builder.build(0, backend, None), backend, self._environment)
            self.globals.append(updater)
            for number in range(self._plan.partitions[updater.topic]):
                partition = Partition(updater.topic, number)
                first, end = self._offsets.range(partition)
                known = updater.start_of(number)
                start = first if known is None or known > end else max(known, first)
                updater.positions[number] = start
                wanted.append(TopicPartition(updater.topic, number, start))
        return wanted

    def _assign_restoring(self) -> None:
        pending = self.reader.pending()
        if pending:
            self._consumer.incremental_assign(
                [TopicPartition(each.source.topic, each.source.partition, each.position) for each in pending]
            )

    def start_positions(self) -> list[TopicPartition]:
        """Input partitions at the positions where processing starts."""
        return [
            TopicPartition(partition.topic, partition.partition, task.inputs[partition.topic].position)
            for partition, task in self.by_input.items()
        ]

    def drop_all(self) -> None:
        """Forget all tasks and what they did not commit."""
        for task in self.tasks.values():
            # Stores are closed rather than reverted: the one may have to read a file that is broken, the other not.
            task.outbox.clear()
            task.close()
            for store in task.stores.values():
                store.close()
        self.tasks.clear()
        self.by_input.clear()
        self.reader.restorations.clear()
        for updater in self.globals:
            updater.close()
            updater.store.close()
        self.globals.clear()

    def stores(self) -> Sequence[Any]:
        """All store instances of all tasks."""
        return [store for task in self.tasks.values() for store in task.stores.values()]
