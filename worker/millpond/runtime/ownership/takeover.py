"""Claims and take-overs of tasks, and reads of the offset metadata that names their owners.

A take-over is a transaction under the previous owner's transactional id, so it is a compare-and-swap: of two workers
that take over the same task, one is fenced. Tasks without an owner are claimed under `<application.id>-unowned`.
See docs/decisions/0013-ownership.md.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import timedelta
from typing import Any, TypeVar

from confluent_kafka import OFFSET_INVALID, Consumer, KafkaError, KafkaException, Producer, TopicPartition

from millpond.backoff import Backoff
from millpond.errors import BrokerError, OwnershipError
from millpond.runtime import error_codes
from millpond.runtime.commit.pipeline import Offsets, is_fenced, portions, topic_partitions
from millpond.runtime.commit.unchanged_offsets import Committed, OffsetCheck, OffsetsChanged, later, unordered
from millpond.runtime.error_codes import Request, may_repeat
from millpond.runtime.kafka.group_events import told_by_events
from millpond.runtime.kafka.replaceable_consumer import close_in_background
from millpond.runtime.missing_rights import Access
from millpond.runtime.offsets.marks import Marks
from millpond.runtime.offsets.metadata import (
    CommittedOffset,
    OffsetMetadata,
    Partition,
    decode_metadata,
    next_epoch,
    takeable,
    text_of,
)
from millpond.topology import TaskId

__all__ = ("UNOWNED", "OffsetStore", "commit_directly", "commit_under", "init_producer", "take_over")

log: logging.Logger = logging.getLogger(__name__)

T = TypeVar("T")

#: The name of the owner of tasks without an owner, in its transactional id.
UNOWNED = "unowned"

#: How long the first request for committed offsets may take. A new client sends each further one, which may take twice
#: as long: one fixed limit would discard every new client where connecting takes longer than the limit.
_REQUEST_TIMEOUT_S = 2.0
_LONGEST_REQUEST_S = 20.0
_LOGGED_AFTER_S = 5.0
#: After a silence of this length an answer may be outdated: a broker that continues knows its successor within 0.2 s.
#: New clients are slower, since they connect first.
_SILENCE_S = 0.25
_CATCH_UP_S = 0.5
_PAUSE_S = 0.02
_COMMIT_TIMEOUT_S = 60.0
_CHECK_S = 10.0
_TRY_READ_TIMEOUT_S = 0.1
#: While the broker ends an open transaction, it rejects the next producer with that id. That client would retry after a
#: fixed half second; a new client retries earlier, if the old one is closed before its own retry. The wait is
#: also short because a live owner starts again a tenth of a second after it was fenced.
_FIRST_INIT, _LONGEST_INIT = timedelta(milliseconds=50), timedelta(seconds=10)
#: From this wait on, the client's own retry is used: the transaction will not end soon.
_CLIENT_RETRY_S = 0.5
_UNKNOWN = Access()


class _OutOfDate(KafkaException):
    """A committed offset is below its mark. It is read again until `Marks` accepts it or raises, after 30 s at most."""


class OffsetStore:
    """The committed offsets of the application's group.

    Args:
        consumer: returns the calling thread's consumer of the group; its isolation level decides whether it waits for
            pending transactions.
        forget_consumer: called when that consumer gets no answer, so that the calling thread gets another one.
        surveyor: makes a consumer of the group that does not wait for pending transactions.
        stopping: returns whether to give up; called while waiting.
        patience_s: how long to wait for a broker, in seconds.
        access: see the attribute.
        exactly_once: whether offsets that brokers have lost are an error.

    Attributes:
        access: names user and group in errors about missing rights.
        marks: the lower bounds of committed offsets; an answer below them is out of date.
    """

    def __init__(  # noqa: PLR0913 - its collaborators
        self,
        consumer: Callable[[], Consumer],
        forget_consumer: Callable[[], None],
        surveyor: Callable[[], Consumer],
        stopping: Callable[[], bool],
        patience_s: float,
        access: Access = _UNKNOWN,
        *,
        exactly_once: bool = False,
    ) -> None:
        self.marks: Marks = Marks(group=access.application_id if exactly_once else "")
        self._answered = threading.local()  # the consumer that got an answer last
        # The pairs of expected and found offsets that were refused because their order is not clear.
        self._refused: dict[Partition, tuple[CommittedOffset, CommittedOffset]] = {}
        self._consumer = consumer
        self._forget_consumer = forget_consumer
        self._surveyor = surveyor
        self._stopping = stopping
        self._patience_s = patience_s
        self.access: Access = access

    def read(self, partitions: Sequence[Partition]) -> dict[Partition, CommittedOffset]:
        """Return committed offsets with metadata, after pending transactions of the group have ended.

        Raises:
            BrokerError: the group coordinator did not answer in time, or rejected the request.
            OffsetsLost: it has lost commits.
        """
        return self._retry(
            lambda timeout_s: self._check_marks(self._ask(partitions, timeout_s)),
            self._forget_consumer,
            kept=self._consumer() is getattr(self._answered, "consumer", None),
        )

    def try_read(self, partitions: Sequence[Partition], timeout_s: float) -> dict[Partition, CommittedOffset] | None:
        """Return committed offsets like `read`, without a retry; None without an up-to-date answer in time.

        Raises:
            OffsetsLost: brokers have lost commits.
        """
        try:
            return self._check_marks(self._ask(partitions, timeout_s))
        except KafkaException:
            return None

    def survey(self, partitions: Sequence[Partition]) -> dict[Partition, CommittedOffset]:
        """Return committed offsets like `read`, without waiting for pending transactions unless they are out of date.

        A broker that served offsets while it loaded them answers such a request with earlier offsets until the next
        commit, which may never happen. So an answer that is out of date is replaced by that of `read`, and proves no
        loss of commits.

        Raises:
            BrokerError: the group coordinator did not answer in time, or rejected the request.
        """
        found = self._retry(lambda timeout_s: self.read_anew(partitions, timeout_s), lambda: None)
        return self.read(partitions) if self.marks.behind(found) else found

    def read_anew(self, partitions: Sequence[Partition], timeout_s: float) -> dict[Partition, CommittedOffset]:
        """Return committed offsets, with a new client and without waiting for pending transactions.

        Raises:
            KafkaException: the group coordinator did not answer in time, or rejected the request.
        """
        consumer = self._surveyor()
        try:
            return _committed(consumer, partitions, timeout_s)
        finally:
            close_in_background(consumer)

    def check_unchanged(self, expected: Committed, left_s: Callable[[], float]) -> None:
        """Check committed offsets as an `OffsetCheck`, with clients that have to find the group's coordinator first.

        Offsets before the expected ones prove nothing: a broker that served offsets while it loaded them keeps such
        answers to reads of unstable offsets until the next commit, which this is (docs/decisions/0039). Where it is not
        clear which of the two are later, they are refused once: if a lookup after that has the expected ones again,
        these are the later ones.
        """
        if not expected:
            return
        began = time.monotonic()
        while True:
            try:
                found = self.read_anew(list(expected), _REQUEST_TIMEOUT_S)
                break
            except KafkaException as error:
                if left_s() <= 0 or not may_repeat(error.args[0], Request.READ, time.monotonic() - began):
                    raise
            time.sleep(_PAUSE_S)
        if changed := later(expected, found):
            raise OffsetsChanged(*changed)
        refused, self._refused = self._refused, {**self._refused, **(unclear := unordered(expected, found))}
        for partition, pair in unclear.items():
            if refused.get(partition) != pair:
                time.sleep(_CATCH_UP_S)  # no broker that was frozen answers the next lookup
                raise OffsetsChanged(partition, *pair)

    def _ask(self, partitions: Sequence[Partition], timeout_s: float) -> dict[Partition, CommittedOffset]:
        consumer = self._consumer()
        found = _committed(consumer, partitions, timeout_s)
        self._answered.consumer = consumer
        return found

    def _check_marks(self, found: dict[Partition, CommittedOffset]) -> dict[Partition, CommittedOffset]:
        if self.marks.outdated(found):
            raise _OutOfDate(KafkaError(KafkaError.COORDINATOR_LOAD_IN_PROGRESS))
        return found

    def _retry(self, request: Callable[[float], T], unanswered: Callable[[], None], *, kept: bool = False) -> T:
        """Send a request until it is answered.

        A late answer to a client that knows the coordinator may be of a broker that was frozen, and does not know yet
        that another one has taken its place: a moment later, a new client asks again
        (docs/decisions/0064-offsets-of-a-frozen-broker.md).

        Args:
            request: sends it, and waits for the given number of seconds.
            unanswered: called after a request that got no answer, so that a new client sends the next one.
            kept: whether the client of the first request has got an answer before.
        """
        began = time.monotonic()
        timeout_s = _REQUEST_TIMEOUT_S
        logged = False
        while True:
            requested = time.monotonic()
            try:
                answer = request(timeout_s)
                if not kept or time.monotonic() - requested < _SILENCE_S or self._stopping():
                    return answer
                kept = False
                unanswered()
                time.sleep(_CATCH_UP_S)
            except KafkaException as error:
                cause = error.args[0]
                waited = time.monotonic() - began
                timed_out = waited >= self._patience_s and not isinstance(error, _OutOfDate)
                if self._stopping() or not may_repeat(cause, Request.READ, waited) or timed_out:
                    raise BrokerError(
                        f"cannot read the committed offsets: {cause.str().rstrip('.')}. {self.access.cure(cause)}"
                    ) from error
                if waited >= _LOGGED_AFTER_S and not logged and not isinstance(error, _OutOfDate):
                    logged = True
                    log.warning("committed offsets: no answer for %.1f s (%s); retrying", waited, cause.str())
                if time.monotonic() - requested >= timeout_s:
                    kept = False
                    unanswered()
                    timeout_s = min(2 * timeout_s, _LONGEST_REQUEST_S)
                time.sleep(_PAUSE_S)  # some errors are raised at once


def _committed(
    consumer: Consumer, partitions: Sequence[Partition], timeout_s: float
) -> dict[Partition, CommittedOffset]:
    if not partitions:
        return {}
    wanted = [TopicPartition(each.topic, each.partition) for each in partitions]
    try:
        answer = consumer.committed(wanted, timeout=timeout_s)
    except KafkaException as error:
        raise KafkaException(told_by_events(consumer) or error.args[0]) from error
    for each in answer:
        # Without this check a failed partition would look like one without a committed offset.
        if each.error is not None:
            raise KafkaException(each.error)
    return {
        Partition(each.topic, each.partition): CommittedOffset(
            None if each.offset == OFFSET_INVALID else each.offset, decode_metadata(text_of(each))
        )
        for each in answer
    }


def init_producer(
    make: Callable[[], Producer], stopping: Callable[[], bool], patience_s: float, access: Access = _UNKNOWN
) -> Producer:
    """Return a producer with initialised transactions: earlier users of its id are fenced, open transactions aborted.

    Args:
        make: makes the producer; called again if an open transaction delays the initialisation.
        stopping: returns whether to give up; called while waiting.
        patience_s: how long to try, in seconds.
        access: names user and transactional ids in errors about missing rights.

    Raises:
        BrokerError: the broker rejected the request, or did not answer in time.
    """
    began = time.monotonic()
    producer = make()
    waits = iter(Backoff(_FIRST_INIT, _LONGEST_INIT))
    wait = next(waits)
    while True:
        try:
            producer.init_transactions(wait)
            return producer
        except KafkaException as error:
            cause = error.args[0]
            waited = time.monotonic() - began
            if stopping() or not may_repeat(cause, Request.BEGIN, waited) or waited >= patience_s:
                raise BrokerError(f"cannot begin transactions: {cause.str()}. {access.cure(cause)}") from error
            if cause.code() == KafkaError.CONCURRENT_TRANSACTIONS:
                replace = wait < _CLIENT_RETRY_S
            elif cause.retriable():
                # A client that lost its brokers may not find them again (see `reconnect.py`).
                replace = cause.code() == error_codes.TIMED_OUT and wait >= _CLIENT_RETRY_S
            else:
                replace = True
                time.sleep(wait)
            wait = next(waits)
            if wait == _LONGEST_INIT.total_seconds():
                log.warning("producer: the broker does not initialise transactions (%s); retrying", cause.str())
                replace = True
            if replace:
                producer = make()


def take_over(  # noqa: PLR0913 - the parts of one compare-and-swap
    producer_of: Callable[[str], Producer] | None,
    consumer: Callable[[], Consumer],
    store: OffsetStore,
    inputs: Mapping[TaskId, Collection[Partition]],
    owners: Mapping[TaskId, str],
    previous: str | None,
    start_of: Callable[[Partition], int],
    topology: str,
) -> Collection[TaskId]:
    """Commit new owners of those tasks that `previous` still owns: a compare-and-swap.

    Args:
        producer_of: makes a producer that fences the owner of a transactional id; None without transactions,
            where the compare-and-swap is not atomic.
        consumer: returns a consumer of the application's group. It is called after the reads, which may replace it.
        store: reads the committed offsets, after the fencing, and compares them before the transaction is committed.
        inputs: the input partitions of each task.
        owners: the new owner of each task.
        previous: the worker that must still own the tasks; None for tasks without an owner.
        start_of: returns where a partition without a committed offset begins.
        topology: hash of the topology of the new owners.

    Returns:
        the tasks that have new owners now.

    Raises:
        OwnershipError: another worker took the tasks over first.
        OffsetsChanged: the offsets that were read are not the committed ones.
        KafkaException: the broker rejected the commit for another reason.
    """
    producer = None if producer_of is None else producer_of(previous or UNOWNED)
    tasks: Collection[TaskId] = owners
    everything = store.try_read([partition for task in owners for partition in inputs[task]], _TRY_READ_TIMEOUT_S)
    if everything is None:
        # Another worker may already own some of the tasks and have a transaction open. Read only tasks that can still
        # be taken over: there, no other producer can have a pending transaction.
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
        commit_directly(consumer(), wanted)
    else:
        group, expected = consumer().consumer_group_metadata(), {each: everything[each] for each in wanted}
        commit_under(producer, group, wanted, expected, store.check_unchanged)
    log.info("owner %s: took over the tasks of %d input partitions", previous or UNOWNED, len(wanted))
    return taken


def commit_under(producer: Producer, group: Any, offsets: Offsets, expected: Committed, check: OffsetCheck) -> None:
    """Commit offsets in a transaction of their own.

    Args:
        producer: the producer, without an open transaction.
        group: the metadata of the application's group.
        offsets: the offsets to commit.
        expected: the committed offsets from which they were made.
        check: checks that these are still the committed ones.

    Raises:
        OwnershipError: the producer is fenced.
        OffsetsChanged: the offsets that were read are not the committed ones.
        KafkaException: the broker rejected the commit for another reason.
    """
    began = time.monotonic()
    try:
        producer.begin_transaction()
        for part in portions(topic_partitions(offsets)):
            producer.send_offsets_to_transaction(part, group, _COMMIT_TIMEOUT_S)
        check(expected, lambda: began + _CHECK_S - time.monotonic())
        producer.commit_transaction(_COMMIT_TIMEOUT_S)
    except OffsetsChanged:
        # Until then nobody can read them; a failure leaves that to the next producer with this id.
        with contextlib.suppress(KafkaException):
            producer.abort_transaction(_COMMIT_TIMEOUT_S)
        raise
    except KafkaException as error:
        if is_fenced(error):
            raise OwnershipError("another worker took over the same tasks at the same time.") from error
        raise


def commit_directly(consumer: Consumer, offsets: Offsets) -> None:
    """Commit offsets without a transaction.

    Raises:
        KafkaException: the broker rejected the commit.
    """
    for part in portions(topic_partitions(offsets)):
        for each in consumer.commit(offsets=part, asynchronous=False) or ():
            if each.error is not None:
                raise KafkaException(each.error)


def claimed(  # noqa: PLR0913 - the parts of the metadata
    committed: Mapping[Partition, CommittedOffset],
    start_of: Callable[[Partition], int],
    worker: str,
    epoch: int,
    topology: str,
    of: Collection[str | None] | None = None,
) -> dict[Partition, tuple[int, OffsetMetadata]]:
    """Return the unchanged offsets with `worker` as owner, for a task of the topology with this hash.

    A partition without a committed offset begins at `start_of`. With `of`, only partitions of these owners change.
    """
    return {
        partition: (
            start_of(partition) if each.offset is None else each.offset,
            OffsetMetadata(
                owner=worker,
                epoch=epoch,
                partition_time=each.metadata.partition_time,
                processors=each.metadata.processors,
                shared=each.metadata.shared,
                topology=topology,
                changelogs=each.metadata.changelogs_for(topology),
                topic=each.metadata.topic,
            ),
        )
        for partition, each in committed.items()
        if of is None or each.metadata.owner in of
    }
