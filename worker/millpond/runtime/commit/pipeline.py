"""The commit pipeline: one commit at a time, while processing continues.

A commit has the phases of `CommitPhase`: its records are handed to the producer and acknowledged, then its offsets
are committed, and only then does the worker write its rows to the state file. In a transaction, the offsets are sent
while the last records are being delivered, and are valid once the transaction is committed, after both
(docs/decisions/0030-offsets-beside-deliveries.md). A thread does this, since the client's calls block. Output of
records that are processed meanwhile waits for the next transaction.
"""

from __future__ import annotations

import enum
import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from queue import SimpleQueue
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from millpond.runtime import error_codes
from millpond.runtime.error_codes import Kind, Request, kind_of, may_repeat
from millpond.runtime.offsets.metadata import OffsetMetadata, Partition, encode_metadata
from millpond.runtime.processing.tracing import RecordSpan
from millpond.topology import TaskId

from .lost_connections import LostConnections
from .record_collector import RecordCollector
from .unchanged_offsets import Committed, OffsetCheck

__all__ = ("Commit", "CommitFailed", "CommitPhase", "CommitPipeline", "OffsetCommitter", "TransactionCommitter")

log: logging.Logger = logging.getLogger(__name__)

Offsets = Mapping[Partition, tuple[int, OffsetMetadata]]

_CAUSE_TIMEOUT_S = 1.0
#: The shortest timeout of a call, however little time the transaction has left.
_SHORTEST_CALL_S = 0.5
#: Most calls return sooner: until then the loop does not poll the client, which would slow all threads down.
_USUAL_CALL_S = 0.1
#: The client's calls sometimes exceed their timeout: so much later a call counts as stuck.
_STUCK_S = 2.0
_MAX_REQUEST_BYTES = 256 * 1024
_OFFSET_BYTES = 200


class CommitFailed(Exception):
    """A commit failed, or its outcome is unknown.

    Attributes:
        fenced: another producer uses this worker's transactional id.
        cause: the error of the Kafka client; None for other errors.
        late: it did not end in time.
    """

    def __init__(
        self, message: str, *, fenced: bool = False, cause: KafkaError | None = None, late: bool = False
    ) -> None:
        super().__init__(message)
        self.fenced = fenced
        self.cause = cause
        self.late = late


class CommitPhase(enum.Enum):
    """The phase of the commit in flight."""

    IDLE = "idle"
    DELIVERING = "delivering"
    COMMITTING = "committing"


#: A store, its sealed rows as they go into the state file, and its metadata at the time of the seal.
SealedRows = tuple[Any, Any, bytes]


class Commit:
    """One commit: the offsets, the state rows that belong to them, and the start of the commit.

    Attributes:
        offsets: input positions with metadata.
        rows: rows for the state file, to be written once the offsets are committed.
        released: tasks that the commit hands over to their next owners.
        started: start of the commit, in monotonic seconds.
        started_ms: the same by the wall-clock time, in epoch milliseconds.
        first_timestamps: of each task with processed records, the timestamp of the first one, in epoch milliseconds.
        spans: the spans of records whose results it has; they end with it.
        expected: of tasks that this worker has not committed since their lookup, the committed offsets of the lookup.
        input_times: the first and the last record of each input, as `StreamTask.take_input_times` returns them.
    """

    __slots__ = (
        "expected",
        "first_timestamps",
        "input_times",
        "offsets",
        "released",
        "rows",
        "spans",
        "started",
        "started_ms",
    )

    def __init__(  # noqa: PLR0913 - what a commit consists of
        self,
        offsets: Offsets,
        rows: list[SealedRows],
        released: Sequence[TaskId] = (),
        started_ms: int = 0,
        first_timestamps: Sequence[int] = (),
        input_times: Sequence[tuple[int, str, int, int]] = (),
        spans: Sequence[RecordSpan] = (),
        expected: Committed = MappingProxyType({}),
    ) -> None:
        self.expected: Committed = expected
        self.offsets: Offsets = offsets
        self.rows: list[SealedRows] = rows
        self.released: Sequence[TaskId] = released
        self.started: float = time.monotonic()
        self.started_ms: int = started_ms
        self.first_timestamps: Sequence[int] = first_timestamps
        self.input_times: Sequence[tuple[int, str, int, int]] = input_times
        self.spans: Sequence[RecordSpan] = spans


class _Call(NamedTuple):
    """A call of the client that has not returned: its name, and monotonic times in seconds."""

    name: str
    began: float
    returns_by: float


class OffsetSink(Protocol):
    """The interface for committing offsets without blocking the caller."""

    def start(self, offsets: Offsets, expected: Committed) -> None:
        """Start a commit, while its records are being delivered, without committing anything yet.

        No other commit may be in flight.

        Args:
            offsets: the offsets to commit.
            expected: what must be committed now for some of their partitions, so that anything is committed.
        """

    def complete(self) -> None:
        """Commit the offsets, since all records are delivered."""

    def done(self) -> bool:
        """Return whether the offsets are committed.

        Raises:
            CommitFailed: the commit failed, or its outcome is unknown.
        """

    def close(self) -> None:
        """End the threads."""


def topic_partitions(offsets: Offsets) -> list[TopicPartition]:
    """Return offsets in the client's form."""
    return [
        TopicPartition(partition.topic, partition.partition, offset, encode_metadata(metadata))
        for partition, (offset, metadata) in offsets.items()
    ]


def _positions(partitions: Iterable[TopicPartition]) -> set[tuple[str, int, int]]:
    return {(each.topic, each.partition, each.offset) for each in partitions}


def portions(offsets: list[TopicPartition]) -> list[list[TopicPartition]]:
    """Return the offsets split into requests: the group's coordinator writes each as one batch, of at most 1 MiB."""
    found: list[list[TopicPartition]] = []
    size = _MAX_REQUEST_BYTES
    for each in offsets:
        size += _OFFSET_BYTES + len(each.topic) + len(each.metadata or "")
        if size > _MAX_REQUEST_BYTES:
            found.append([])
            size = 0
        found[-1].append(each)
    return found


class TransactionCommitter:
    """The committer for exactly_once: a thread adds offsets to the transaction, and commits it after all deliveries.

    After a failure it cannot be used again: the worker continues with another producer. After a timeout, the client
    allows the same call again, so the call is repeated until the broker answers or the transaction has no time left:
    the broker aborts one that is open for longer than `transaction.timeout.ms`.

    Args:
        producer: the producer of the transactions.
        consumer: a consumer of the application's group.
        on_done: called when a commit has ended, in the thread.
        left_s: returns how long the transaction may still be open, in seconds.
        longest_call_s: the maximum for one call, in seconds. A request that waits for longer may be sent twice.
        check: checks the committed offsets before the transaction is committed.
        connections: the lost connections of the producer.
        patience_s: after a lost connection, a call that waits for longer counts as stuck, in seconds
            (docs/decisions/0065-commits-after-disconnects.md).
    """

    def __init__(  # noqa: PLR0913 - its collaborators
        self,
        producer: Producer,
        consumer: Consumer,
        on_done: Callable[[], None],
        left_s: Callable[[], float],
        longest_call_s: float,
        check: OffsetCheck,
        connections: LostConnections,
        patience_s: float,
    ) -> None:
        self._producer = producer
        self._check = check
        self._connections = connections
        self._patience_s = patience_s
        self._left_s = left_s
        self._longest_call_s = longest_call_s
        self._group = consumer.consumer_group_metadata()
        self._on_done = on_done
        self._jobs: SimpleQueue[tuple[Offsets, Committed] | None] = SimpleQueue()
        #: True: the records of the commit are delivered. False: the committer is closed.
        self._deliveries: SimpleQueue[bool] = SimpleQueue()
        self._answers: SimpleQueue[CommitFailed | None] = SimpleQueue()
        self._closing = False
        self._call: _Call | None = None
        self._repeated = False
        self._thread = threading.Thread(target=self._work, name="millpond-commit", daemon=True)
        self._thread.start()

    def start(self, offsets: Offsets, expected: Committed) -> None:
        """Add the offsets to the transaction and check what is committed, in the thread."""
        self._jobs.put((offsets, expected))

    def complete(self) -> None:
        """Commit the transaction, in the thread."""
        self._deliveries.put(item=True)

    def done(self) -> bool:
        """Return whether the transaction is committed.

        Raises:
            CommitFailed: the commit failed, or its outcome is unknown.
        """
        if self._answers.empty():
            if (call := self._call) is not None:
                self._check_stuck(call)
            return False
        failure = self._answers.get()
        if failure is not None:
            raise failure
        return True

    def _check_stuck(self, call: _Call) -> None:
        if time.monotonic() - call.began < _USUAL_CALL_S:
            return
        self._producer.poll(0)  # the client's log arrives with it
        if not self._answers.empty():
            return
        now, since = time.monotonic(), self._connections.waits_since(call.began)
        if since is not None and now - since > self._patience_s:
            raise CommitFailed(
                f"the client's {call.name} has not returned for {now - call.began:.1f} s, and it may wait for a "
                "connection that it has lost, so the outcome of the commit is unknown"
            )
        if now - call.returns_by > _STUCK_S:
            raise CommitFailed(
                f"the client's {call.name} does not return, so the outcome of the commit is unknown", late=True
            )

    def cause_of(self, error: KafkaError, offset: tuple[Partition, int]) -> KafkaError:
        """Return the reason of a failed transaction, for an error of `produce` that only reports the failure.

        The client returns the reason only from calls about the transaction. So this method adds an offset. A commit
        never follows: the next producer with this transactional id aborts the transaction.

        Args:
            error: the error of `produce`; any other error is returned as it is.
            offset: a position that the worker has committed.
        """
        if error.code() != error_codes.STATE:
            return error
        (topic, partition), position = offset
        try:
            self._producer.send_offsets_to_transaction(
                [TopicPartition(topic, partition, position)], self._group, _CAUSE_TIMEOUT_S
            )
        except KafkaException as reason:
            return reason.args[0] if reason.args[0].txn_requires_abort() else error
        return error

    def close(self) -> None:
        """End the thread once its current call returns. A commit in flight is abandoned."""
        self._closing = True
        self._deliveries.put(item=False)
        self._jobs.put(None)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            offsets, expected = job
            try:
                for part in portions(topic_partitions(offsets)):
                    self._repeat(
                        "send_offsets_to_transaction",
                        lambda timeout_s, part=part: self._producer.send_offsets_to_transaction(  # type: ignore[misc]
                            part, self._group, timeout_s
                        ),
                    )
                self._connections.answered()  # by both coordinators
                self._check(expected, self._left_s)
                if not self._deliveries.get():
                    return
                self._repeat("commit_transaction", self._producer.commit_transaction)
                answer = None
                if self._repeated:
                    # It is committed. But the unanswered request may still arrive, in the next transaction with the
                    # same producer epoch. A new producer has a higher epoch.
                    answer = CommitFailed(
                        "the commit succeeded only after it was repeated, so a new producer is needed"
                    )
            except KafkaException as error:
                answer = CommitFailed(str(error.args[0]), fenced=is_fenced(error), cause=error.args[0])
            except Exception as error:  # noqa: BLE001 - a thread that died would leave the commit waiting for ever
                answer = CommitFailed(repr(error))
            self._answers.put(answer)
            self._on_done()
            if answer is not None:
                return

    def _repeat(self, name: str, call: Callable[[float], None]) -> None:
        while True:
            timeout_s = max(_SHORTEST_CALL_S, min(self._longest_call_s, self._left_s()))
            began = time.monotonic()
            self._call = _Call(name, began, began + timeout_s)
            try:
                call(timeout_s)
            except KafkaException as error:
                cause = error.args[0]
                over = self._closing or self._left_s() <= 0
                if over or not may_repeat(cause, Request.PRODUCE):
                    raise
                self._repeated = True
                log.warning("commit: no answer from the broker (%s); retrying", cause.str())
            else:
                return
            finally:
                self._call = None


class OffsetCommitter:
    """The committer for at_least_once: the consumer commits the offsets, and its `poll` delivers the answer."""

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer
        self._started: list[TopicPartition] = []
        self._sent: list[TopicPartition] = []
        self._answer: KafkaError | bool | None = None

    def start(self, offsets: Offsets, expected: Committed) -> None:
        """Keep the offsets: without a transaction, they are committed as soon as they are sent, and not compared."""
        self._started, self._sent = topic_partitions(offsets), []
        self._answer = None

    def complete(self) -> None:
        """Commit the offsets asynchronously."""
        self._sent = self._started
        self._consumer.commit(offsets=self._sent, asynchronous=True)

    def on_commit(self, error: KafkaError | None, partitions: list[TopicPartition]) -> None:
        """Record the broker's answer; the consumer's `on_commit` callback."""
        if _positions(partitions) != _positions(self._sent):
            return  # the answer to a commit from before the worker went back
        errors = [each.error for each in partitions if each.error is not None]
        self._answer = error or (errors[0] if errors else True)

    def done(self) -> bool:
        """Return whether the offsets are committed. Retries after transient errors.

        Raises:
            CommitFailed: the broker rejected the offsets.
        """
        answer = self._answer
        if answer is None:
            return False
        if answer is True:
            return True
        assert isinstance(answer, KafkaError)
        if may_repeat(answer, Request.COMMIT):
            log.warning("commit: the broker did not commit the offsets (%s); retrying", answer.str())
            self._answer = None
            self._consumer.commit(offsets=self._sent, asynchronous=True)
            return False
        raise CommitFailed(str(answer), cause=answer)

    def close(self) -> None:
        """Do nothing, since no thread is used."""


def is_fenced(error: KafkaException) -> bool:
    """Return whether the error means that another producer uses the transactional id."""
    cause = error.args[0]
    return isinstance(cause, KafkaError) and kind_of(cause) is Kind.FENCED


class CommitPipeline:
    """The commit in flight, which `advance()` drives. The worker's loop calls it; it never blocks."""

    def __init__(self, collector: RecordCollector, offsets: OffsetSink) -> None:
        self._collector = collector
        self._offsets = offsets
        self._commit: Commit | None = None
        self._unacknowledged = 0
        self._started = False
        self.phase: CommitPhase = CommitPhase.IDLE

    def begin(self, commit: Commit) -> None:
        """Start a commit whose records have been handed to the producer. No other commit may be in flight."""
        self._commit = commit
        self.phase = CommitPhase.DELIVERING
        self._unacknowledged, self._started = self._collector.unacknowledged, False
        self._collector.hasten()

    def advance(self) -> Commit | None:
        """Advance the commit as far as possible without blocking; return the commit when it is complete.

        Raises:
            CommitFailed, KafkaException, BrokerError: the commit failed; the worker goes back to the last commit.
        """
        if self.phase is CommitPhase.DELIVERING and self._commit is not None:
            delivered = self._collector.delivered()
            # The first acknowledgement shows that the transaction has begun at the broker. While the broker still
            # ends the former transaction it rejects offsets, and the client retries after longer and longer pauses.
            if not self._started and (delivered or self._collector.unacknowledged < self._unacknowledged):
                self._offsets.start(self._commit.offsets, self._commit.expected)
                self._started = True
            if delivered:
                self._offsets.complete()
                self.phase = CommitPhase.COMMITTING
        # Also while records are being delivered: the offsets may be rejected meanwhile.
        if self._started and self._offsets.done():
            commit, self._commit, self._started = self._commit, None, False
            self._collector.in_transaction = False
            self.phase = CommitPhase.IDLE
            return commit
        return None
