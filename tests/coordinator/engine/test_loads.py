"""The load of workers and the drawing of the topology at the coordinator."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from millpond.protocol import Heartbeat, Member, View, decode_heartbeat, encode
from millpond.protocol.loads import InputLoad, TaskLoad, WorkerLoad
from millpond.protocol.overview import EdgeOverview, NodeOverview, TopologyOverview
from tests.coordinator.engine.simulation import Driver, Kafka, Worker, fleet, settled
from tests.coordinator.support import heartbeat, running, topology

GRAPH = TopologyOverview(
    nodes=(NodeOverview(name="topic flights", kind="topic"), NodeOverview(name="source", kind="processor")),
    edges=(EdgeOverview(source="topic flights", target="source", topic="flights"),),
)


def load(measured_ms: int, processed: int = 0, lag: int = 0, task: str = "0_0") -> WorkerLoad:
    return WorkerLoad(
        measured_ms, measured_ms // 2, processed, {task: TaskLoad(processed, {"flights": InputLoad(1, lag)})}
    )


def member(driver: Driver, worker: str = "w0") -> Member:
    return next(each for each in driver.engine.view(driver.now_ms).members if each.worker == worker)


def report(driver: Driver, worker: Worker, *loads: WorkerLoad | None, step_ms: int = 1_000, **fields: Any) -> None:
    for each in loads:
        driver.beat(worker, load=each, **fields)
        driver.pass_time(step_ms)


def test_a_load_changes_neither_plans_nor_answers_nor_what_is_saved() -> None:
    """Otherwise every heartbeat of every worker would cause one."""
    driver, workers = Driver(), fleet(Kafka(), 2)
    settled(driver, workers)
    before = driver.plans, driver.store.view, driver.engine.changes, driver.engine.answer_for("w0").revision
    saved = driver.engine.view(None)
    for second in range(1, 20):
        heartbeat = workers[0].heartbeat(load=load(second * 1_000, second * 10, second))
        assert driver.engine.heartbeat(heartbeat, driver.now_ms) is None
        assert not driver.engine.has_news_for(heartbeat), "an early answer"
        assert not driver.engine.plan_due
        driver.decide()
    assert before == (driver.plans, driver.store.view, driver.engine.changes, driver.engine.answer_for("w0").revision)
    assert driver.engine.view(None) == saved


def test_rates_are_over_about_ten_seconds() -> None:
    """Long enough to be steady, short enough to see a change."""
    driver, (worker,) = Driver(), fleet(Kafka(), 1)
    report(driver, worker, load(0))
    assert member(driver).load == load(0)
    assert member(driver).rates is None
    for second in range(1, 60):
        report(driver, worker, load(second * 1_000, second * 100))
        found = member(driver).rates
        assert found is not None
        assert found.records_per_second == 100.0
        assert found.utilisation == 0.5
        assert 6 <= found.seconds <= 12 or second < 6


def test_another_process_begins_with_fresh_rates() -> None:
    """Counters of two processes are never compared."""
    kafka = Kafka()
    driver, (worker,) = Driver(), fleet(kafka, 1)
    report(driver, worker, load(0), load(10_000, 1_000))
    restarted = Worker("w0", kafka, topology(), start=2)
    report(driver, restarted, None)
    assert member(driver).load is None
    report(driver, restarted, load(500_000, 5))
    assert member(driver).load == load(500_000, 5)
    assert member(driver).rates is None


def test_a_load_is_not_shown_after_the_worker_stopped_measuring() -> None:
    """Its loop hangs, but its heartbeats go on."""
    driver, (worker,) = Driver(), fleet(Kafka(), 1)
    report(driver, worker, load(0), load(1_000), *[None] * 14)
    assert member(driver).load is not None, "a heartbeat may come without a new measurement"
    report(driver, worker, None, None, None)
    assert member(driver).load is None
    assert member(driver).rates is None


def test_a_dead_worker_has_no_load() -> None:
    """Its tasks run elsewhere."""
    driver, workers = Driver(), fleet(Kafka(), 2)
    settled(driver, workers)
    report(driver, workers[0], load(0), load(1_000), step_ms=0)
    driver.engine.declare_dead("w0", driver.now_ms)
    assert member(driver).load is None
    assert member(driver).rates is None


def test_tasks_that_the_topology_does_not_have_are_left_out() -> None:
    """A worker cannot fill the coordinator's memory with invented tasks."""
    driver, (worker,) = Driver(), fleet(Kafka(), 1)
    report(driver, worker, load(0), load(1_000, task="7_7"))
    shown = member(driver).load
    assert shown is not None
    assert not shown.tasks


def test_the_drawing_is_shown_not_saved_and_requested_after_a_restart() -> None:
    """A later coordinator asks for it, once."""
    kafka = Kafka()
    driver, (worker,) = Driver(), fleet(kafka, 1)
    driver.beat(worker, graph=GRAPH)
    assert driver.engine.view(driver.now_ms).graph == GRAPH
    assert driver.engine.view(None).graph is None
    assert not driver.engine.answer_for("w0").send_graph
    later = Driver(term=2, coordinator="c2", store=driver.store)
    later.beat(worker)
    assert later.engine.view(later.now_ms).graph is None
    assert later.engine.answer_for("w0").send_graph
    later.beat(worker, graph=GRAPH)
    assert later.engine.view(later.now_ms).graph == GRAPH
    assert not later.engine.answer_for("w0").send_graph


def test_the_drawing_of_another_topology_is_not_kept() -> None:
    """The new one may be too large to draw."""
    driver, (worker,) = Driver(), fleet(Kafka(), 1)
    driver.beat(worker, graph=GRAPH)
    worker.topology = topology(hash="h2", store="other")
    driver.beat(worker, topology=worker.topology)
    assert driver.engine.view(driver.now_ms).graph is None


def test_old_and_new_versions_understand_each_other() -> None:
    """A worker without the fields, and a coordinator that does not know them."""

    class OldHeartbeat(msgspec.Struct):
        application: str
        worker: str
        sequence: int

    new = Heartbeat("a", "w", "i", 1, "h", load=load(1), graph=GRAPH)
    assert msgspec.json.decode(encode(new), type=OldHeartbeat) == OldHeartbeat("a", "w", 1)
    assert decode_heartbeat(encode(Heartbeat("a", "w", "i", 1, "h"))).load is None
    assert b"load" not in encode(Heartbeat("a", "w", "i", 1, "h")), "omitted when there is none"
    driver, (worker,) = Driver(), fleet(Kafka(), 1)
    report(driver, worker, None, load(0), load(2_000, 10))
    view = driver.engine.view(driver.now_ms)
    assert msgspec.json.decode(encode(view), type=View) == view


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("load", "busy_ms"), 10**400),
        (("load", "measured_ms"), 2**63),
        (("load", "processed"), -(10**400)),
        (("load", "tasks", "0_0", "processed"), 10**400),
        (("load", "tasks", "0_0", "inputs", "flights", "consumed"), 10**400),
        (("load", "tasks", "0_0", "inputs", "flights", "lag"), 10**400),
        (("tasks", "0_0", "lag"), 10**400),
        (("topology", "subtopologies", 0, "partitions"), -1_000_000),
        (("clock_ms",), 10**400),
    ],
    ids=lambda each: "/".join(map(str, each)) if isinstance(each, tuple) else "",
)
def test_numbers_that_no_worker_counts_are_refused(path: tuple[Any, ...], value: int) -> None:
    """Rates of them cannot be computed, so nobody could look at the application; tasks could not be counted."""
    sent = heartbeat(tasks=running("0_0"), load=load(1_000, 10, 5))
    assert decode_heartbeat(encode(sent)) == sent
    raw = msgspec.to_builtins(sent)
    inner = raw
    for key in path[:-1]:
        inner = inner[key] if isinstance(inner, list | tuple) else inner.setdefault(key, {})
    inner[path[-1]] = value
    # msgspec encodes no such numbers
    with pytest.raises(msgspec.ValidationError):
        decode_heartbeat(json.dumps(raw).encode())
