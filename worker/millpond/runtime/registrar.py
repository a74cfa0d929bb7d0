"""Looks up and changes in Kafka whose the tasks are, beside the worker's loop.

Every question here may have to wait for a broker, a transaction that ends, or an owner that is being fenced; the
loop asks, goes on processing, and finds the answer later.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from queue import SimpleQueue

from confluent_kafka import Consumer, KafkaException, Producer

from millpond.errors import OwnershipError
from millpond.topology import TaskId

from .claims import OffsetStore, take_over
from .cluster import Cluster
from .ownership import CommittedOffset, Partition, claim_of

__all__ = ("LookedUp", "Registrar", "TakenOver", "Whereabouts")

log = logging.getLogger(__name__)

_THREADS = 4
_TOGETHER_S = 0.25


@dataclass(frozen=True)
class Whereabouts:
    """Where a task stands in Kafka."""

    committed: Mapping[Partition, CommittedOffset]
    """Of its inputs; empty when it was not asked for."""
    ranges: Mapping[Partition, tuple[int, int]]
    """First offset kept, and offset after the last record, of its inputs and changelogs."""


@dataclass(frozen=True)
class LookedUp:
    """Answer to `Registrar.look_up`."""

    tasks: Mapping[TaskId, Whereabouts]
    committed: bool
    """Whether committed offsets were asked for."""
    number: int = 0
    """What `look_up` returned."""


@dataclass(frozen=True)
class TakenOver:
    """Answer to `Registrar.take_over`."""

    previous: str | None
    owners: Mapping[TaskId, str | None]
    """Who owns each task now, as Kafka has it."""


class Registrar:
    """Asks Kafka on behalf of a worker.

    Args:
        consumer: any consumer of the application's group.
        cluster: tells where partitions begin and end.
        offsets: reads committed offsets.
        partitions_of: the inputs and the changelogs of a task.
        fencing: makes a producer that has the transactional id of an owner to itself; None where there are no
            transactions.
        start_of: where a partition that was never committed begins, from its range.
    """

    def __init__(
        self,
        consumer: Consumer,
        cluster: Cluster,
        offsets: OffsetStore,
        partitions_of: Callable[[TaskId], tuple[Collection[Partition], Collection[Partition]]],
        fencing: Callable[[str], Producer] | None,
        start_of: Callable[[Partition, tuple[int, int]], int],
    ) -> None:
        self._consumer = consumer
        self._cluster = cluster
        self._offsets = offsets
        self._partitions_of = partitions_of
        self._fencing = fencing
        self._start_of = start_of
        self._number = 0
        self._answers: SimpleQueue[LookedUp | TakenOver | BaseException] = SimpleQueue()
        self._threads = ThreadPoolExecutor(_THREADS, "millpond-registrar")

    def look_up(self, tasks: Collection[TaskId], *, committed: bool) -> int:
        """Ask where tasks stand; `committed` includes whose they are.

        Returns:
            the number that the answer will bear: what was asked earlier may be out of date when it comes.
        """
        self._number += 1
        number = self._number
        self._submit(lambda: replace(self.looked_up(tasks, committed=committed), number=number))
        return number

    def take_over(self, previous: str | None, owners: Mapping[TaskId, str]) -> None:
        """Ask to move tasks from a previous owner, or from nobody, to new ones."""
        self._submit(lambda: self.taken_over(previous, owners))

    def answers(self) -> list[LookedUp | TakenOver]:
        """What is known by now.

        Raises:
            BrokerError: the broker refused, or did not answer in time.
        """
        found: list[LookedUp | TakenOver] = []
        while not self._answers.empty():
            answer = self._answers.get()
            if isinstance(answer, BaseException):
                raise answer
            found.append(answer)
        return found

    def close(self) -> None:
        """Begin nothing more; what is under way ends by itself."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _submit(self, job: Callable[[], LookedUp | TakenOver]) -> None:
        def run() -> None:
            try:
                self._answers.put(job())
            except BaseException as error:
                self._answers.put(error)

        self._threads.submit(run)

    def looked_up(self, tasks: Collection[TaskId], *, committed: bool) -> LookedUp:
        """As `look_up`, waiting for the answer.

        That a task is this worker's, at these offsets, is only known if the look-up began after the producer that will
        commit for it was initialised, and if that producer committed nothing for the task since.
        """
        inputs = {task: self._partitions_of(task) for task in tasks}
        of_inputs: dict[Partition, CommittedOffset] = {}
        if committed:
            of_inputs = self._read_apart([list(own) for own, _ in inputs.values()])
        # The ends after the offsets: whoever owns a task now, what was committed before is below them. And the ends of
        # all records, not of the committed ones: the markers of a transaction reach offsets and changelogs apart.
        ranges = self._cluster.ranges({each for own, logs in inputs.values() for each in (*own, *logs)})
        return LookedUp(
            {
                task: Whereabouts(
                    {each: of_inputs[each] for each in own} if committed else {},
                    {each: ranges[each] for each in (*own, *logs)},
                )
                for task, (own, logs) in inputs.items()
            },
            committed,
        )

    def _read_apart(self, by_task: Sequence[Sequence[Partition]]) -> dict[Partition, CommittedOffset]:
        """Committed offsets, by one request where that is answered soon.

        A request waits for every open transaction that concerns one of its partitions, and one of those may be of a
        worker that hangs. So tasks are asked for one by one where they cannot be had together.
        """
        together = [each for own in by_task for each in own]
        if len(by_task) > 1:
            found = self._offsets.try_read(together, _TOGETHER_S)
            if found is not None:
                return found
        return {partition: each for own in by_task for partition, each in self._offsets.read(own).items()}

    def survey(self, tasks: Collection[TaskId]) -> dict[TaskId, Mapping[Partition, CommittedOffset]]:
        """What is committed for tasks, without waiting for transactions: only good for choosing what to look up."""
        inputs = {task: self._partitions_of(task)[0] for task in tasks}
        found = self._offsets.survey([each for own in inputs.values() for each in own])
        return {task: {each: found[each] for each in own} for task, own in inputs.items()}

    def taken_over(self, previous: str | None, owners: Mapping[TaskId, str]) -> TakenOver:
        """As `take_over`, waiting for the answer."""
        inputs = {task: self._partitions_of(task)[0] for task in owners}
        everything = [each for own in inputs.values() for each in own]
        ranges = self._cluster.ranges(everything)

        def start_of(partition: Partition) -> int:
            return self._start_of(partition, ranges[partition])

        taken: Collection[TaskId] = ()
        try:
            taken = take_over(self._fencing, self._consumer, self._offsets, inputs, owners, previous, start_of)
        except OwnershipError as error:
            log.warning("%s", error)
        except KafkaException as error:
            log.warning("the take-over from %s failed: %s", previous or "nobody", error.args[0].str())
        found: dict[TaskId, str | None] = {task: owners[task] for task in taken}
        others = [task for task in owners if task not in found]
        if others:
            for task, committed in self.survey(others).items():
                _, found[task] = claim_of(owners[task], committed)
        return TakenOver(previous, found)
