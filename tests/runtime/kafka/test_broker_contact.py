"""When brokers count as silent, lost and answering again, for the coordinator, `/readyz` and the metrics."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from millpond.protocol import Brokers
from millpond.runtime.blockers import Blockers
from millpond.runtime.kafka import broker_contact
from millpond.runtime.kafka.broker_contact import BrokerContact, make_probe

LOST_AFTER_S = 30.0
PERIOD_S = 3.0


class _Scene:
    """A worker whose brokers answer or not, with a clock of the test."""

    def __init__(self) -> None:
        self.now = 100.0
        self.answers = True
        self.frozen_s = 0.0
        self.waiting = Blockers()
        self.contact = BrokerContact(self._ask, LOST_AFTER_S, self.waiting, "kafka:9092", lambda: self.now)

    def _ask(self, timeout_s: float) -> bool:
        if not self.answers:
            self.now += 2 * timeout_s + self.frozen_s
        return self.answers

    def pass_time(self, seconds: float) -> None:
        """Check as often as the thread would."""
        until = self.now + seconds
        while self.now < until:
            self.now += PERIOD_S
            self.contact.check()


@pytest.fixture
def scene() -> _Scene:
    """A worker whose brokers have answered for long."""
    made = _Scene()
    made.pass_time(LOST_AFTER_S)
    return made


def test_brokers_are_lost_after_the_timeout(scene: _Scene) -> None:
    """Before, they are silent, and other workers take over none of its tasks."""
    assert scene.contact.brokers is Brokers.ANSWERING
    scene.answers = False
    scene.pass_time(PERIOD_S)
    assert (scene.contact.brokers, scene.contact.lost) == (Brokers.SILENT, False)
    assert scene.waiting.trouble() is None
    scene.pass_time(LOST_AFTER_S)
    assert (scene.contact.brokers, scene.contact.lost) == (Brokers.LOST, True)
    assert scene.contact.silent_s >= LOST_AFTER_S
    trouble = scene.waiting.trouble(0.0)
    assert trouble is not None
    assert "no broker at 'kafka:9092' answers" in trouble.message


def test_brokers_that_are_back_count_only_after_a_while(scene: _Scene) -> None:
    """Otherwise the first worker that reaches them would take over from those that have not checked yet."""
    scene.answers = False
    scene.pass_time(2 * LOST_AFTER_S)
    scene.answers = True
    scene.pass_time(2 * PERIOD_S)
    assert (scene.contact.brokers, scene.contact.silent_s) == (Brokers.SILENT, 0.0)
    assert scene.waiting.trouble(0.0) is None
    scene.pass_time(LOST_AFTER_S / 2)
    assert scene.contact.brokers is Brokers.ANSWERING


def test_new_worker_takes_nothing_over_at_once() -> None:
    """It may have started at the moment when the brokers came back."""
    scene = _Scene()
    assert scene.contact.brokers is Brokers.SILENT
    scene.pass_time(LOST_AFTER_S / 2)
    assert scene.contact.brokers is Brokers.ANSWERING


def test_frozen_worker_has_not_lost_its_brokers(scene: _Scene) -> None:
    """A request in flight while the process was suspended gets no answer, which proves nothing about that time."""
    scene.answers, scene.frozen_s = False, 10 * LOST_AFTER_S
    scene.contact.check()
    assert scene.contact.brokers is Brokers.SILENT
    assert scene.contact.silent_s <= LOST_AFTER_S / 2


def test_client_that_gives_no_answer_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client may not reconnect; one that answers is kept."""
    made: list[Any] = []
    dead: set[Any] = set()
    monkeypatch.setattr(broker_contact, "AdminClient", lambda *_, **__: made.append(object()) or made[-1])
    monkeypatch.setattr(broker_contact, "answers", lambda client, *_: client not in dead)
    ask = make_probe({})
    assert ask(1.0)
    assert ask(1.0)
    assert len(made) == 1
    dead.add(made[0])
    assert ask(1.0)
    assert len(made) == 2


def test_unexpected_error_of_a_check_does_not_end_the_checks(caplog: pytest.LogCaptureFixture) -> None:
    """A thread that ended would report the state of its last check for ever."""
    answered = threading.Event()

    def probe(_: float) -> bool:
        if caplog.text:
            answered.set()
            return True
        raise RuntimeError("nobody expected this")

    contact = BrokerContact(probe, 0.01, Blockers(), "kafka:9092")
    contact.start()
    assert answered.wait(20)
    contact.close()
    assert "nobody expected this" in caplog.text
