"""Lookups and changes of task ownership in Kafka, in threads beside the worker's loop.

Each request may wait for a broker, an open transaction, or the fencing of an owner. The loop submits it, continues
processing, and collects the answer later.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from datetime import timedelta
from queue import SimpleQueue

from confluent_kafka import KafkaException, Producer

from millpond.errors import BrokerError, OwnershipError
from millpond.runtime.commit.pipeline import Offsets
from millpond.runtime.commit.unchanged_offsets import Committed
from millpond.runtime.error_codes import Kind, kind_of
from millpond.runtime.kafka.admin import KafkaAdmin
from millpond.runtime.kafka.consumer_threads import ConsumerThreads
from millpond.runtime.missing_rights import Operation
from millpond.runtime.offsets.completeness import Moment
from millpond.runtime.offsets.metadata import Claim, CommittedOffset, Partition, belongs_to, claim_of
from millpond.runtime.topics.identity import TopicIdentity, digest_of
from millpond.topology import TaskId

from .takeover import UNOWNED, OffsetStore, commit_directly, commit_under, take_over

__all__ = ("LookupAnswer", "OwnershipLookups", "TakeOverAnswer", "TaskLookup")

log: logging.Logger = logging.getLogger(__name__)

_JOINT_READ_TIMEOUT_S = 0.25


@dataclass(frozen=True)
class TaskLookup:
    """The facts about one task in Kafka."""

    committed: Mapping[Partition, CommittedOffset]
    """Committed offsets of its inputs; empty if they were not requested."""
    ranges: Mapping[Partition, tuple[int, int]]
    """First offset and end offset of its inputs and changelogs."""
    topics: Mapping[str, TopicIdentity]
    """Identities of its changelogs, by topic."""
    asked: Moment
    """When the end offsets were requested: they are of that time or later."""
    by_age: Mapping[Partition, int] = field(default_factory=dict)
    """Offset of the first record that is young enough, for inputs without a committed offset whose policy is an age."""
    inputs: Mapping[str, str] = field(default_factory=dict)
    """Digests of the ids of its inputs' topics, empty if brokers have no ids; no entries without committed offsets."""


@dataclass(frozen=True)
class LookupAnswer:
    """The answer to `OwnershipLookups.look_up`."""

    tasks: Mapping[TaskId, TaskLookup]
    committed: bool
    """Whether committed offsets were requested."""
    number: int = 0
    """The number given to `look_up` or `look_up_named`."""


@dataclass(frozen=True)
class TakeOverAnswer:
    """The answer to `OwnershipLookups.take_over`."""

    previous: str | None
    owners: Mapping[TaskId, str | None]
    """The current owner of each task in Kafka."""


class OwnershipLookups:
    """The ownership lookups and take-overs of one worker.

    Args:
        errands: threads, each with a consumer of the application's group.
        cluster: reads offset ranges and topics.
        offsets: reads committed offsets, in one of those threads.
        partitions_of: returns the inputs and the changelogs of a task.
        fencing: makes a producer that fences the owner of a transactional id; None without transactions.
        start_of: returns where a partition without a committed offset begins, from its range, and from the offset of
            the first record that is young enough.
        age_of: returns how old the first record may be of a partition without a committed offset, or None.
        topology: hash of the worker's topology.
    """

    def __init__(  # noqa: PLR0913 - its collaborators
        self,
        errands: ConsumerThreads,
        cluster: KafkaAdmin,
        offsets: OffsetStore,
        partitions_of: Callable[[TaskId], tuple[Collection[Partition], Collection[Partition]]],
        fencing: Callable[[str], Producer] | None,
        start_of: Callable[[Partition, tuple[int, int], int | None], int],
        age_of: Callable[[Partition], timedelta | None],
        topology: str,
    ) -> None:
        self._errands = errands
        self._cluster = cluster
        self._offsets = offsets
        self._partitions_of = partitions_of
        self._fencing = fencing
        self._start_of = start_of
        self._age_of = age_of
        self._topology = topology
        self._answers: SimpleQueue[LookupAnswer | TakeOverAnswer | BaseException] = SimpleQueue()

    # Requests whose answers are collected with `answers`

    def look_up(self, tasks: Collection[TaskId], *, number: int, committed: bool) -> None:
        """Look tasks up; with `committed`, also their committed offsets and so their owners.

        An answer proves this worker's ownership only if the lookup began after the producer that will commit for the
        task was initialised, and if that producer has committed nothing for the task since.

        There may be several answers with this number, each for some of the tasks. An answer to an earlier request may
        be out of date when it arrives.
        """
        self._submit(lambda: self._look_up(tasks, committed=committed, number=number))

    def look_up_named(self, worker: str, tasks: Collection[TaskId], number: int) -> None:
        """Look up the tasks that `tasks_naming` would return. The single answer may be empty."""
        self._submit(lambda: self._read(self._naming(worker, tasks), committed=True, number=number))

    def take_over(self, previous: str | None, owners: Mapping[TaskId, str]) -> None:
        """Request new owners for tasks of a previous owner, or for tasks without an owner (None)."""
        self._submit(lambda: self._take_over(previous, owners))

    def answers(self) -> Iterator[LookupAnswer | TakeOverAnswer]:
        """Yield the answers that have arrived. Answers that the caller does not consume stay for the next call.

        Raises:
            BrokerError: the broker rejected a request, or did not answer in time.
        """
        while not self._answers.empty():
            answer = self._answers.get()
            if isinstance(answer, BaseException):
                raise answer
            yield answer

    def _submit(self, request: Callable[[], LookupAnswer | TakeOverAnswer | None]) -> None:
        def done(future: Future[LookupAnswer | TakeOverAnswer | None]) -> None:
            if future.cancelled():
                return
            answer = future.exception() or future.result()
            if answer is not None:
                self._answers.put(answer)

        self._errands.run(request).add_done_callback(done)

    # Requests that wait for their answer

    def look_up_now(self, tasks: Collection[TaskId]) -> LookupAnswer:
        """Look up tasks with their owners, and wait for the answer."""
        return self._errands.run(lambda: self._read(tasks, committed=True, number=0)).result()

    def tasks_naming(self, worker: str, tasks: Collection[TaskId]) -> list[TaskId]:
        """Return the tasks whose offsets name a worker and no other topology, without waiting for transactions."""
        return self._errands.run(lambda: self._naming(worker, tasks)).result()

    def survey(self, tasks: Collection[TaskId]) -> dict[TaskId, Mapping[Partition, CommittedOffset]]:
        """Return committed offsets without waiting for transactions, to choose which tasks to look up."""
        return self._errands.run(lambda: self._survey(tasks)).result()

    def take_over_now(self, previous: str | None, owners: Mapping[TaskId, str]) -> TakeOverAnswer:
        """Take tasks over, and wait for the answer; see `take_over`."""
        return self._errands.run(lambda: self._take_over(previous, owners)).result()

    def announce(self, producer: Producer | None, offsets: Offsets, expected: Committed) -> None:
        """Commit offsets of tasks that this worker owns: in a transaction of its producer, or directly without one.

        Args:
            producer: the producer; None without transactions.
            offsets: the offsets to commit.
            expected: the committed offsets from which they were made.

        Raises:
            OwnershipError: the producer is fenced.
            OffsetsChanged: the offsets that were read are not the committed ones.
            KafkaException: the broker rejected the commit for another reason.
        """

        def run() -> None:
            consumer = self._errands.consumer()
            if producer is None:
                commit_directly(consumer, offsets)
            else:
                commit_under(
                    producer, consumer.consumer_group_metadata(), offsets, expected, self._offsets.check_unchanged
                )

        self._errands.run(run, again=False).result()

    def close(self) -> None:
        """Stop sending requests. Running requests end by themselves."""
        self._errands.close()

    # In the threads

    def _look_up(self, tasks: Collection[TaskId], *, committed: bool, number: int) -> LookupAnswer | None:
        inputs = [each for task in tasks for each in self._partitions_of(task)[0]]
        offsets = self._offsets.try_read(inputs, _JOINT_READ_TIMEOUT_S) if committed and len(tasks) > 1 else None
        if offsets is not None or not committed or len(tasks) == 1:
            return self._read(tasks, committed=committed, number=number, offsets=offsets)
        # A request waits for the open transactions of all its partitions, and one may be of a worker that hangs. With
        # one request for each task, the other tasks do not wait for it.
        for task in tasks:
            self._submit(lambda task=task: self._read([task], committed=committed, number=number))  # type: ignore[misc]
        return None

    def _read(
        self,
        tasks: Collection[TaskId],
        *,
        committed: bool,
        number: int,
        offsets: Mapping[Partition, CommittedOffset] | None = None,
    ) -> LookupAnswer:
        inputs = {task: self._partitions_of(task) for task in tasks}
        try:
            return self._read_inputs(inputs, committed=committed, number=number, offsets=offsets)
        except BrokerError:
            if inputs == {task: self._partitions_of(task) for task in tasks}:
                raise
            # A topic was deleted, and the tasks have fewer inputs since.
            return self._read(tasks, committed=committed, number=number)

    def _read_inputs(
        self,
        inputs: Mapping[TaskId, tuple[Collection[Partition], Collection[Partition]]],
        *,
        committed: bool,
        number: int,
        offsets: Mapping[Partition, CommittedOffset] | None,
    ) -> LookupAnswer:
        if offsets is None:
            offsets = self._offsets.read([each for own, _ in inputs.values() for each in own]) if committed else {}
        # Ends are read after offsets, so earlier commits of any owner are below them. They are the ends
        # of all records, not of committed ones: transaction markers reach offsets and changelogs at different times.
        asked = Moment.now()
        ranges = self._cluster.ranges({each for own, logs in inputs.values() for each in (*own, *logs)})
        by_age = self._by_age([each for each, found in offsets.items() if found.offset is None], ranges, asked)
        topics = self._cluster.facts({each.topic for _, logs in inputs.values() for each in logs})
        # After the committed offsets: if a topic is created again in between, they count as those of a former topic.
        ids = self._cluster.ids({each.topic for own, _ in inputs.values() for each in own}) if committed else {}
        return LookupAnswer(
            {
                task: TaskLookup(
                    {each: offsets[each] for each in own} if committed else {},
                    {each: ranges[each] for each in (*own, *logs)},
                    {each.topic: topics[each.topic] for each in logs},
                    asked,
                    {each: by_age[each] for each in own if each in by_age},
                    {each.topic: digest_of([ids[each.topic]]) for each in own} if committed else {},
                )
                for task, (own, logs) in inputs.items()
            },
            committed,
            number,
        )

    def _by_age(
        self, partitions: Iterable[Partition], ranges: Mapping[Partition, tuple[int, int]], asked: Moment
    ) -> dict[Partition, int]:
        """Return the offsets at which partitions begin whose reset policy is an age; the end without such a record."""
        ages = {each: age for each in partitions if (age := self._age_of(each)) is not None}
        times = {each: max(0, asked.wall_ms - age // timedelta(milliseconds=1)) for each, age in ages.items()}
        found = self._cluster.offsets_at(times)
        return {each: ranges[each][1] if offset is None else offset for each, offset in found.items()}

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
        try:
            ranges = self._cluster.ranges([each for own in inputs.values() for each in own])
        except BrokerError:
            if inputs == {task: self._partitions_of(task)[0] for task in owners}:
                raise
            return self._take_over(previous, owners)  # as in `_read`

        def start_of(partition: Partition) -> int:
            by_age = self._by_age([partition], ranges, Moment.now())
            return self._start_of(partition, ranges[partition], by_age.get(partition))

        taken: Collection[TaskId] = ()
        try:
            taken = take_over(
                self._fencing, self._errands.consumer, self._offsets, inputs, owners, previous, start_of,
                self._topology,
            )  # fmt: skip
        except OwnershipError:
            # Workers that start at the same time all claim the unowned tasks; one is first.
            log.info("owner %s: another worker took over its tasks first; nothing is to be done", previous or UNOWNED)
        except KafkaException as error:
            cause = error.args[0]
            if kind_of(cause) is Kind.FORBIDDEN:
                topics = {each.topic for own in inputs.values() for each in own}
                cure = self._offsets.access.cure(cause, self._cluster.without_right(topics, Operation.READ) or topics)
                raise BrokerError(f"cannot commit offsets: {cause.str()}. {cure}") from error
            log.warning("owner %s: cannot take over its tasks: %s", previous or UNOWNED, cause.str())
        found: dict[TaskId, str | None] = {task: owners[task] for task in taken}
        others = [task for task in owners if task not in found]
        if others:
            for task, committed in self._survey(others).items():
                _, found[task] = claim_of(owners[task], committed)
        return TakeOverAnswer(previous, found)
