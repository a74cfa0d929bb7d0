"""When brokers count as silent, lost and answering again, for the coordinator, `/readyz` and the metrics."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from millpond.protocol import BrokerReach, Brokers
from millpond.runtime.blockers import Blockers
from millpond.runtime.kafka import broker_probe
from millpond.runtime.kafka.broker_contact import BrokerContact
from millpond.runtime.kafka.broker_probe import BrokerProbe
from millpond.runtime.kafka.leading_brokers import BrokerCheck

LOST_AFTER_S = 30.0
PERIOD_S = 3.0


class _Scene:
    """A worker whose brokers answer or not, with a clock of the test."""

    def __init__(self) -> None:
        self.now = 100.0
        self.answers = True
        self.frozen_s = 0.0
        self.waiting = Blockers()
        self.each: dict[int, bool] = {}
        self.clear = True
        self.contact = BrokerContact(
            self._ask, LOST_AFTER_S, self.waiting, "kafka:9092", lambda: self.now, self._ask_each
        )

    def _ask(self, timeout_s: float) -> bool:
        if not self.answers:
            self.now += 2 * timeout_s + self.frozen_s
        return self.answers

    def _ask_each(self, timeout_s: float) -> BrokerCheck:
        asked_at = self.now
        if not all(self.each.values()):
            self.now += timeout_s + self.frozen_s
        return BrokerCheck(asked_at, dict(self.each), self.clear)

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


def test_broker_that_alone_does_not_answer_is_missing_after_half_of_the_timeout(scene: _Scene) -> None:
    """So its tasks have moved within the timeout, whether or not the worker can still commit."""
    scene.each = {1: True, 2: True}
    scene.pass_time(LOST_AFTER_S)
    assert scene.contact.reach == BrokerReach((1, 2), (), settled=True, limit_ms=30_000)
    scene.each[2] = False
    scene.pass_time(LOST_AFTER_S / 4)
    assert scene.contact.reach == BrokerReach((1,), (), settled=False, limit_ms=30_000)
    assert not scene.contact.doubtful
    scene.pass_time(LOST_AFTER_S / 2)
    assert scene.contact.reach == BrokerReach((1,), (2,), settled=True, limit_ms=30_000)
    assert scene.contact.brokers is Brokers.ANSWERING
    assert scene.contact.doubtful
    trouble = scene.waiting.trouble()
    assert trouble is not None
    assert "broker 2 does not answer this worker, although other brokers do" in trouble.message


def test_broker_that_answers_again_is_neither_missing_nor_reached_at_first(scene: _Scene) -> None:
    """A worker that notices first that a broker is back must not be preferred to one that has not checked yet."""
    scene.each = {1: True, 2: False}
    scene.pass_time(LOST_AFTER_S)
    scene.each[2] = True
    scene.pass_time(PERIOD_S)
    assert scene.contact.reach == BrokerReach((1,), (), settled=False, limit_ms=30_000)
    assert scene.waiting.trouble() is None
    assert scene.contact.doubtful, "its tasks may be taken over until the coordinator counts it as connected"
    scene.pass_time(LOST_AFTER_S)
    assert scene.contact.reach == BrokerReach((1, 2), (), settled=True, limit_ms=30_000)
    assert not scene.contact.doubtful


def test_doubt_lasts_as_long_as_the_timeout(scene: _Scene) -> None:
    """The coordinator counts a worker as cut off for that long."""
    scene.each = {1: True, 2: False}
    while not scene.contact.reach.missing:
        scene.pass_time(PERIOD_S)
    scene.each[2] = True
    scene.pass_time(LOST_AFTER_S * 2 / 3 + PERIOD_S)
    assert scene.contact.reach.settled
    assert scene.contact.doubtful
    scene.pass_time(LOST_AFTER_S / 3)
    assert not scene.contact.doubtful


def test_broker_is_missing_at_half_of_the_timeout_even_during_a_check(scene: _Scene) -> None:
    """A check of silent brokers takes long, and the worker must not write meanwhile without asking for its owner."""
    scene.each = {1: True, 2: False}
    scene.pass_time(3 * PERIOD_S)
    assert not scene.contact.doubtful
    scene.now += LOST_AFTER_S / 6
    assert scene.contact.reach.missing == (2,)
    assert scene.contact.doubtful
    scene.each[2] = True
    scene.contact.check()
    assert not scene.contact.reach.missing
    assert (scene.contact.doubtful, scene.contact.doubts) == (True, 0), "the coordinator may have heard of it"
    scene.pass_time(LOST_AFTER_S)
    assert (scene.contact.doubtful, scene.contact.doubts) == (False, 1)


def test_silence_goes_on_through_checks_that_prove_nothing(scene: _Scene) -> None:
    """A busy machine spoils some of them, and tasks that wait for the broker still have to move."""
    scene.each = {1: True, 2: False}
    scene.contact.check()
    scene.clear = False
    scene.pass_time(LOST_AFTER_S)
    assert scene.contact.reach == BrokerReach((1,), (), settled=False, limit_ms=30_000), "one check may be wrong"
    scene.clear = True
    scene.contact.check()
    assert scene.contact.reach == BrokerReach((1,), (2,), settled=True, limit_ms=30_000)
    scene.clear = False
    scene.contact.check()
    assert scene.contact.reach.missing == (2,)
    assert scene.waiting.trouble() is not None
    scene.pass_time(LOST_AFTER_S / 2)
    assert not scene.contact.reach.missing, "it may have come back unseen"
    assert scene.waiting.trouble() is not None, "the trouble does not come and go"


def test_check_that_proves_nothing_ends_what_is_known_of_the_answers(scene: _Scene) -> None:
    """The broker may have stopped for all workers, and one that has noticed must not lose its tasks to this one."""
    scene.each = {1: True, 2: True}
    scene.pass_time(LOST_AFTER_S)
    scene.each, scene.clear = {1: True, 2: False}, False
    scene.contact.check()
    scene.each = {1: True, 2: True}
    scene.contact.check()
    assert scene.contact.reach == BrokerReach((1,), (), settled=False, limit_ms=30_000)
    scene.pass_time(LOST_AFTER_S)
    assert scene.contact.reach == BrokerReach((1, 2), (), settled=True, limit_ms=30_000)


def test_report_of_a_missing_broker_begins_the_doubt(scene: _Scene) -> None:
    """Heartbeats are sent by another thread: it may report a broker in the middle of the check that hears from it."""
    scene.each = {1: True, 2: False}
    scene.pass_time(3 * PERIOD_S)
    reported: list[BrokerReach] = []

    def ask(_: float) -> BrokerCheck:
        scene.now += LOST_AFTER_S / 4
        reported.append(scene.contact.reach)
        return BrokerCheck(scene.now, {1: True, 2: True})

    scene.contact._each = ask
    scene.contact.check()
    assert [each.missing for each in reported] == [(2,)]
    assert scene.contact.reach.missing == ()
    assert scene.contact.doubtful


def test_missing_brokers_are_told_once(scene: _Scene, caplog: pytest.LogCaptureFixture) -> None:
    """Also if all brokers are silent in between: what answers then is not known, and that one is missing goes on."""
    caplog.set_level("INFO")
    scene.each = {1: True, 2: False, 3: True}
    scene.pass_time(LOST_AFTER_S)
    scene.each[3] = False
    scene.pass_time(LOST_AFTER_S)
    scene.answers = False
    scene.pass_time(PERIOD_S)
    trouble = scene.waiting.trouble(0.0)
    assert trouble is not None
    assert "no broker at" in trouble.message
    scene.answers, scene.each[2] = True, True
    scene.pass_time(2 * PERIOD_S)
    trouble = scene.waiting.trouble(0.0)
    assert trouble is not None
    assert trouble.message.startswith("broker 3 does not answer")
    scene.each[3] = True
    scene.pass_time(LOST_AFTER_S)
    assert scene.waiting.trouble(0.0) is None
    told = [record.getMessage().split(" do")[0] for record in caplog.records]
    assert told == ["broker 2", "brokers 2, 3", "brokers 2, 3: no longer missing"]


def test_broker_is_not_reached_during_a_check_that_takes_long(scene: _Scene) -> None:
    """It may have stopped for all workers, and one that has noticed must not lose its tasks to one that waits."""
    scene.each = {1: True, 2: True}
    scene.pass_time(LOST_AFTER_S)
    scene.now += PERIOD_S + LOST_AFTER_S / 6  # the longest time between two answers
    assert scene.contact.reach == BrokerReach((1, 2), (), settled=True, limit_ms=30_000)
    scene.now += LOST_AFTER_S / 6
    assert scene.contact.reach == BrokerReach((), (), settled=False, limit_ms=30_000)
    scene.contact.check()
    assert scene.contact.reach == BrokerReach((), (), settled=False, limit_ms=30_000), "it may have been away meanwhile"
    scene.pass_time(LOST_AFTER_S * 2 / 3)
    assert scene.contact.reach == BrokerReach((1, 2), (), settled=True, limit_ms=30_000)


def test_broker_that_is_not_needed_any_more_is_not_missing(scene: _Scene) -> None:
    """Its partitions have other leaders now, so nothing waits for it."""
    scene.each = {1: True, 2: False}
    scene.pass_time(LOST_AFTER_S)
    assert scene.contact.reach.missing == (2,)
    del scene.each[2]
    scene.pass_time(PERIOD_S)
    assert scene.contact.reach == BrokerReach((1,), (), settled=True, limit_ms=30_000)
    assert scene.waiting.trouble() is None


def test_worker_without_brokers_misses_none_in_particular(scene: _Scene) -> None:
    """That is told as the loss of all."""
    scene.each = {1: True, 2: True}
    scene.pass_time(LOST_AFTER_S)
    scene.answers = False
    scene.pass_time(2 * LOST_AFTER_S)
    assert scene.contact.reach == BrokerReach((), (), settled=False, limit_ms=30_000)
    trouble = scene.waiting.trouble(0.0)
    assert trouble is not None
    assert "no broker at" in trouble.message


def test_frozen_worker_misses_no_broker(scene: _Scene) -> None:
    """As above: its own time stood still."""
    scene.each, scene.frozen_s = {1: True, 2: False}, 10 * LOST_AFTER_S
    scene.contact.check()
    assert not scene.contact.reach.missing


def test_client_that_gives_no_answer_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client may not reconnect; one that answers is kept."""
    made: list[Any] = []
    dead: set[Any] = set()
    monkeypatch.setattr(broker_probe, "AdminClient", lambda *_, **__: made.append(object()) or made[-1])
    monkeypatch.setattr(broker_probe, "answers", lambda client, *_: client not in dead)
    ask = BrokerProbe({}, tuple, {}).any_answers
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
