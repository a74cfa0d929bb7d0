"""Settings that change while an application runs."""

from __future__ import annotations

from datetime import timedelta

from millpond_operator.assignment import AssignmentOptions
from millpond_operator.coordinator import EngineOptions
from tests.coordinator.engine.simulation import SESSION_MS, Driver, Kafka, fleet, settled


def options(session_ms: int = SESSION_MS, **assignment: int) -> EngineOptions:
    return EngineOptions(
        assignment=AssignmentOptions(**assignment),
        session_timeout=timedelta(milliseconds=session_ms),
        gathering=timedelta(),
    )


def test_more_standbys_are_placed_at_once() -> None:
    """No worker has to join or leave, and sessions do not change."""
    driver, kafka = Driver(), Kafka()
    workers = fleet(kafka, 2)
    settled(driver, workers)
    assert not driver.engine.view(None).standby
    assert not driver.engine.reconfigure(options(standby_replicas=1), driver.now_ms)
    settled(driver, workers)
    assert len(driver.engine.view(None).standby) == 4


def test_a_shorter_session_counts_once_workers_know_of_it() -> None:
    """They send heartbeats at the pace of the timeout that they know."""
    driver, kafka = Driver(), Kafka()
    workers = fleet(kafka, 1)
    settled(driver, workers)
    driver.pass_time(SESSION_MS // 3)
    assert driver.engine.reconfigure(options(SESSION_MS // 10), driver.now_ms)
    driver.pass_time(SESSION_MS // 2)
    assert driver.engine.members["w0"].alive
    answer = driver.beat(workers[0])
    assert answer.session_timeout_ms == SESSION_MS // 10
    driver.pass_time(SESSION_MS // 5)
    assert not driver.engine.members["w0"].alive


def test_a_longer_session_counts_at_once() -> None:
    """Also for a worker that is late now."""
    driver, kafka = Driver(), Kafka()
    settled(driver, fleet(kafka, 1))
    driver.engine.reconfigure(options(SESSION_MS * 10), driver.now_ms)
    driver.pass_time(SESSION_MS * 5)
    assert driver.engine.members["w0"].alive
    driver.pass_time(SESSION_MS * 6)
    assert not driver.engine.members["w0"].alive


def test_pinned_topology_can_be_changed() -> None:
    """Another rollout strategy pins or unpins the topology."""
    driver, kafka = Driver(), Kafka()
    settled(driver, fleet(kafka, 1))
    driver.engine.reconfigure(EngineOptions(pinned="h1"), driver.now_ms)
    assert driver.engine._admission.pinned == "h1"
