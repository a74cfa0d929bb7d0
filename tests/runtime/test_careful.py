"""After a rejected record: each record is sent by itself, and only the rejected one is the handler's."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Message

from millpond.errors import BrokerError
from millpond.runtime.commit.pipeline import CommitPhase
from millpond.runtime.commit.record_collector import RecordCollector
from millpond.runtime.commit.rejected_changelog import RecordLimits
from millpond.runtime.commit.rejected_records import CarefulCollector, RejectedRecords
from millpond.runtime.offsets.metadata import Partition
from millpond.runtime.processing.handlers import Result
from millpond.runtime.worker.loop import Loop
from tests.runtime.memory_kafka import Kafka, Producer, error

IN = Partition("in", 0)
TOO_LARGE = KafkaError.MSG_SIZE_TOO_LARGE


class _Sending:
    """A careful collector of one task, whose records come from offset 7 of its input."""

    def __init__(
        self, *, transactional: bool, answer: Result = Result.CONTINUE, refusals: RejectedRecords | None = None
    ) -> None:
        self.kafka = Kafka()
        client: Any = Producer(self.kafka, "w0" if transactional else None)
        if transactional:
            client.init_transactions()
        self.producer: Producer = client
        self.refusals = refusals or RejectedRecords()
        self.asked: list[bytes] = []

        def handle(_: Any, place: Any, *__: Any, **___: Any) -> Result:
            self.asked.append(place[1])
            return answer

        handlers: Any = SimpleNamespace(production="production", describe=lambda *given: given[3], handle=handle)
        message = Message(topic="in", partition=0, offset=7, key=b"k", value=b"v")
        context: Any = SimpleNamespace(message=message)
        self.collector = CarefulCollector(
            client, transactional=transactional, refusals=self.refusals, handlers=handlers, contexts=lambda: [context],
            limits=RecordLimits(1_000_000, lambda _: 500),
        )  # fmt: skip

    def send(self, *values: bytes) -> None:
        """Hand rows of one source record to the producer."""
        for value in values:
            self.collector.outbox.append(("out", value, b"k", 0, None, None, 1_000, None))
        self.producer.delivers = False
        self.collector.drain()

    def reject(self, *values: bytes) -> None:
        """The broker rejects records of these values, and takes the others."""
        reports, self.producer._reports = self.producer._reports, []
        for callback, message in reports:
            rejected = self.kafka.logs[Partition("out", 0)][message.offset() or 0].value in values
            callback(KafkaError(TOO_LARGE) if rejected else None, message)
        self.producer.delivers = True


def test_rejected_record_is_the_handlers_and_others_are_not() -> None:
    """At least once: the handler is asked about exactly the rejected one."""
    sending = _Sending(transactional=False)
    sending.send(b"1", b"22", b"3")
    sending.reject(b"22")
    assert sending.collector.settle()
    assert sending.asked == [b"22"]


def test_record_rejected_in_a_transaction_is_not_sent_again() -> None:
    """The transaction is lost; the next time the handler is asked instead of the broker."""
    refusals = RejectedRecords()
    first = _Sending(transactional=True, refusals=refusals)
    first.send(b"1", b"22", b"3")
    first.reject(b"22")
    with pytest.raises(KafkaException):
        first.collector.settle()
    assert first.asked == []
    again = _Sending(transactional=True, refusals=refusals)
    again.send(b"1", b"22", b"3")
    assert again.asked == [b"22"]
    assert [each.value for each in again.kafka.logs[Partition("out", 0)]] == [b"1", b"3"]


def test_rejection_while_more_is_being_sent_is_remembered() -> None:
    """The client takes nothing more then, and does not say why; the report does."""
    refusals = RejectedRecords()
    sending = _Sending(transactional=True, refusals=refusals)
    sending.send(b"1", b"22")
    sending.producer.failures["produce"] = [error(KafkaError._STATE)]
    sending.producer.poll = lambda _=0: sending.producer.fail_deliveries(TOO_LARGE) or 0  # type: ignore[method-assign, func-returns-value]
    with pytest.raises(KafkaException) as raised:
        sending.send(b"3")
    assert raised.value.args[0].code() == TOO_LARGE
    again = _Sending(transactional=True, refusals=refusals)
    again.send(b"1")
    assert again.asked == [b"1"]


LOGGED = ("app-counts-changelog", b"22", b"k\n" * 40, 0, None, None, 1_000, None)


@pytest.mark.parametrize("transactional", [False, True], ids=["at_least_once", "exactly_once"])
def test_rejected_changelog_record_stops_the_worker(transactional: bool) -> None:
    """The state could not be restored without it, whatever the handler says."""
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
    """It is above the client's own limit, so no report ever comes: the handler is not asked either."""
    sending = _Sending(transactional=transactional)
    sending.producer.failures["produce"] = [error(TOO_LARGE)]
    with pytest.raises(BrokerError, match=r"'producer\.message\.max\.bytes'"):
        sending.collector.send_tracked(("counts", 0), [LOGGED])
    assert sending.asked == []


def test_record_larger_than_the_whole_queue_is_rejected() -> None:
    """There never will be room for it: the worker would wait for ever."""
    sending = _Sending(transactional=False)
    sending.producer.room = 0
    with pytest.raises(BrokerError, match="store 'counts'"):
        sending.collector.send_tracked(("counts", 0), [LOGGED])
    plain = RecordCollector(sending.collector.producer, transactional=False)
    with pytest.raises(KafkaException, match=r"queue\.buffering\.max\.kbytes"):
        plain.send([LOGGED])


def test_handler_that_retries_sends_the_record_again() -> None:
    """RETRY forgets the refusal and sends the worker back."""
    refusals = RejectedRecords()
    first = _Sending(transactional=True, refusals=refusals)
    first.send(b"22")
    first.reject(b"22")
    with pytest.raises(KafkaException):
        first.collector.settle()
    again = _Sending(transactional=True, answer=Result.RETRY, refusals=refusals)
    with pytest.raises(KafkaException):
        again.send(b"22")
    third = _Sending(transactional=True, refusals=refusals)
    third.send(b"22")
    assert third.asked == []
    assert len(third.producer) == 1


def test_careful_mode_lasts_until_everything_in_flight_is_processed() -> None:
    """A second rejection, met after going back, does not shorten it."""
    refusals = RejectedRecords()
    refusals.met(KafkaError(TOO_LARGE), {IN: 10})
    refusals.met(KafkaError(TOO_LARGE), {IN: 4})
    assert refusals.careful
    assert refusals.behind({IN: 9})
    assert not refusals.behind({IN: 10})
    refusals.over()
    assert not refusals.careful


def test_careful_mode_waits_for_tasks_that_do_not_run_yet() -> None:
    """What they had on its way at the rejection is still to come; their other inputs are not waited for."""
    refusals = RejectedRecords()
    refusals.met(KafkaError(TOO_LARGE), {IN: 10})
    assert refusals.awaits([IN])
    assert not refusals.awaits([Partition("in", 1)])


class _Rejected:
    """A worker after a rejection, one of whose two tasks is restored for long; what it does is noted."""

    def __init__(self, *, position: int) -> None:
        self.steps: list[str] = []
        rejected = RejectedRecords()
        rejected.met(KafkaError(TOO_LARGE), {IN: 10, Partition("in", 1): 10})
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
def test_running_tasks_go_on_while_another_is_restored(position: int) -> None:
    """After a rejection, also beyond what was in flight then; the careful mode ends when the other task is through."""
    assert _Rejected(position=position).turn() == ["process", "send", "advance"]


def test_batches_become_smaller_when_no_single_record_was_too_large() -> None:
    """Then the batch was, for a topic with a small max.message.bytes."""
    refusals = RejectedRecords()
    refusals.met(KafkaError(TOO_LARGE), {IN: 10})
    refusals.over()
    assert refusals.batch_bytes == 250_000
    refusals.met(KafkaError(TOO_LARGE), {IN: 20})
    refusals.found()
    refusals.over()
    assert refusals.batch_bytes == 250_000
