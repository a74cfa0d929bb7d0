"""Careful mode: each record is sent by itself, and the handler is called only for the rejected one."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Message

from millpond.errors import BrokerError
from millpond.runtime.commit.pipeline import CommitPhase
from millpond.runtime.commit.record_collector import RecordCollector
from millpond.runtime.commit.rejected_changelog import RecordLimits, output_rejected
from millpond.runtime.commit.rejected_records import CarefulCollector, RejectedRecords
from millpond.runtime.offsets.metadata import Partition
from millpond.runtime.processing.context import TaskContext
from millpond.runtime.processing.handlers import Handlers, Result, continue_on_error
from millpond.runtime.worker.loop import Loop
from millpond.topology import TaskId
from tests.runtime.memory_kafka import Kafka, Producer, error

IN = Partition("in", 0)
TOO_LARGE = KafkaError.MSG_SIZE_TOO_LARGE


class _Sending:
    """A careful collector of one task, whose records come from offset 7 of its input."""

    def __init__(
        self, *, transactional: bool, answer: Result = Result.CONTINUE, rejected: RejectedRecords | None = None
    ) -> None:
        self.kafka = Kafka()
        client: Any = Producer(self.kafka, "w0" if transactional else None)
        if transactional:
            client.init_transactions()
        self.producer: Producer = client
        self.rejected = rejected or RejectedRecords()
        self.asked: list[bytes] = []

        def handle(_: Any, place: Any, *__: Any, **___: Any) -> Result:
            self.asked.append(place[1])
            return answer

        handlers: Any = SimpleNamespace(
            dead_letter_topic=None, production="production", describe=lambda *given: given[3], handle=handle
        )
        message = Message(topic="in", partition=0, offset=7, key=b"k", value=b"v")
        context: Any = SimpleNamespace(message=message)
        self.collector = CarefulCollector(
            client, transactional=transactional, rejected=self.rejected, handlers=handlers, contexts=lambda: [context],
            limits=RecordLimits(1_000_000, lambda _: 500),
        )  # fmt: skip

    def send(self, *values: bytes) -> None:
        """Hand rows of one source record to the producer."""
        for value in values:
            self.collector.outbox.append(("out", value, b"k", 0, None, None, 1_000, None))
        self.producer.delivers = False
        self.collector.drain()

    def reject(self, *values: bytes) -> None:
        """Let the broker reject records with these values, and accept the others."""
        reports, self.producer._reports = self.producer._reports, []
        for callback, message in reports:
            is_rejected = self.kafka.logs[Partition("out", 0)][message.offset() or 0].value in values
            callback(KafkaError(TOO_LARGE) if is_rejected else None, message)
        self.producer.delivers = True


def test_handler_is_called_for_the_rejected_record_only() -> None:
    """With at least once, while the other records are delivered."""
    sending = _Sending(transactional=False)
    sending.send(b"1", b"22", b"3")
    sending.reject(b"22")
    assert sending.collector.settle()
    assert sending.asked == [b"22"]


def test_record_rejected_in_a_transaction_is_not_sent_again() -> None:
    """The transaction is aborted. The next time, the handler is called instead."""
    rejected = RejectedRecords()
    first = _Sending(transactional=True, rejected=rejected)
    first.send(b"1", b"22", b"3")
    first.reject(b"22")
    with pytest.raises(KafkaException):
        first.collector.settle()
    assert first.asked == []
    again = _Sending(transactional=True, rejected=rejected)
    again.send(b"1", b"22", b"3")
    assert again.asked == [b"22"]
    assert [each.value for each in again.kafka.logs[Partition("out", 0)]] == [b"1", b"3"]


def test_rejection_while_more_is_being_sent_is_remembered() -> None:
    """The client then accepts no more records, without a reason; the delivery report has it."""
    rejected = RejectedRecords()
    sending = _Sending(transactional=True, rejected=rejected)
    sending.send(b"1", b"22")
    sending.producer.failures["produce"] = [error(KafkaError._STATE)]
    sending.producer.poll = lambda _=0: sending.producer.fail_deliveries(TOO_LARGE) or 0  # type: ignore[method-assign, func-returns-value]
    with pytest.raises(KafkaException) as raised:
        sending.send(b"3")
    assert raised.value.args[0].code() == TOO_LARGE
    again = _Sending(transactional=True, rejected=rejected)
    again.send(b"1")
    assert again.asked == [b"1"]


LOGGED = ("app-counts-changelog", b"22", b"k\n" * 40, 0, None, None, 1_000, None)


@pytest.mark.parametrize("transactional", [False, True], ids=["at_least_once", "exactly_once"])
def test_rejected_changelog_record_stops_the_worker(transactional: bool) -> None:
    """Whatever the handler returns: without the record, the state could not be restored."""
    sending = _Sending(transactional=transactional)
    sending.producer.delivers = False
    sending.collector.send_tracked(("counts", 0), [LOGGED])
    sending.producer.fail_deliveries(TOO_LARGE)
    with pytest.raises(BrokerError) as raised:
        sending.collector.settle()
    text = str(raised.value)
    shown = repr((b"k\n" * 40)[:60]) + "…"
    for part in (
        f"key {shown}",
        "store 'counts'",
        "'app-counts-changelog' (82 bytes of key and value)",
        "limit of 500 bytes",
        "Raise",
    ):
        assert part in text
    assert sending.asked == []
    assert sending.collector.acknowledged == {}


@pytest.mark.parametrize("transactional", [False, True], ids=["at_least_once", "exactly_once"])
def test_changelog_record_that_the_client_rejects_is_not_dropped(transactional: bool) -> None:
    """It exceeds the client's limit, so there is no delivery report. The handler is not called either."""
    sending = _Sending(transactional=transactional)
    sending.producer.failures["produce"] = [error(TOO_LARGE)]
    with pytest.raises(BrokerError, match=r"'producer\.message\.max\.bytes'"):
        sending.collector.send_tracked(("counts", 0), [LOGGED])
    assert sending.asked == []


def test_record_larger_than_the_whole_queue_is_rejected() -> None:
    """Otherwise the worker would wait for room for ever."""
    sending = _Sending(transactional=False)
    sending.producer.room = 0
    with pytest.raises(BrokerError, match="store 'counts'"):
        sending.collector.send_tracked(("counts", 0), [LOGGED])
    plain = RecordCollector(sending.collector.producer, transactional=False)
    with pytest.raises(KafkaException, match=r"queue\.buffering\.max\.kbytes"):
        plain.send([LOGGED])


def test_handler_that_retries_sends_the_record_again() -> None:
    """RETRY forgets the rejection, and the worker goes back."""
    rejected = RejectedRecords()
    first = _Sending(transactional=True, rejected=rejected)
    first.send(b"22")
    first.reject(b"22")
    with pytest.raises(KafkaException):
        first.collector.settle()
    again = _Sending(transactional=True, answer=Result.RETRY, rejected=rejected)
    with pytest.raises(KafkaException):
        again.send(b"22")
    third = _Sending(transactional=True, rejected=rejected)
    third.send(b"22")
    assert third.asked == []
    assert len(third.producer) == 1


def test_careful_mode_lasts_until_everything_in_flight_is_processed() -> None:
    """A second rejection after going back does not shorten it."""
    rejected = RejectedRecords()
    rejected.start(KafkaError(TOO_LARGE), {IN: 10})
    rejected.start(KafkaError(TOO_LARGE), {IN: 4})
    assert rejected.careful
    assert rejected.is_behind({IN: 9})
    assert not rejected.is_behind({IN: 10})
    rejected.finish()
    assert not rejected.careful


def test_careful_mode_waits_for_tasks_that_do_not_run_yet() -> None:
    """Their records that were in flight are still to come; their other inputs are not waited for."""
    rejected = RejectedRecords()
    rejected.start(KafkaError(TOO_LARGE), {IN: 10})
    assert rejected.is_pending([IN])
    assert not rejected.is_pending([Partition("in", 1)])


class _Rejected:
    """A worker after a rejection, with one of its two tasks still restoring; its steps are recorded."""

    def __init__(self, *, position: int) -> None:
        self.steps: list[str] = []
        rejected = RejectedRecords()
        rejected.start(KafkaError(TOO_LARGE), {IN: 10, Partition("in", 1): 10})
        parts: Any = SimpleNamespace(
            rejected=rejected,
            executor=SimpleNamespace(
                settled=False, globals=SimpleNamespace(behind=()), inputs_to_come=lambda: [Partition("in", 1)]
            ),
            positions=lambda: {IN: position},
            committer=SimpleNamespace(phase=CommitPhase.IDLE, needed=lambda: False, next_commit=1.0),
            may_write=lambda: True,
        )
        recovery: Any = SimpleNamespace(go_back=lambda: self.steps.append("go_back"))
        unused: Any = None
        self.loop: Any = Loop(parts, unused, recovery, unused)
        for step in ("process", "send", "advance"):
            setattr(self.loop, f"_{step}", lambda step=step: self.steps.append(step))

    def turn(self) -> list[str]:
        collector: Any = SimpleNamespace(settle=lambda: True)
        self.loop._turn_carefully(collector)
        return self.steps


@pytest.mark.parametrize("position", [5, 50])
def test_running_tasks_continue_while_another_is_restored(position: int) -> None:
    """Also past the records that were in flight. Careful mode ends when the other task has processed its part."""
    assert _Rejected(position=position).turn() == ["process", "send", "advance"]


def test_batches_become_smaller_when_no_single_record_was_too_large() -> None:
    """The batch was too large, for a topic with a small `max.message.bytes`."""
    rejected = RejectedRecords()
    rejected.start(KafkaError(TOO_LARGE), {IN: 10})
    rejected.finish()
    assert rejected.batch_bytes == 250_000
    rejected.start(KafkaError(TOO_LARGE), {IN: 20})
    rejected.count()
    rejected.finish()
    assert rejected.batch_bytes == 250_000


def _told(row: tuple[Any, ...], code: int, *, by_client: bool = False) -> str:
    return str(output_rejected(row, KafkaError(code), RecordLimits(1_000_000, lambda _: 500), by_client=by_client))


def test_the_error_of_a_rejected_timestamp_names_it_and_the_setting() -> None:
    """Of an output as of a changelog; a person sees at once that it is in 2100, or in seconds."""
    row = ("out", b"v", b"k", 0, None, None, 4_102_444_800_000, None)
    told = _told(row, KafkaError.INVALID_TIMESTAMP)
    for part in ("topic 'out'", "4102444800000", "2100-01-01T00:00:00.000Z", "'message.timestamp.after.max.ms'"):
        assert part in told
    sending = _Sending(transactional=False)
    sending.producer.delivers = False
    sending.collector.send_tracked(("counts", 0), [(*LOGGED[:6], 4_102_444_800_000, None)])
    sending.producer.fail_deliveries(KafkaError.INVALID_TIMESTAMP)
    with pytest.raises(BrokerError, match=r"4102444800000, which is 2100-01-01T00:00:00\.000Z"):
        sending.collector.settle()


def test_the_error_of_a_large_record_counts_its_headers() -> None:
    """A dead letter is often too large for its headers only: the record itself was accepted once."""
    trace = ("__streams.errors.stacktrace", b"x" * 900)
    told = _told(("dead", b"v", b"k", 0, None, None, 5, [trace]), TOO_LARGE)
    assert told == (
        "a dead letter for topic 'dead' (2 bytes of key and value, 927 bytes of headers, with the stack trace of its "
        "error) was rejected: it is larger than the topic's limit of 500 bytes. Raise 'max.message.bytes' of the topic "
        "to 1029 or more, or write less into one record."
    )
    told = _told(("out", b"v", b"k", 0, None, None, 5, [("h", b"1")]), TOO_LARGE, by_client=True)
    assert "a record for topic 'out' (2 bytes of key and value, 2 bytes of headers)" in told
    assert "'producer.message.max.bytes'" in told


@pytest.mark.parametrize("transactional", [False, True], ids=["at_least_once", "exactly_once"])
@pytest.mark.timeout(30)
def test_a_dead_letter_that_is_rejected_stops_the_worker(transactional: bool) -> None:
    """No letter is made of a letter: it would be as large, and rejected again without end."""
    sending = _Sending(transactional=transactional)
    context = TaskContext(TaskId(0, 0), "app", {}, sending.collector.outbox, lambda: 0)
    context.message = Message(topic="in", partition=0, offset=7, key=b"k", value=b"v", timestamp=(1, 5))
    sending.collector._contexts = sending.collector.outbox._contexts = lambda: [context]
    sending.collector._handlers = Handlers(production=continue_on_error, dead_letter_topic="dead")
    sending.producer.failures["produce"] = [error(TOO_LARGE)] * 50
    sending.collector.outbox.append(("dead", b"v", b"k", -1, None, None, 5, [("__streams.errors.stacktrace", b"x")]))
    with pytest.raises(BrokerError, match="a dead letter for topic 'dead'"):
        for _ in range(20):
            sending.collector.drain()


def test_delivery_that_failed_without_a_fault_of_the_record_names_its_topic() -> None:
    """Such as for lack of time: the client's summary of a transaction says only how many deliveries failed."""
    sending = _Sending(transactional=True)
    sending.send(b"1")
    sending.producer.fail_deliveries(KafkaError._MSG_TIMED_OUT)
    with pytest.raises(KafkaException) as raised:
        sending.collector.settle()
    cause = raised.value.args[0]
    assert cause.code() == KafkaError._MSG_TIMED_OUT
    assert "(a record for topic 'out')" in cause.str()
    assert sending.asked == []
