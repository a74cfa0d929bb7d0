"""After the broker refused a record: find out which one, and let the production handler decide about it alone.

On the fast path nobody asks about single records, so a refusal only says that something in a batch was wrong: the
transaction is aborted, or the producer gives up rather than leave a gap. The worker then goes back to its last commit
and processes the same records again with care: each outgoing record travels in a batch of its own, with a report and
with the source record it came from. A record that is refused then is known, and the handler (KIP-210) is asked. Once
everything is through that had been processed at the first refusal, the worker is fast again.

A changelog record is nobody's to drop: no handler is asked about one, and the worker ends (see `rejected_changelog.py`).

Under exactly_once a refusal spoils the whole transaction. So the record is remembered, the worker goes back once
more, and this time the handler is asked instead of the broker.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from millpond.errors import BrokerError
from millpond.runtime.offsets.metadata import Partition
from millpond.runtime.processing.context import Outgoing, TaskContext
from millpond.runtime.processing.handlers import Handlers, Result

from .record_collector import RecordCollector, timestamped
from .rejected_changelog import RecordLimits, changelog_rejected

__all__ = ("CAREFUL_RECORDS", "CarefulCollector", "RejectedRecords", "SourcedRow")

log = logging.getLogger(__name__)

#: Records per turn of the loop while the worker is careful; each turn is committed.
CAREFUL_RECORDS = 200
#: How long one turn waits for reports; the loop goes on in between.
_SETTLE_S = 0.5
_SETTLE_STEP_S = 0.02
#: A batch is not made smaller than this because of a topic's `max.message.bytes`.
_SMALLEST_BATCH = 16 * 1024
_LARGEST_BATCH = 1_000_000

#: What a broker or the client says of one record, whatever else is sent. All else is about the connection or rights.
_REFUSING = frozenset(
    {
        KafkaError.MSG_SIZE_TOO_LARGE,
        KafkaError.RECORD_LIST_TOO_LARGE,
        KafkaError.INVALID_RECORD,
        KafkaError.INVALID_TIMESTAMP,
        KafkaError.INVALID_MSG,
        KafkaError._UNKNOWN_TOPIC,
        KafkaError._UNKNOWN_PARTITION,
    }
)


def refuses(error: KafkaError) -> bool:
    """Whether the error is about a record, so that trying the same again would fail the same way."""
    return error.code() in _REFUSING or error.code() == KafkaError._GAPLESS_GUARANTEE


class SourcedRow(tuple[Any, ...]):  # noqa: SLOT001 - a tuple of varying length can have no slots
    """An outgoing row that knows the source record it came from."""

    context: TaskContext | None = None
    message: Message | None = None
    identity: tuple[Any, ...] = ()


class _LoggedRow(tuple[Any, ...]):  # noqa: SLOT001 - a tuple of varying length can have no slots
    """A changelog row that knows its store."""

    store: str = ""


class RejectedRecords:
    """What was refused, over all recoveries of one worker.

    Attributes:
        careful: records are sent one by one now.
        batch_bytes: the largest batch the topics are known to take, None while no limit was met.
    """

    def __init__(self) -> None:
        self.careful = False
        self.batch_bytes: int | None = None
        self._known: dict[tuple[Any, ...], KafkaError] = {}
        self._until: dict[Partition, int] = {}
        self._found = 0
        self._too_large = False

    def met(self, error: KafkaError, positions: Mapping[Partition, int]) -> None:
        """A refusal sends the worker back; all up to `positions` is processed with care."""
        if not self.careful:
            self._too_large = error.code() == KafkaError.MSG_SIZE_TOO_LARGE or "too large" in error.str()
            self._found = 0
        self.careful = True
        for partition, position in positions.items():
            self._until[partition] = max(position, self._until.get(partition, 0))

    def add(self, row: SourcedRow, error: KafkaError) -> None:
        """Remember a refused row, for the next time it is about to be sent.

        Raises:
            BrokerError: it was to be remembered before, so the application makes another record each time.
        """
        if row.identity in self._known:
            raise BrokerError(f"{_described(row)} is refused again and again ({error.str()}).")
        self._known[row.identity] = error
        self._found += 1

    def of(self, row: Outgoing) -> KafkaError | None:
        """Why the row was refused before, None when it was not."""
        return self._known.get(row.identity) if isinstance(row, SourcedRow) else None

    def found(self) -> None:
        """A refused row was dealt with at once."""
        self._found += 1

    def forget(self, row: Outgoing) -> None:
        """Try the row again."""
        self._known.pop(getattr(row, "identity", ()), None)

    def behind(self, positions: Mapping[Partition, int]) -> bool:
        """Whether something of what was on its way at the first refusal is still to be processed."""
        return any(position < self._until.get(partition, 0) for partition, position in positions.items())

    def awaits(self, partitions: Iterable[Partition]) -> bool:
        """Whether something of it is to be processed in these, whose tasks do not run yet."""
        return any(partition in self._until for partition in partitions)

    def over(self) -> None:
        """All of it is through and committed: the worker may be fast again."""
        if self._too_large and not self._found:
            # No single record was too large, so the batch was: the topic takes less than the client sends at once.
            self.batch_bytes = max(_SMALLEST_BATCH, (self.batch_bytes or _LARGEST_BATCH) // 4)
            log.info(
                "a topic takes smaller batches only: sending at most %d bytes at once from now on", self.batch_bytes
            )
        self.careful = False
        self._known.clear()
        self._until.clear()


class _SourcedOutbox(list[Outgoing]):
    """An outbox that notes where each row comes from. Sinks append to it like to any list."""

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
    """Sends each record in a batch of its own, and acts on the report of each.

    Needs a producer made for it (`make_producer(..., careful=True)`).
    """

    def __init__(
        self,
        producer: Producer,
        *,
        transactional: bool,
        refusals: RejectedRecords,
        handlers: Handlers,
        contexts: Callable[[], Iterable[TaskContext]],
        limits: RecordLimits,
    ) -> None:
        super().__init__(producer, transactional=transactional)
        self._limits = limits
        self.outbox = _SourcedOutbox(contexts)
        self._refusals = refusals
        self._handlers = handlers
        self._contexts = contexts
        self._reports: list[tuple[Outgoing, KafkaError]] = []

    def send(self, rows: Any) -> None:
        """As the fast one does, but each row by itself; rows refused before are the handler's."""
        self.ensure_transaction()
        for row in rows:
            error = self._refusals.of(row)
            if error is not None:
                self._ask(row, KafkaException(error))
                continue
            self._send_one(row)
        self.producer.poll(0)

    def send_tracked(self, key: Any, rows: list[Outgoing]) -> None:
        """As the fast one does, but each row by itself.

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
                    was_empty = self.await_room(was_empty)
                    continue
            except KafkaException as error:
                if error.args[0].code() == KafkaError._STATE:
                    self._await_refusal()
                if error.args[0].code() not in _REFUSING:
                    raise
                self._check_may_drop(row, error.args[0], by_client=True)
                self._refusals.found()
                self._ask(row, error)
                return
            else:
                self.sent += 1
                return

    def _await_refusal(self) -> None:
        """The client takes no more records, since the broker refused one of before: its report tells which one.

        Raises:
            KafkaException: what the first report says.
            BrokerError: a changelog record was refused, or one again and again.
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
        """Wait a little for the reports; returns whether all are there.

        Raises:
            KafkaException: a record was refused and the transaction with it, or the connection failed.
            ProcessingFailed: a record was refused and the handler said FAIL.
            BrokerError: a changelog record was refused.
        """
        for _ in range(int(_SETTLE_S / _SETTLE_STEP_S)):
            self.drain()
            unsent = self.producer.flush(_SETTLE_STEP_S)
            self._act_on_reports()
            if not unsent and not self.outbox:
                return True
        return False

    def delivered(self) -> bool:
        """Whether everything is acknowledged; see `settle` for what it raises."""
        unsent = self.producer.flush(0)
        self._act_on_reports()
        self.drain()
        return not unsent and not len(self.producer)

    def _act_on_reports(self) -> None:
        reports, self._reports = self._reports, []
        for row, error in reports:
            if error.code() not in _REFUSING:
                raise KafkaException(error)
            self._check_may_drop(row, error, by_client=False)
            if self._transactional:
                assert isinstance(row, SourcedRow)
                self._refusals.add(row, error)
                raise KafkaException(error)
            self._refusals.found()
            self._ask(row, KafkaException(error))

    def _check_may_drop(self, row: Outgoing, error: KafkaError, *, by_client: bool) -> None:
        """Raise BrokerError for a changelog record: the state could not be restored without it."""
        if isinstance(row, _LoggedRow):
            raise changelog_rejected(row.store, row, error, self._limits, by_client=by_client)

    def _ask(self, row: Outgoing, error: Exception) -> None:
        """Ask the production handler about a refused row.

        Raises:
            ProcessingFailed: it said FAIL.
            KafkaException: it said RETRY.
        """
        cause = error.args[0]
        context = getattr(row, "context", None) or next(iter(self._contexts()))
        described = BrokerError(f"{_described(row)} was refused: {cause.str()}")
        context.message, before = getattr(row, "message", None), context.message
        try:
            place = self._handlers.describe("Producing", str(row[0]), context, (row[2], row[1], row[6]))
            answer = self._handlers.handle(self._handlers.production, place, described, context, may_pass=True)
        finally:
            context.message = before
        if answer is Result.RETRY:
            self._refusals.forget(row)
            raise KafkaException(cause)


def _described(row: Outgoing) -> str:
    size = len(row[1] or b"") + len(row[2] or b"")
    return f"a record of {size} bytes for topic '{row[0]}'"
