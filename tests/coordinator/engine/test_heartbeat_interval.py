"""The interval of heartbeats, from the number of workers and the cost of a heartbeat."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millpond.protocol import Answer, Epoch, TopologySummary
from millpond.protocol.heartbeats import Answered, HeartbeatSession, Post, Started
from millpond_operator.coordinator.engine.heartbeat_interval import CoordinatorLoad, interval_ms
from millpond_operator.coordinator.server.load_measurement import LoadMeasurement
from tests.coordinator.engine.simulation import SESSION_MS, Driver, Kafka, fleet

COSTS = st.floats(0, 1e6)
SESSIONS = st.integers(300, 600_000)


def test_few_workers_report_often_and_many_as_rarely_as_is_safe() -> None:
    """With the default session timeout of six seconds."""
    found = {workers: interval_ms(6_000, CoordinatorLoad(workers)) for workers in (1, 50, 150, 2_000)}
    assert found == {1: 1_000, 50: 1_000, 150: 1_500, 2_000: 1_900}


@given(SESSIONS, st.integers(0, 100_000), COSTS)
def test_two_lost_heartbeats_never_end_a_session(session_ms: int, workers: int, cost_us: float) -> None:
    """Whatever the load: the third one arrives in time."""
    found = interval_ms(session_ms, CoordinatorLoad(workers, cost_us))
    assert session_ms / 7 < found
    assert 3 * found < session_ms


@given(st.integers(0, 10_000), st.integers(0, 10_000), COSTS)
def test_more_workers_never_report_more_often(few: int, more: int, cost_us: float) -> None:
    """And neither do dearer heartbeats."""
    few, more = sorted((few, more))
    assert interval_ms(6_000, CoordinatorLoad(few, cost_us)) <= interval_ms(6_000, CoordinatorLoad(more, cost_us))
    assert interval_ms(6_000, CoordinatorLoad(few, cost_us)) <= interval_ms(6_000, CoordinatorLoad(few, cost_us + 100))


@given(SESSIONS, st.integers(-1_000, 10_000_000), st.integers())
def test_a_worker_keeps_the_interval_within_its_own_limits(session_ms: int, interval: int, seed: int) -> None:
    """It never trusts a coordinator that asks for heartbeats too rarely, or all the time."""
    session = HeartbeatSession(TopologySummary("h", ()), random.Random(seed))
    (first,) = session.handle(Started(0.0))
    assert isinstance(first, Post)
    answer = Answer(
        epoch=Epoch(1, 1), coordinator="c1", revision=1, session_timeout_ms=session_ms, interval_ms=interval
    )
    post = next(each for each in session.handle(Answered(1.0, first.number, answer)) if isinstance(each, Post))
    assert post.wait_ms >= 40
    assert 3 * post.wait_ms < session_ms
    if interval <= 0:
        assert post.wait_ms > session_ms * 0.25, "an old coordinator names no interval"
    elif 50 <= interval < session_ms / 3.2:
        assert interval * 0.84 <= post.wait_ms + 1 <= interval + 1


def test_the_session_survives_two_lost_heartbeats_at_the_longest_interval() -> None:
    """Two thousand workers elsewhere; a third lost heartbeat is a death, after the session timeout as ever."""
    driver, (worker, other) = Driver(), fleet(Kafka(), 2)
    driver.engine.load = CoordinatorLoad(2_000)
    driver.beat(worker)
    driver.beat(other)
    for _ in range(20):
        answer = driver.beat(worker)
        assert isinstance(answer, Answer)
        driver.pass_time(3 * answer.interval_ms)
        assert driver.engine.members["w0"].alive
    driver.beat(worker)
    driver.pass_time(SESSION_MS)
    assert not driver.engine.members["w0"].alive


@pytest.mark.parametrize("workers", [0, 2_000])
def test_the_interval_is_in_every_answer_and_is_no_news(workers: int) -> None:
    """Workers follow it with their next heartbeat; nobody is woken for it."""
    driver, (worker,) = Driver(), fleet(Kafka(), 1)
    driver.beat(worker)
    driver.beat(worker)
    heartbeat = worker.heartbeat()
    revision = driver.engine.answer_for("w0").revision
    driver.engine.load = CoordinatorLoad(workers)
    assert not driver.engine.has_news_for(heartbeat)
    answer = driver.engine.answer_for("w0")
    assert answer.revision == revision
    assert answer.interval_ms == interval_ms(SESSION_MS, CoordinatorLoad(workers))
    assert driver.engine.answer_for("stranger").interval_ms == answer.interval_ms


class Machine:
    """Clocks that the test sets."""

    def __init__(self) -> None:
        self.now = self.cpu = 0.0
        self.drivers = [Driver(), Driver()]
        for driver in self.drivers:
            for worker in fleet(Kafka(), 3):
                driver.beat(worker)
        self.measurement = LoadMeasurement(
            lambda: [driver.engine for driver in self.drivers], lambda: self.now, lambda: self.cpu
        )
        self.heartbeats = 0

    def run(self, seconds: int, per_second: int, cost_us: float) -> None:
        for _ in range(seconds * 10):
            self.now += 0.1
            self.heartbeats += per_second // 10
            self.cpu += per_second // 10 * cost_us / 1e6
            self.measurement.update(self.heartbeats)


def test_workers_of_all_applications_count() -> None:
    """They share one process; dead ones do not count."""
    machine = Machine()
    machine.run(1, 10, 300)
    assert [driver.engine.load.workers for driver in machine.drivers] == [6, 6]
    machine.drivers[0].engine.declare_dead("w0", 0)
    machine.run(1, 10, 300)
    assert machine.drivers[1].engine.load.workers == 5


def test_the_cost_of_heartbeats_is_measured() -> None:
    """Over seconds, within limits, and not from a few heartbeats of an idle process."""
    machine = Machine()
    machine.run(60, 1_000, 250)
    assert machine.measurement.load.cost_us == pytest.approx(250, rel=0.01)
    machine.run(60, 1_000, 50_000)
    assert machine.measurement.load.cost_us == pytest.approx(2_000, rel=0.01), "the process does other work"
    machine.run(60, 10, 10)
    assert machine.measurement.load.cost_us == pytest.approx(2_000, rel=0.01), "too few to tell"
