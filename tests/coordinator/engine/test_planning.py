"""Plans: who may leave, what is stored, and the orders of a worker before its first plan."""

from __future__ import annotations

import pytest

from millpond.protocol import NOBODY, Role, TakeOver, View
from millpond.topology import TaskId
from millpond_operator.assignment import AssignableWorker as Candidate
from millpond_operator.assignment import Instructions, Placement, Situation
from millpond_operator.coordinator.engine.instructions import Leaving
from millpond_operator.coordinator.engine.members import Membership
from millpond_operator.coordinator.engine.planning import only
from tests.coordinator.engine.simulation import SESSION_MS, Driver, Kafka, Worker, fleet, settled
from tests.coordinator.support import heartbeat, running, topology

TASK, OTHER = TaskId(0, 0), TaskId(0, 1)


def _may_leave(*, owners=None, claims=(), others=True, **instructions) -> bool:
    """Whether a leaving worker w0 may end."""
    live = {"w0": Candidate("w0", placeable=False, leaving=True)}
    if others:
        live["w1"] = Candidate("w1")
    situation = Situation({}, live, {}, {}, owners or {})
    member = Membership("w0", "w0-1", 0, claims=frozenset(claims), leaving=True)
    return Leaving(situation).may_leave(member, Instructions(**instructions))


def test_worker_with_nothing_left_may_leave():
    """No task waits for it."""
    assert _may_leave()
    assert _may_leave(owners={TASK: "w1"})


@pytest.mark.parametrize(
    "duty",
    [
        {"owners": {TASK: "w0"}},
        {"claims": ["0_0"]},
        {"release": {TASK: "w1"}},
        {"take_over": (TakeOver("dead", {"0_0": "w1"}),)},
    ],
    ids=["owns a task", "reports a task as its own", "has to hand over", "has to take over"],
)
def test_worker_with_a_duty_stays_while_others_take_tasks(duty):
    """A task that it owns, by the coordinator's knowledge or its own report, or an order in progress."""
    assert not _may_leave(**duty)
    assert _may_leave(**duty, others=False)


def test_placement_is_cut_down_to_living_workers():
    """Workers that died during the computation are removed."""
    placement = Placement({TASK: "w0", OTHER: "w1"}, {TASK: ("w1", "w2"), OTHER: ("w0",)}, {OTHER: ("w2",)})
    assert only(placement, {"w1", "w2"}) == Placement({OTHER: "w1"}, {TASK: ("w1", "w2")}, {OTHER: ("w2",)})


def test_plan_used_in_spite_of_deaths_names_no_dead_worker():
    """Otherwise a restarted coordinator would assign tasks to a dead worker."""
    kafka = Kafka()
    driver, workers = Driver(), fleet(kafka, 5, topology(10))
    settled(driver, workers)
    engine = driver.engine
    engine.drain("w0")
    for victim in ("w4", "w3", "w2"):
        job = engine.job(driver.now_ms)
        assert job is not None
        plan = job.run()
        engine.declare_dead(victim, driver.now_ms)
        view = engine.adopt(plan)
        if view is not None:
            break
    assert isinstance(view, View), "after a few discarded plans one is used"
    assert set(view.active.values()) <= {"w0", "w1"}


def test_unwritten_assignment_is_written_when_made_again():
    """The next job returns the same assignment, which is not known to be stored."""
    kafka = Kafka()
    driver, workers = Driver(), fleet(kafka, 1)
    settled(driver, workers)
    engine = driver.engine
    engine.heartbeat(Worker("w1", kafka, topology()).heartbeat(), driver.now_ms)
    first = engine.job(driver.now_ms)
    assert first is not None
    view = engine.adopt(first.run())
    assert isinstance(view, View)
    engine.discard_plan()
    again = engine.job(driver.now_ms)
    assert again is not None
    assert engine.adopt(again.run()) == view


def test_repeated_heartbeat_is_no_sign_of_life():
    """An old heartbeat that the network delivers again does not keep a dead worker alive."""
    kafka = Kafka()
    driver, workers = Driver(), fleet(kafka, 2)
    settled(driver, workers)
    last = workers[1].heartbeat()
    driver.engine.heartbeat(last, driver.now_ms)
    began = driver.now_ms
    while driver.now_ms - began < SESSION_MS + 500:
        driver.rounds(workers[:1])
        driver.engine.heartbeat(last, driver.now_ms)
    assert not driver.engine.members["w1"].alive


def test_worker_without_a_plan_drops_what_a_living_worker_owns():
    """Before its first plan a worker keeps its tasks, except those that another worker is known to own."""
    driver = Driver()
    engine = driver.engine
    engine.heartbeat(heartbeat("w0", tasks=running("0_0", "0_1")), driver.now_ms)
    engine.heartbeat(heartbeat("w1", tasks=running("0_1", "0_2")), driver.now_ms)
    assert engine.owners[OTHER] == "w1"
    assert engine.answer_for("w0").tasks == {"0_0": Role.ACTIVE}
    assert engine.answer_for("w1").tasks == {"0_1": Role.ACTIVE, "0_2": Role.ACTIVE}


def test_finding_of_no_owner_does_not_displace_a_living_runner():
    """Another worker read Kafka before the runner claimed the task: the runner's own report counts."""
    driver = Driver()
    engine = driver.engine
    engine.heartbeat(heartbeat("w0", tasks=running("0_0")), driver.now_ms)
    engine.heartbeat(heartbeat("w1"), driver.now_ms)
    engine.heartbeat(heartbeat("w1", 2, taken_over={"0_0": NOBODY}), driver.now_ms)
    assert engine.owners[TASK] == "w0"
