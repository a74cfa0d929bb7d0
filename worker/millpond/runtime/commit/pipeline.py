"""One commit at a time, beside the processing (design.md, "State is staged, then committed").

A commit goes through the phases of `CommitPhase`: its records are handed to the producer and acknowledged, then its
offsets are committed, and only then does the worker write its rows to the state file. In a transaction the offsets are
sent while the last records are being delivered, and count only once the transaction is committed, after both
(docs/decisions/0030-offsets-beside-deliveries.md). A thread does that, since the client blocks. Meanwhile processing goes on;
its output waits for the next transaction.
"""

from __future__ import annotations

import enum
import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from queue import SimpleQueue
from typing import Any, Protocol

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from millpond.runtime.offsets.metadata import OffsetMetadata, Partition, encode_metadata
from millpond.topology import TaskId

from .record_collector import RecordCollector

__all__ = ("Commit", "CommitFailed", "CommitPhase", "CommitPipeline", "OffsetCommitter", "TransactionCommitter")

log = logging.getLogger(__name__)

Offsets = Mapping[Partition, tuple[int, OffsetMetadata]]

_CALL_TIMEOUT_S = 5.0
_CAUSE_TIMEOUT_S = 1.0
#: The client's calls do not always keep to their timeout when a broker dies under them: after this long one is given up.
_STUCK_S = 7.0
_MOST_OFFSETS_BYTES = 256 * 1024
_OFFSET_BYTES = 200


class CommitFailed(Exception):
    """A commit did not happen, or nobody knows whether it did.

    Attributes:
        fenced: another producer uses this worker's transactional id.
        cause: what the client said, None when it was not the client.
    """

    def __init__(self, message: str, *, fenced: bool = False, cause: KafkaError | None = None) -> None:
        super().__init__(message)
        self.fenced = fenced
        self.cause = cause


class CommitPhase(enum.Enum):
    """Where the commit in flight is."""

    IDLE = "idle"
    DELIVERING = "delivering"
    COMMITTING = "committing"


#: A store, its sealed rows exactly as they go into the state file, and its metadata as of the seal.
SealedRows = tuple[Any, Any, bytes]


class Commit:
    """One commit: the offsets, the state rows that belong to them, and what it measured.

    Attributes:
        offsets: input positions with metadata.
        rows: what to write to the state file once the offsets are committed.
        released: tasks that it hands over to their next owners.
        started: monotonic seconds.
        started_ms: the same by the wall clock, in epoch milliseconds.
    """

    __slots__ = ("offsets", "released", "rows", "started", "started_ms")

    def __init__(
        self, offsets: Offsets, rows: list[SealedRows], released: Sequence[TaskId] = (), started_ms: int = 0
    ) -> None:
        self.offsets = offsets
        self.rows = rows
        self.released = released
        self.started = time.monotonic()
        self.started_ms = started_ms


class OffsetSink(Protocol):
    """Commits offsets without blocking the caller."""

    def start(self, offsets: Offsets) -> None:
        """Begin, while records of the commit are on their way; nothing else is in flight. Commits nothing yet."""

    def complete(self) -> None:
        """All records are delivered: commit."""

    def done(self) -> bool:
        """Whether the offsets are committed.

        Raises:
            CommitFailed: it failed, or its outcome is unknown.
        """

    def close(self) -> None:
        """Let go of threads."""


def topic_partitions(offsets: Offsets) -> list[TopicPartition]:
    """Offsets as the client wants them."""
    return [
        TopicPartition(partition.topic, partition.partition, offset, encode_metadata(metadata))
        for partition, (offset, metadata) in offsets.items()
    ]


def _positions(partitions: Iterable[TopicPartition]) -> set[tuple[str, int, int]]:
    return {(each.topic, each.partition, each.offset) for each in partitions}


def portions(offsets: list[TopicPartition]) -> list[list[TopicPartition]]:
    """The offsets in as many requests as they need: the group's coordinator writes each as one batch, of 1 MiB at most."""
    found: list[list[TopicPartition]] = []
    size = _MOST_OFFSETS_BYTES
    for each in offsets:
        size += _OFFSET_BYTES + len(each.topic) + len(each.metadata or "")
        if size > _MOST_OFFSETS_BYTES:
            found.append([])
            size = 0
        found[-1].append(each)
    return found


class TransactionCommitter:
    """Exactly once: a thread sends offsets to the producer's transaction, and commits it when the records are delivered.

    The first failure ends it: the worker goes on with another producer. The client's calls can be resumed after a timeout, so they are repeated until the broker answers; the broker itself
    ends a transaction that takes longer than `transaction.timeout.ms`.
    """

    def __init__(self, producer: Producer, consumer: Consumer, on_done: Callable[[], None]) -> None:
        self._producer = producer
        self._group = consumer.consumer_group_metadata()
        self._on_done = on_done
        self._jobs: SimpleQueue[list[TopicPartition] | None] = SimpleQueue()
        #: True when the records of the job are delivered, False when nobody waits for its end any more.
        self._deliveries: SimpleQueue[bool] = SimpleQueue()
        self._answers: SimpleQueue[CommitFailed | None] = SimpleQueue()
        self._closing = False
        self._called_at: float | None = None
        self._repeated = False
        self._thread = threading.Thread(target=self._work, name="millpond-commit", daemon=True)
        self._thread.start()

    def start(self, offsets: Offsets) -> None:
        """Send the offsets, in the thread."""
        self._jobs.put(topic_partitions(offsets))

    def complete(self) -> None:
        """Commit the transaction, in the thread."""
        self._deliveries.put(True)

    def done(self) -> bool:
        """Whether the transaction is committed."""
        if self._answers.empty():
            called_at = self._called_at
            if called_at is not None and time.monotonic() - called_at > _STUCK_S:
                raise CommitFailed("the client does not come back from the commit, and its outcome is unknown")
            return False
        failure = self._answers.get()
        if failure is not None:
            raise failure
        return True

    def cause_of(self, error: KafkaError, offset: tuple[Partition, int]) -> KafkaError:
        """Why the transaction came to nothing, where the client only said that it did when a further record was produced.

        The client tells the reason in calls about the transaction. The one that is made for it adds an offset, and is never followed
        by a commit: the next producer of this transactional id aborts whatever is open.
        """
        if error.code() != KafkaError._STATE:
            return error
        (topic, partition), position = offset
        try:
            self._producer.send_offsets_to_transaction(
                [TopicPartition(topic, partition, position)], self._group, _CAUSE_TIMEOUT_S
            )
        except KafkaException as told:
            return told.args[0] if told.args[0].txn_requires_abort() else error
        return error

    def close(self) -> None:
        """End the thread once its call returns; what is not complete is not committed."""
        self._closing = True
        self._deliveries.put(False)
        self._jobs.put(None)

    def _work(self) -> None:
        while (offsets := self._jobs.get()) is not None:
            try:
                for part in portions(offsets):
                    self._repeat(
                        lambda part=part: self._producer.send_offsets_to_transaction(  # type: ignore[misc]
                            part, self._group, _CALL_TIMEOUT_S
                        )
                    )
                if not self._deliveries.get():
                    return
                self._repeat(lambda: self._producer.commit_transaction(_CALL_TIMEOUT_S))
                answer = None
                if self._repeated:
                    # It is committed. But the request that went unanswered may arrive yet, within the next transaction,
                    # whose producer epoch is the same: a new producer has a higher one.
                    answer = CommitFailed("the commit went through only when it was repeated")
            except KafkaException as error:
                answer = CommitFailed(str(error.args[0]), fenced=is_fenced(error), cause=error.args[0])
            except Exception as error:
                answer = CommitFailed(repr(error))
            self._answers.put(answer)
            self._on_done()
            if answer is not None:
                return

    def _repeat(self, call: Callable[[], None]) -> None:
        while True:
            self._called_at = time.monotonic()
            try:
                call()
            except KafkaException as error:
                cause = error.args[0]
                if self._closing or not cause.retriable() or cause.txn_requires_abort():
                    raise
                self._repeated = True
                log.warning("the broker does not answer the commit (%s); trying again", cause.str())
            else:
                return
            finally:
                self._called_at = None


class OffsetCommitter:
    """At least once: offsets go to the group by themselves; the answer comes through the consumer's poll."""

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer
        self._started: list[TopicPartition] = []
        self._wanted: list[TopicPartition] = []
        self._answer: KafkaError | bool | None = None

    def start(self, offsets: Offsets) -> None:
        """Remember the offsets: without a transaction they count as soon as they are sent."""
        self._started, self._wanted = topic_partitions(offsets), []
        self._answer = None

    def complete(self) -> None:
        """Commit asynchronously."""
        self._wanted = self._started
        self._consumer.commit(offsets=self._wanted, asynchronous=True)

    def on_commit(self, error: KafkaError | None, partitions: list[TopicPartition]) -> None:
        """The consumer's `on_commit` callback."""
        if _positions(partitions) != _positions(self._wanted):
            return  # to a commit from before the worker went back
        errors = [each.error for each in partitions if each.error is not None]
        self._answer = error or (errors[0] if errors else True)

    def done(self) -> bool:
        """Whether the offsets are committed; errors that pass are tried again."""
        answer = self._answer
        if answer is None:
            return False
        if answer is True:
            return True
        assert isinstance(answer, KafkaError)
        if answer.retriable() or answer.code() in _PASSING:
            log.warning("the broker did not take the offsets (%s); trying again", answer.str())
            self._answer = None
            self._consumer.commit(offsets=self._wanted, asynchronous=True)
            return False
        raise CommitFailed(str(answer), cause=answer)

    def close(self) -> None:
        """Nothing to let go of."""


_PASSING = frozenset(
    {
        KafkaError._TRANSPORT,
        KafkaError._TIMED_OUT,
        KafkaError._WAIT_COORD,
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.NOT_COORDINATOR,
        KafkaError.REQUEST_TIMED_OUT,
    }
)
_FENCING = frozenset(
    {
        KafkaError._FENCED,
        KafkaError.PRODUCER_FENCED,
        KafkaError.INVALID_PRODUCER_EPOCH,
        KafkaError.INVALID_PRODUCER_ID_MAPPING,
        KafkaError.FENCED_INSTANCE_ID,
    }
)


def is_fenced(error: KafkaException) -> bool:
    """Whether the error means that somebody else uses the transactional id."""
    cause = error.args[0]
    return isinstance(cause, KafkaError) and cause.code() in _FENCING


class CommitPipeline:
    """Drives the one commit in flight. `advance()` is called from the worker's loop and never blocks."""

    def __init__(self, collector: RecordCollector, offsets: OffsetSink) -> None:
        self._collector = collector
        self._offsets = offsets
        self._commit: Commit | None = None
        self._on_their_way = 0
        self._started = False
        self.phase = CommitPhase.IDLE

    def begin(self, commit: Commit) -> None:
        """Start a commit whose records are with the producer already. Nothing may be in flight."""
        self._commit = commit
        self.phase = CommitPhase.DELIVERING
        self._on_their_way, self._started = self._collector.unacknowledged, False
        self._collector.hasten()

    def advance(self) -> Commit | None:
        """Go as far as possible; returns the commit when it is through.

        Raises:
            CommitFailed, KafkaException, BrokerError: it failed; the worker reinitialises its tasks.
        """
        if self.phase is CommitPhase.DELIVERING and self._commit is not None:
            delivered = self._collector.delivered()
            # The first acknowledgement says that the transaction has begun at the broker: offsets that come while it still
            # ends the one before are turned away, and tried again later and later.
            if not self._started and (delivered or self._collector.unacknowledged < self._on_their_way):
                self._offsets.start(self._commit.offsets)
                self._started = True
            if delivered:
                self._offsets.complete()
                self.phase = CommitPhase.COMMITTING
        # While records are being delivered, too: the offsets may be refused meanwhile.
        if self._started and self._offsets.done():
            commit, self._commit, self._started = self._commit, None, False
            self._collector.in_transaction = False
            self.phase = CommitPhase.IDLE
            return commit
        return None
