"""Instructions: hand-overs by live workers, take-overs from dead ones, and nothing too early."""

from __future__ import annotations

from millpond.protocol import Role, TakeOver
from millpond.topology import TaskId
from millpond_operator.assignment import AssignableWorker, Instructions, Placement, Situation, Task, grant
from tests.assignment.situations import ACTIVE, T, one, tasks, workers

LIVE = workers("w0", "w1", "w2")


def test_owner_is_active_before_it_holds_the_task():
    """Kafka names it as the owner."""
    assert grant(Placement({T: "w0"}), one(LIVE, {}, owner="w0")) == {
        "w0": Instructions({T: Role.ACTIVE}),
        "w1": Instructions(),
        "w2": Instructions(),
    }


def test_live_owner_releases_while_the_next_owner_copies():
    """Active is granted to one worker at a time."""
    told = grant(Placement({T: "w1"}, {T: ("w0", "w2")}), one(LIVE, {"w0": ACTIVE}, owner="w0"))
    assert told["w0"] == Instructions({T: Role.ACTIVE}, {T: "w1"})
    assert told["w1"] == Instructions({T: Role.WARM_UP})
    assert told["w2"] == Instructions({T: Role.STANDBY})


def test_next_owner_of_a_stateless_task_holds_nothing_yet():
    """A stateless task has no copy."""
    told = grant(Placement({T: "w1"}), one(LIVE, {"w0": ACTIVE}, owner="w0", stateful=False))
    assert told["w0"].release == {T: "w1"}
    assert told["w1"] == Instructions()


def test_released_owner_holds_what_the_placement_says():
    """A standby, or nothing."""
    situation = one(LIVE, {"w0": ACTIVE}, owner="w1")
    assert grant(Placement({T: "w1"}, {T: ("w0",)}), situation)["w0"] == Instructions({T: Role.STANDBY})
    assert grant(Placement({T: "w1"}), situation)["w0"] == Instructions()


def test_one_executor_takes_over_from_a_dead_worker():
    """The one that gets most of its tasks; among equals the first by id."""
    known = tasks(3)
    a, b, c = sorted(known)
    situation = Situation(known, LIVE, {id_: {} for id_ in LIVE}, {}, dict.fromkeys(known, "dead"))
    told = grant(Placement({a: "w1", b: "w2", c: "w2"}), situation)
    assert told["w2"].take_over == (TakeOver("dead", {"0_0": "w1", "0_1": "w2", "0_2": "w2"}),)
    assert told["w1"].take_over == ()
    assert told["w1"].tasks == {a: Role.WARM_UP}
    tie = grant(Placement({a: "w1", b: "w2", c: "w0"}), situation)
    assert tie["w0"].take_over[0].previous == "dead"


def test_each_dead_worker_has_its_own_executor():
    """It may be the same worker: orders are by previous owner."""
    known = tasks(2)
    a, b = sorted(known)
    situation = Situation(known, LIVE, {id_: {} for id_ in LIVE}, {}, {a: "x", b: "y"})
    told = grant(Placement({a: "w1", b: "w1"}), situation)
    assert told["w1"].take_over == (TakeOver("x", {"0_0": "w1"}), TakeOver("y", {"0_1": "w1"}))


def test_unowned_and_unknown_tasks_are_claimed_together():
    """The executor reports what it finds."""
    known = tasks(2)
    a, b = sorted(known)
    situation = Situation(known, LIVE, {id_: {} for id_ in LIVE}, {}, {a: None})
    told = grant(Placement({a: "w1", b: "w1"}), situation)
    assert told["w1"].take_over == (TakeOver(None, {"0_0": "w1", "0_1": "w1"}),)


def test_runner_of_a_task_with_unknown_owner_continues():
    """Stopping it would be wrong, and it is about to read the owner."""
    situation = Situation({T: Task(T, stateful=True)}, LIVE, {"w0": {T: ACTIVE}}, {}, {})
    told = grant(Placement({T: "w0"}), situation)
    assert told["w0"].tasks == {T: Role.ACTIVE}


def test_live_owner_keeps_tasks_missing_in_the_placement():
    """A task that is missing in the placement is not taken from its owner."""
    live = {"w0": AssignableWorker("w0", placeable=False)}
    assert grant(Placement(), one(live, {"w0": ACTIVE}, owner="w0"))["w0"] == Instructions({T: Role.ACTIVE})
    assert grant(Placement(), one(live, {}, owner="dead"))["w0"] == Instructions()


def test_dead_workers_of_the_placement_get_nothing():
    """A placement may be older than the situation."""
    told = grant(Placement({T: "gone"}, {T: ("gone", "w1")}), one(LIVE, {"w0": ACTIVE}, owner="w0"))
    assert set(told) == set(LIVE)
    assert told["w0"] == Instructions({T: Role.ACTIVE})
    assert told["w1"] == Instructions({T: Role.STANDBY})


def test_nobody_holds_a_task_twice():
    """An owner that the placement has as a standby is active until it has released the task."""
    other = TaskId(0, 1)
    known = tasks(2)
    situation = Situation(known, LIVE, {"w0": {T: ACTIVE}}, {}, {T: "w0", other: "w1"})
    told = grant(Placement({T: "w1", other: "w0"}, {T: ("w0",), other: ("w1",)}), situation)
    assert told["w0"].tasks == {T: Role.ACTIVE, other: Role.WARM_UP}
    assert told["w1"].tasks == {T: Role.WARM_UP, other: Role.ACTIVE}
