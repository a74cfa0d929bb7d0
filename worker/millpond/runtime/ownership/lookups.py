"""Looks up and changes in Kafka whose the tasks are, beside the worker's loop.

Every question here may have to wait for a broker, a transaction that ends, or an owner that is being fenced; the
loop asks, goes on processing, and finds the answer later.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from queue import SimpleQueue

from confluent_kafka import KafkaException, Producer

from millpond.errors import OwnershipError
from millpond.runtime.commit.pipeline import Offsets
from millpond.runtime.kafka.admin import KafkaAdmin
from millpond.runtime.kafka.consumer_threads import ConsumerThreads
from millpond.runtime.offsets.completeness import Moment
from millpond.runtime.offsets.metadata import Claim, CommittedOffset, Partition, belongs_to, claim_of
from millpond.runtime.topics.identity import TopicIdentity
from millpond.topology import TaskId

from .takeover import OffsetStore, commit_directly, commit_under, take_over

__all__ = ("LookupAnswer", "OwnershipLookups", "TakeOverAnswer", "TaskLookup")

log = logging.getLogger(__name__)

_TOGETHER_S = 0.25


@dataclass(frozen=True)
class TaskLookup:
    """Where a task stands in Kafka."""

    committed: Mapping[Partition, CommittedOffset]
    """Of its inputs; empty when it was not asked for."""
    ranges: Mapping[Partition, tuple[int, int]]
    """First offset kept, and offset after the last record, of its inputs and changelogs."""
    topics: Mapping[str, TopicIdentity]
    """What its changelogs are."""
    asked: Moment
    """When it was asked for: the ends are those of then, or later ones."""


@dataclass(frozen=True)
class LookupAnswer:
    """Answer to `OwnershipLookups.look_up`."""

    tasks: Mapping[TaskId, TaskLookup]
    committed: bool
    """Whether committed offsets were asked for."""
    number: int = 0
    """What `look_up` or `find` returned."""


@dataclass(frozen=True)
class TakeOverAnswer:
    """Answer to `OwnershipLookups.take_over`."""

    previous: str | None
    owners: Mapping[TaskId, str | None]
    """Who owns each task now, as Kafka has it."""


class OwnershipLookups:
    """Asks Kafka on behalf of a worker.

    Args:
        errands: threads, each with a consumer of the application's group.
        cluster: tells where partitions begin and end.
        offsets: reads committed offsets, in one of those threads.
        partitions_of: the inputs and the changelogs of a task.
        fencing: makes a producer that has the transactional id of an owner to itself; None where there are no
            transactions.
        start_of: where a partition that was never committed begins, from its range.
        topology: hash of the worker's.
    """

    def __init__(
        self,
        errands: ConsumerThreads,
        cluster: KafkaAdmin,
        offsets: OffsetStore,
        partitions_of: Callable[[TaskId], tuple[Collection[Partition], Collection[Partition]]],
        fencing: Callable[[str], Producer] | None,
        start_of: Callable[[Partition, tuple[int, int]], int],
        topology: str,
    ) -> None:
        self._errands = errands
        self._cluster = cluster
        self._offsets = offsets
        self._partitions_of = partitions_of
        self._fencing = fencing
        self._start_of = start_of
        self._topology = topology
        self._answers: SimpleQueue[LookupAnswer | TakeOverAnswer | BaseException] = SimpleQueue()

    # Questions whose answers come through `answers` -----------------------------------------------------------

    def look_up(self, tasks: Collection[TaskId], *, number: int, committed: bool) -> None:
        """Ask where tasks stand; `committed` includes who owns them.

        That a task is this worker's, at these offsets, is only known if the look-up began after the producer that will
        commit for it was initialised, and if that producer committed nothing for the task since.

        The answers bear the number; there may be several, each for some of the tasks. What was asked earlier may be out of
        date when its answer comes.
        """
        self._ask(lambda: self._look_up(tasks, committed, number))

    def find(self, worker: str, tasks: Collection[TaskId], number: int) -> None:
        """As `look_up`, for those of the tasks that `naming` would give; one answer, which may be empty."""
        self._ask(lambda: self._answers.put(self._whereabouts(self._naming(worker, tasks), True, number)))

    def take_over(self, previous: str | None, owners: Mapping[TaskId, str]) -> None:
        """Ask to move tasks from a previous owner, or from nobody, to new ones."""
        self._ask(lambda: self._answers.put(self._take_over(previous, owners)))

    def answers(self) -> Iterator[LookupAnswer | TakeOverAnswer]:
        """What is known by now; what is not taken stays for the next time.

        Raises:
            BrokerError: the broker refused, or did not answer in time.
        """
        while not self._answers.empty():
            answer = self._answers.get()
            if isinstance(answer, BaseException):
                raise answer
            yield answer

    def _ask(self, job: Callable[[], None]) -> None:
        def run() -> None:
            try:
                job()
            except BaseException as error:
                self._answers.put(error)

        self._errands.run(run)

    # Questions whose answers are waited for -------------------------------------------------------------------

    def looked_up(self, tasks: Collection[TaskId]) -> LookupAnswer:
        """As `look_up`, waiting for the whole answer."""
        return self._errands.run(lambda: self._whereabouts(tasks, True, 0)).result()

    def naming(self, worker: str, tasks: Collection[TaskId]) -> list[TaskId]:
        """Those of the tasks that name a worker, and no other topology; transactions are not waited for."""
        return self._errands.run(lambda: self._naming(worker, tasks)).result()

    def surveyed(self, tasks: Collection[TaskId]) -> dict[TaskId, Mapping[Partition, CommittedOffset]]:
        """What is committed for tasks, not waiting for transactions: only good for choosing what to look up."""
        return self._errands.run(lambda: self._survey(tasks)).result()

    def taken_over(self, previous: str | None, owners: Mapping[TaskId, str]) -> TakeOverAnswer:
        """As `take_over`, waiting for the answer."""
        return self._errands.run(lambda: self._take_over(previous, owners)).result()

    def announce(self, producer: Producer | None, offsets: Offsets) -> None:
        """Commit offsets that are this worker's, by a transaction of its producer, or directly where there is none.

        Raises:
            OwnershipError: the producer is fenced.
            KafkaException: the broker refused for another reason.
        """

        def run() -> None:
            consumer = self._errands.consumer()
            if producer is None:
                commit_directly(consumer, offsets)
            else:
                commit_under(producer, consumer.consumer_group_metadata(), offsets)

        self._errands.run(run).result()

    def close(self) -> None:
        """Begin nothing more; what is under way ends by itself."""
        self._errands.close()

    # In the threads -------------------------------------------------------------------------------------------

    def _look_up(self, tasks: Collection[TaskId], committed: bool, number: int) -> None:
        inputs = [each for task in tasks for each in self._partitions_of(task)[0]]
        offsets = self._offsets.try_read(inputs, _TOGETHER_S) if committed and len(tasks) > 1 else None
        if offsets is not None or not committed or len(tasks) == 1:
            self._answers.put(self._whereabouts(tasks, committed, number, offsets))
            return
        # A request waits for every open transaction that concerns one of its partitions, and one of those may be of a
        # worker that hangs: the other tasks need not wait for it.
        for task in tasks:
            self._ask(lambda task=task: self._answers.put(self._whereabouts([task], committed, number)))  # type: ignore[misc]

    def _whereabouts(
        self,
        tasks: Collection[TaskId],
        committed: bool,
        number: int,
        offsets: Mapping[Partition, CommittedOffset] | None = None,
    ) -> LookupAnswer:
        inputs = {task: self._partitions_of(task) for task in tasks}
        if offsets is None:
            offsets = self._offsets.read([each for own, _ in inputs.values() for each in own]) if committed else {}
        # The ends after the offsets: whoever owns a task now, what was committed before is below them. And the ends of
        # all records, not of the committed ones: the markers of a transaction reach offsets and changelogs apart.
        asked = Moment.now()
        ranges = self._cluster.ranges({each for own, logs in inputs.values() for each in (*own, *logs)})
        topics = self._cluster.facts({each.topic for _, logs in inputs.values() for each in logs})
        return LookupAnswer(
            {
                task: TaskLookup(
                    {each: offsets[each] for each in own} if committed else {},
                    {each: ranges[each] for each in (*own, *logs)},
                    {each.topic: topics[each.topic] for each in logs},
                    asked,
                )
                for task, (own, logs) in inputs.items()
            },
            committed,
            number,
        )

    def _survey(self, tasks: Collection[TaskId]) -> dict[TaskId, Mapping[Partition, CommittedOffset]]:
        inputs = {task: self._partitions_of(task)[0] for task in tasks}
        found = self._offsets.survey([each for own in inputs.values() for each in own])
        return {task: {each: found[each] for each in own} for task, own in inputs.items()}

    def _naming(self, worker: str, tasks: Collection[TaskId]) -> list[TaskId]:
        return [
            task
            for task, seen in self._survey(tasks).items()
            if claim_of(worker, seen)[0] is Claim.RESUME and belongs_to(self._topology, seen)
        ]

    def _take_over(self, previous: str | None, owners: Mapping[TaskId, str]) -> TakeOverAnswer:
        inputs = {task: self._partitions_of(task)[0] for task in owners}
        ranges = self._cluster.ranges([each for own in inputs.values() for each in own])

        def start_of(partition: Partition) -> int:
            return self._start_of(partition, ranges[partition])

        taken: Collection[TaskId] = ()
        try:
            consumer = self._errands.consumer()
            taken = take_over(
                self._fencing, consumer, self._offsets, inputs, owners, previous, start_of, self._topology
            )
        except OwnershipError as error:
            log.warning("%s", error)
        except KafkaException as error:
            log.warning("the take-over from %s failed: %s", previous or "nobody", error.args[0].str())
        found: dict[TaskId, str | None] = {task: owners[task] for task in taken}
        others = [task for task in owners if task not in found]
        if others:
            for task, committed in self._survey(others).items():
                _, found[task] = claim_of(owners[task], committed)
        return TakeOverAnswer(previous, found)
