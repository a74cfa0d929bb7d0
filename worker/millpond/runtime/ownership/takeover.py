"""Carries out ownership (design.md, "Ownership"): reads offsets with their metadata, claims, takes over.

Every claim is a transaction under the previous owner's transactional id, so it is a compare-and-swap: of two
workers that claim the same task, one is fenced. What nobody owned yet is claimed under `<application.id>-unowned`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import timedelta
from typing import Any, TypeVar

from confluent_kafka import OFFSET_INVALID, Consumer, KafkaError, KafkaException, Producer, TopicPartition

from millpond.backoff import Backoff
from millpond.errors import BrokerError, OwnershipError
from millpond.runtime.commit.pipeline import Offsets, is_fenced, portions, topic_partitions
from millpond.runtime.offsets.marks import Marks
from millpond.runtime.offsets.metadata import (
    CommittedOffset,
    OffsetMetadata,
    Partition,
    decode_metadata,
    next_epoch,
    takeable,
)
from millpond.topology import TaskId

__all__ = ("UNOWNED", "OffsetStore", "commit_directly", "commit_under", "initialised", "take_over")

log = logging.getLogger(__name__)

T = TypeVar("T")

#: Stands for the owner of what nobody owns.
UNOWNED = "unowned"

_TRY_S = 10.0
_ANSWER_S = 5.0
_UNKNOWN_S = 30.0
_PAUSE_S = 0.02
_COMMIT_S = 60.0
_AT_ONCE_S = 0.1
#: While the broker ends a transaction that was left open, it turns its successor away. The client would come back after
#: a fixed half second; a new client need not wait so long, provided that the old one is gone before it comes back. The
#: wait is short for another reason too: an owner that lives begins anew a tenth of a second after it was fenced.
_FIRST_INIT, _LONGEST_INIT = timedelta(milliseconds=50), timedelta(seconds=10)
#: After so long waits the client retries by itself: what keeps the transaction from ending is away for longer.
_OWN_RETRY_S = 0.5


class _OutOfDate(KafkaException):
    """The answer is below a mark: that ends after half a minute, whatever the patience with brokers, and never a worker."""


class OffsetStore:
    """The group's committed offsets.

    Args:
        consumer: gives the calling thread's, of the group; whether it waits for pending transactions follows from its
            isolation level.
        forget_consumer: told when that one gives no answer: the calling thread is to have another one.
        surveyor: makes a consumer of the group that does not wait for them.
        stopping: asked while waiting; True gives up.
        patience_s: how long to wait for a broker, in seconds.

    Attributes:
        marks: what answers may not fall behind.
    """

    def __init__(
        self,
        consumer: Callable[[], Consumer],
        forget_consumer: Callable[[], None],
        surveyor: Callable[[], Consumer],
        stopping: Callable[[], bool],
        patience_s: float,
    ) -> None:
        self.marks = Marks()
        self._consumer = consumer
        self._forget_consumer = forget_consumer
        self._surveyor = surveyor
        self._stopping = stopping
        self._patience_s = patience_s

    def read(self, partitions: Sequence[Partition]) -> dict[Partition, CommittedOffset]:
        """Committed offsets with metadata; a pending transaction of the group is waited for.

        Raises:
            BrokerError: the coordinator does not answer.
        """
        return self._patiently(
            lambda: self._believable(_committed(self._consumer(), partitions, _ANSWER_S)),
            "the committed offsets",
            self._forget_consumer,
        )

    def try_read(self, partitions: Sequence[Partition], timeout_s: float) -> dict[Partition, CommittedOffset] | None:
        """As `read`, once; None when there is no answer within `timeout_s`, or one that is out of date."""
        try:
            return self._believable(_committed(self._consumer(), partitions, timeout_s))
        except KafkaException:
            return None

    def survey(self, partitions: Sequence[Partition]) -> dict[Partition, CommittedOffset]:
        """As `read`, but what pending transactions will change is not waited for, unless the answer is out of date.

        A broker that loaded offsets while it served them answers this question, which asks for no write in its log, with those of
        the past until somebody commits: longer than anybody waits.

        Raises:
            BrokerError: the coordinator does not answer.
        """
        consumer = self._surveyor()
        try:
            found = self._patiently(lambda: _committed(consumer, partitions, _ANSWER_S), "the committed offsets")
        finally:
            consumer.close()
        return self.read(partitions) if self.marks.outdated(found) else found

    def _believable(self, found: dict[Partition, CommittedOffset]) -> dict[Partition, CommittedOffset]:
        if self.marks.outdated(found):
            raise _OutOfDate(KafkaError(KafkaError.COORDINATOR_LOAD_IN_PROGRESS))
        return found

    def _patiently(self, ask: Callable[[], T], what: str, unanswered: Callable[[], None] = lambda: None) -> T:
        began = time.monotonic()
        while True:
            asked = time.monotonic()
            try:
                return ask()
            except KafkaException as error:
                cause = error.args[0]
                waited = time.monotonic() - began
                passing = cause.retriable() or cause.code() in _PASSING
                # A partition whose broker is away for a moment is unknown to the client, like one that does not exist.
                passing = passing or (cause.code() == KafkaError._UNKNOWN_PARTITION and waited < _UNKNOWN_S)
                impatient = waited >= self._patience_s and not isinstance(error, _OutOfDate)
                if self._stopping() or not passing or impatient:
                    raise BrokerError(f"cannot read {what}: {cause.str()}. Check that the brokers are up.") from error
                if time.monotonic() - asked >= _ANSWER_S:
                    unanswered()
                time.sleep(_PAUSE_S)  # some errors come at once


def _committed(
    consumer: Consumer, partitions: Sequence[Partition], timeout_s: float
) -> dict[Partition, CommittedOffset]:
    if not partitions:
        return {}
    answer = consumer.committed([TopicPartition(each.topic, each.partition) for each in partitions], timeout=timeout_s)
    for each in answer:
        # Without its error such a partition would look like one that was never committed.
        if each.error is not None:
            raise KafkaException(each.error)
    return {
        Partition(each.topic, each.partition): CommittedOffset(
            None if each.offset == OFFSET_INVALID else each.offset, decode_metadata(each.metadata)
        )
        for each in answer
    }


_PASSING = frozenset(
    {
        KafkaError._TRANSPORT,
        KafkaError._TIMED_OUT,
        KafkaError._WAIT_COORD,
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError.NOT_COORDINATOR,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.UNSTABLE_OFFSET_COMMIT,
    }
)


def initialised(make: Callable[[], Producer], stopping: Callable[[], bool], patience_s: float) -> Producer:
    """A producer that has its transactional id to itself: who used it before is fenced, what was left open is aborted.

    Args:
        make: makes the producer; asked again when an open transaction is in the way.
        stopping: asked while waiting; True gives up.
        patience_s: how long to try, in seconds.

    Raises:
        BrokerError: the broker refuses, or does not answer in time.
    """
    deadline = time.monotonic() + patience_s
    producer = make()
    waits = iter(Backoff(_FIRST_INIT, _LONGEST_INIT))
    wait = next(waits)
    while True:
        try:
            producer.init_transactions(wait)
            return producer
        except KafkaException as error:
            cause = error.args[0]
            if stopping() or not cause.retriable() or time.monotonic() >= deadline:
                raise BrokerError(f"cannot begin transactions: {cause.str()}. Check the brokers.") from error
            if cause.code() == KafkaError.CONCURRENT_TRANSACTIONS and wait < _OWN_RETRY_S:
                producer = make()
            wait = next(waits)
            if wait == _LONGEST_INIT.total_seconds():
                log.warning("the broker does not answer (%s); trying again", cause.str())
                producer = make()  # one whose brokers went away may not find them again (see `reconnect.py`)


def take_over(
    producer_of: Callable[[str], Producer] | None,
    consumer: Consumer,
    store: OffsetStore,
    inputs: Mapping[TaskId, Collection[Partition]],
    owners: Mapping[TaskId, str],
    previous: str | None,
    start_of: Callable[[Partition], int],
    topology: str,
) -> Collection[TaskId]:
    """Write new owners beside the offsets of those tasks that `previous` still owns: a compare-and-swap.

    Args:
        producer_of: makes a producer that has an owner's transactional id to itself, so that owner is fenced; None
            without transactions, where the same is done as well as it can be.
        consumer: of the application's group.
        store: reads the committed offsets, after the fencing.
        inputs: the input partitions of each task.
        owners: the new owner of each.
        previous: who must own a task still; None for nobody.
        start_of: where a partition that was never committed begins.
        topology: hash of the one whose tasks these are from now on.

    Returns:
        the tasks that have new owners now.

    Raises:
        OwnershipError: somebody else was faster.
        KafkaException: the broker refused for another reason.
    """
    producer = None if producer_of is None else producer_of(previous or UNOWNED)
    tasks: Collection[TaskId] = owners
    everything = store.try_read([partition for task in owners for partition in inputs[task]], _AT_ONCE_S)
    if everything is None:
        # Some of them are another's already, who has a transaction open. Only what still is to be taken is waited for:
        # nobody but this producer can have one pending there.
        seen = store.survey([partition for task in owners for partition in inputs[task]])
        tasks = [task for task in owners if takeable(previous, {each: seen[each] for each in inputs[task]})]
        everything = store.read([partition for task in tasks for partition in inputs[task]])
    wanted: dict[Partition, tuple[int, OffsetMetadata]] = {}
    taken: list[TaskId] = []
    for task in tasks:
        committed = {partition: everything[partition] for partition in inputs[task]}
        if takeable(previous, committed):
            wanted |= claimed(committed, start_of, owners[task], next_epoch(committed), topology, {previous, None})
            taken.append(task)
    if not wanted:
        return ()
    if producer is None:
        commit_directly(consumer, wanted)
    else:
        commit_under(producer, consumer.consumer_group_metadata(), wanted)
    log.info("took %d partitions over from owner %s", len(wanted), previous or UNOWNED)
    return taken


def commit_under(producer: Producer, group: Any, offsets: Offsets) -> None:
    """Commit offsets in a transaction of their own.

    Raises:
        OwnershipError: the producer is fenced.
        KafkaException: the broker refused for another reason.
    """
    try:
        producer.begin_transaction()
        for part in portions(topic_partitions(offsets)):
            producer.send_offsets_to_transaction(part, group, _COMMIT_S)
        producer.commit_transaction(_COMMIT_S)
    except KafkaException as error:
        if is_fenced(error):
            raise OwnershipError("another worker claimed the same tasks at the same time.") from error
        raise


def commit_directly(consumer: Consumer, offsets: Offsets) -> None:
    """Commit offsets without a transaction.

    Raises:
        KafkaException: the broker refused.
    """
    for part in portions(topic_partitions(offsets)):
        for each in consumer.commit(offsets=part, asynchronous=False) or ():
            if each.error is not None:
                raise KafkaException(each.error)


def claimed(
    committed: Mapping[Partition, CommittedOffset],
    start_of: Callable[[Partition], int],
    worker: str,
    epoch: int,
    topology: str,
    of: Collection[str | None] | None = None,
) -> dict[Partition, tuple[int, OffsetMetadata]]:
    """The offsets as they are, with `worker` as their owner, as those of a task of the topology with this hash.

    A partition never committed starts at `start_of`.

    With `of`, only the partitions of those owners.
    """
    return {
        partition: (
            start_of(partition) if each.offset is None else each.offset,
            OffsetMetadata(
                owner=worker,
                epoch=epoch,
                partition_time=each.metadata.partition_time,
                processors=each.metadata.processors,
                topology=topology,
                changelogs=each.metadata.changelogs_for(topology),
            ),
        )
        for partition, each in committed.items()
        if of is None or each.metadata.owner in of
    }
