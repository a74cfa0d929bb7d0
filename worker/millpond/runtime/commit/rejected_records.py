"""Careful mode: after a rejection, find the rejected record and call the production handler for it.

Normally records have no delivery callbacks, so a rejection only shows that something in a batch was wrong: the
transaction is aborted, or the producer stops with a fatal error to avoid a gap. The worker then goes back to its last
commit and processes the same records again in careful mode: each output record is sent in a batch of its own, with a
callback and with its source record. So the rejected record is found, and the production handler (KIP-210) is called.
Careful mode ends when everything that was in flight at the first rejection is processed and committed.

A changelog record must not be dropped: no handler is called for it, and the worker stops (`rejected_changelog.py`).

With exactly_once, a rejection aborts the whole transaction. So the record is remembered, the worker goes back
again, and this time the handler is called instead of sending the record.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from millpond.errors import BrokerError
from millpond.runtime import error_codes
from millpond.runtime.error_codes import Kind, kind_of
from millpond.runtime.offsets.metadata import Partition
from millpond.runtime.processing.context import Outgoing, TaskContext
from millpond.runtime.processing.handlers import Handlers, Result

from .record_collector import RecordCollector, timestamped
from .rejected_changelog import RecordLimits, changelog_rejected, output_rejected

__all__ = ("CAREFUL_RECORDS", "CarefulCollector", "RejectedRecords", "SourcedRow")

log: logging.Logger = logging.getLogger(__name__)

#: Records per turn of the loop in careful mode. Each turn is committed.
CAREFUL_RECORDS = 200
#: How long one turn waits for delivery reports, in seconds.
_SETTLE_S = 0.5
_SETTLE_STEP_S = 0.02
#: The minimum and the default size of a batch, in bytes, when a topic's `max.message.bytes` makes it smaller.
_SMALLEST_BATCH = 16 * 1024
_LARGEST_BATCH = 1_000_000

#: The client found no such topic or partition for a record, however long it looked.
_WITHOUT_TOPIC = frozenset({error_codes.UNKNOWN_TOPIC, error_codes.UNKNOWN_PARTITION})


def is_rejection(error: KafkaError) -> bool:
    """Return whether the error is the fault of a record, so that a retry would fail in the same way."""
    return _rejects(error) or error.code() == error_codes.GAPLESS_GUARANTEE


def _rejects(error: KafkaError) -> bool:
    """Return whether an error of one record is about this record, and not about the connection or permissions."""
    return kind_of(error) is Kind.RECORD or error.code() in _WITHOUT_TOPIC


def _with_topic(row: Outgoing, error: KafkaError) -> KafkaError:
    """Return the error of a delivery with the topic in its text."""
    return KafkaError(
        error.code(), f"{error.str()} (a record for topic '{row[0]}')", error.fatal(), error.retriable(),
        error.txn_requires_abort(),
    )  # fmt: skip


class SourcedRow(tuple[Any, ...]):  # noqa: SLOT001 - a tuple of varying length can have no slots
    """An output row with its source record."""

    context: TaskContext | None = None
    message: Message | None = None
    identity: tuple[Any, ...] = ()


class _LoggedRow(tuple[Any, ...]):  # noqa: SLOT001 - a tuple of varying length can have no slots
    """A changelog row with the name of its store."""

    store: str = ""


class RejectedRecords:
    """The rejected records of one worker, kept across its recoveries.

    Attributes:
        careful: whether the worker is in careful mode.
        batch_bytes: the maximum batch size that the topics accept, in bytes; None as long as no limit is known.
    """

    def __init__(self) -> None:
        self.careful: bool = False
        self.batch_bytes: int | None = None
        self._known: dict[tuple[Any, ...], KafkaError] = {}
        self._until: dict[Partition, int] = {}
        self._count = 0
        self._too_large = False

    def start(self, error: KafkaError, positions: Mapping[Partition, int]) -> None:
        """Start careful mode after a rejection, or extend it, up to `positions`."""
        if not self.careful:
            self._too_large = error.code() == KafkaError.MSG_SIZE_TOO_LARGE or "too large" in error.str()
            self._count = 0
        self.careful = True
        for partition, position in positions.items():
            self._until[partition] = max(position, self._until.get(partition, 0))

    def add(self, row: SourcedRow, error: KafkaError) -> None:
        """Remember a rejected row, to handle it instead of sending it next time.

        Raises:
            BrokerError: the row was remembered before and is rejected again.
        """
        if row.identity in self._known:
            raise BrokerError(
                f"{_described(row)} was rejected repeatedly ({error.str()}). Check the topic's configuration."
            )
        self._known[row.identity] = error
        self._count += 1

    def error_of(self, row: Outgoing) -> KafkaError | None:
        """Return the reason why the row was rejected before; None if it was not rejected."""
        return self._known.get(row.identity) if isinstance(row, SourcedRow) else None

    def count(self) -> None:
        """Count a rejected row whose handler is called at once."""
        self._count += 1

    def forget(self, row: Outgoing) -> None:
        """Forget that the row was rejected, so that it is sent again."""
        self._known.pop(getattr(row, "identity", ()), None)

    def is_behind(self, positions: Mapping[Partition, int]) -> bool:
        """Return whether any record that was in flight at the first rejection is still unprocessed."""
        return any(position < self._until.get(partition, 0) for partition, position in positions.items())

    def is_pending(self, partitions: Iterable[Partition]) -> bool:
        """Return whether any such record is in these partitions, whose tasks do not run yet."""
        return any(partition in self._until for partition in partitions)

    def finish(self) -> None:
        """End careful mode: all records in flight at the first rejection are processed and committed."""
        if self._too_large and not self._count:
            # No single record was too large, so the batch was: the topic's limit is below the client's batch size.
            self.batch_bytes = max(_SMALLEST_BATCH, (self.batch_bytes or _LARGEST_BATCH) // 4)
            log.info(
                "producer: a topic rejected a batch as too large, but none of its records; sending batches of at most "
                "%d bytes from now on",
                self.batch_bytes,
            )
        self.careful = False
        self._known.clear()
        self._until.clear()


class _SourcedOutbox(list[Outgoing]):
    """An outbox that keeps the source record of each row. Sinks append to it as to a list."""

    def __init__(self, contexts: Callable[[], Iterable[TaskContext]]) -> None:
        super().__init__()
        self._contexts = contexts
        self._place: tuple[Any, ...] = ()
        self._count = 0

    def append(self, row: Outgoing, /) -> None:
        sourced = SourcedRow(row)
        for context in self._contexts():
            if context.message is not None:
                message = context.message
                place = (message.topic(), message.partition(), message.offset())
                self._count = self._count + 1 if place == self._place else 0
                self._place = place
                sourced.context, sourced.message = context, message
                sourced.identity = (*place, row[0], self._count)
                break
        else:
            sourced.identity = (row[0], row[1], row[2], row[3], row[6])
        super().append(sourced)


class CarefulCollector(RecordCollector):
    """A collector that sends each record in a batch of its own, and handles its delivery report.

    The collector needs a producer made with `make_producer(…, careful=True)`.
    """

    sent: int

    def __init__(  # noqa: PLR0913 - keyword-only, in one call
        self,
        producer: Producer,
        *,
        transactional: bool,
        rejected: RejectedRecords,
        handlers: Handlers,
        contexts: Callable[[], Iterable[TaskContext]],
        limits: RecordLimits,
    ) -> None:
        super().__init__(producer, transactional=transactional)
        self._limits = limits
        self.outbox: _SourcedOutbox = _SourcedOutbox(contexts)
        self._rejected = rejected
        self._handlers = handlers
        self._contexts = contexts
        self._reports: list[tuple[Outgoing, KafkaError]] = []

    def send(self, rows: Any) -> None:
        """Hand each row to the producer by itself; for rows that were rejected before, call the handler instead."""
        self.ensure_transaction()
        for row in rows:
            error = self._rejected.error_of(row)
            if error is not None:
                self._call_handler(row, KafkaException(error))
                continue
            self._send_one(row)
        self.producer.poll(0)

    def send_tracked(self, key: Any, rows: list[Outgoing]) -> None:
        """Hand each changelog row to the producer by itself; see `RecordCollector.send_tracked`.

        Raises:
            BrokerError: the client rejects a row.
        """
        self.ensure_transaction()
        last = rows[-1]
        rows[-1] = (*last[:4], self._tracker(key), *last[5:])
        for row in rows:
            logged = _LoggedRow(row)
            logged.store = key[0]
            self._send_one(logged)
        self.producer.poll(0)

    def _send_one(self, row: Outgoing) -> None:
        reported = timestamped((*row[:4], self._report(row), *row[5:]))
        was_empty = False
        while True:
            try:
                try:
                    self.producer.produce(*reported)
                except BufferError:
                    was_empty = self.await_room(was_empty=was_empty)
                    continue
            except KafkaException as error:
                if error.args[0].code() == error_codes.STATE:
                    self._await_rejection()
                if not _rejects(error.args[0]):
                    raise
                self._check_may_drop(row, error.args[0], by_client=True)
                self._rejected.count()
                self._call_handler(row, error, by_client=True)
                return
            else:
                self.sent += 1
                return

    def _await_rejection(self) -> None:
        """Wait for the delivery report of the rejected record that made the client stop accepting records.

        Raises:
            KafkaException: the error of the first report.
            BrokerError: a changelog record was rejected, or a record was rejected repeatedly.
        """
        for _ in range(int(_SETTLE_S / _SETTLE_STEP_S)):
            self.producer.poll(_SETTLE_STEP_S)
            self._act_on_reports()

    def _report(self, row: Outgoing) -> Callable[[KafkaError | None, Message], None]:
        tracker = row[4]

        def delivered(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                self._reports.append((row, error))
            elif tracker is not None:
                tracker(error, message)

        return delivered

    def settle(self) -> bool:
        """Wait up to 0.5 s for the reports; return whether all have arrived.

        Raises:
            KafkaException: a rejected record aborted the transaction, or the connection failed.
            ProcessingFailed: a record was rejected, and the handler returned FAIL.
            BrokerError: a changelog record was rejected.
        """
        for _ in range(int(_SETTLE_S / _SETTLE_STEP_S)):
            self.drain()
            unsent = self.producer.flush(_SETTLE_STEP_S)
            self._act_on_reports()
            if not unsent and not self.outbox:
                return True
        return False

    def delivered(self) -> bool:
        """Return whether all records are acknowledged; raises as `settle` does."""
        unsent = self.producer.flush(0)
        self._act_on_reports()
        self.drain()
        return not unsent and not len(self.producer)

    def _act_on_reports(self) -> None:
        reports, self._reports = self._reports, []
        for row, error in reports:
            if not _rejects(error):
                raise KafkaException(_with_topic(row, error))
            self._check_may_drop(row, error, by_client=False)
            if self._transactional:
                assert isinstance(row, SourcedRow)
                self._rejected.add(row, error)
                raise KafkaException(error)
            self._rejected.count()
            self._call_handler(row, KafkaException(error))

    def _check_may_drop(self, row: Outgoing, error: KafkaError, *, by_client: bool) -> None:
        """Raise `BrokerError` for a changelog record, without which the state could not be restored."""
        if isinstance(row, _LoggedRow):
            raise changelog_rejected(row.store, row, error, self._limits, by_client=by_client)

    def _call_handler(self, row: Outgoing, error: Exception, *, by_client: bool = False) -> None:
        """Call the production handler for a rejected row.

        Raises:
            ProcessingFailed: the handler returned FAIL.
            KafkaException: the handler returned RETRY.
            BrokerError: the row is a dead letter. One that is made of it would be as large, and rejected again.
        """
        cause = error.args[0]
        context = getattr(row, "context", None) or next(iter(self._contexts()))
        described = output_rejected(row, cause, self._limits, by_client=by_client)
        if row[0] == self._handlers.dead_letter_topic:
            raise described from error
        context.message, before = getattr(row, "message", None), context.message
        try:
            place = self._handlers.describe("Producing", str(row[0]), context, (row[2], row[1], row[6]))
            answer = self._handlers.handle(self._handlers.production, place, described, context, may_retry=True)
        finally:
            context.message = before
        if answer is Result.RETRY:
            self._rejected.forget(row)
            raise KafkaException(cause)


def _described(row: Outgoing) -> str:
    size = len(row[1] or b"") + len(row[2] or b"")
    return f"a record of {size} bytes for topic '{row[0]}'"
