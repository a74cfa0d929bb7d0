"""Refinement: which worker runs a task meanwhile, what warms up and what it costs, and the displayed reasons."""

from __future__ import annotations

from dataclasses import replace

import pytest

from millpond.protocol import Role, TaskState
from millpond.topology import TaskId
from millpond_operator.assignment import AssignableWorker, AssignmentOptions, Copy, Placement, Situation, Task, refine
from tests.assignment.situations import ACTIVE, T, copy, one, restoring, settled, tasks, workers

LIVE = workers("w0", "w1", "w2", "w3")
DRAINING = {**LIVE, "w0": AssignableWorker("w0", placeable=False)}
LEAVING = {**LIVE, "w0": AssignableWorker("w0", placeable=False, leaving=True)}
TO_W1 = Placement({T: "w1"})
FROM_W0 = Placement({T: "w0"})


def refined(goal: Placement, situation: Situation, previous: Placement = FROM_W0, **options) -> Placement:
    """The result of `refine`, after a check of its stability."""
    settings = AssignmentOptions(**options)
    result = refine(goal, situation, settings, previous)
    assert refine(goal, situation, settings, result) == result
    return result


def test_task_stays_while_its_target_warms_up():
    """Above the acceptable lag the active task stays, and the target warms up."""
    situation = one(LIVE, {"w0": ACTIVE, "w1": copy(48_210, Role.WARM_UP)}, owner="w0")
    result = refined(TO_W1, situation)
    assert result == Placement({T: "w0"}, {}, {T: ("w1",)})
    assert result.waiting == {T: "0_0 stays on w0 until w1's copy is within 10,000 records (lag 48,210)"}


def test_unopened_copy_is_waited_for():
    """State on disk may be within the acceptable lag before it is opened; the live owner continues meanwhile."""
    situation = one(LIVE, {"w0": ACTIVE, "w1": copy(100, Role.WARM_UP, followed=False)}, owner="w0")
    assert refined(TO_W1, situation).active == {T: "w0"}


@pytest.mark.parametrize(("lag", "where"), [(10_001, "w0"), (10_000, "w1"), (0, "w1"), (None, "w0")])
def test_task_moves_once_the_lag_is_acceptable(lag, where):
    """The bound itself is acceptable; an unknown lag is not."""
    situation = one(LIVE, {"w0": ACTIVE, "w1": copy(lag, Role.WARM_UP)}, owner="w0")
    assert refined(TO_W1, situation).active == {T: where}


def test_decided_hand_over_survives_a_small_lag():
    """The copy follows the changelogs and was within the bound when it was decided."""
    ahead = Copy(Role.WARM_UP, TaskState.RUNNING, 10_400, 90_000)
    situation = one(LIVE, {"w0": ACTIVE, "w1": ahead}, owner="w0")
    assert refined(TO_W1, situation, TO_W1).active == {T: "w1"}
    assert refined(TO_W1, situation, FROM_W0).active == {T: "w0"}


def test_decided_hand_over_ends_when_the_copy_is_lost():
    """The worker restarted without its disk: it restores, so the owner continues meanwhile."""
    situation = one(LIVE, {"w0": ACTIVE, "w1": copy(90_000, Role.WARM_UP, followed=False)}, owner="w0")
    assert refined(TO_W1, situation, TO_W1).active == {T: "w0"}


def test_unreported_worker_is_assumed_to_run_its_tasks():
    """After a restart of the coordinator: nothing moves from w0 to a warm copy only because w0 reports late."""
    situation = Situation({T: Task(T, stateful=True)}, LIVE, {"w1": {T: copy(80_000)}}, {}, {})
    assert refined(TO_W1, situation).active == {T: "w0"}
    reported = replace(situation, copies={"w1": {T: copy(80_000)}, "w0": {}})
    assert refined(TO_W1, reported).active == {T: "w1"}


def test_stateless_task_moves_at_once():
    """There is nothing to warm up, on a draining worker as on any other."""
    for live in (LIVE, DRAINING, LEAVING):
        situation = one(live, {"w0": ACTIVE}, owner="w0", stateful=False)
        assert refined(TO_W1, situation) == TO_W1


def test_standby_on_the_target_costs_no_warm_up():
    """It is promoted when it has caught up, and the old owner becomes the standby."""
    goal = Placement({T: "w1"}, {T: ("w0",)})
    previous = Placement({T: "w0"}, {T: ("w1",)})
    situation = one(LIVE, {"w0": ACTIVE, "w1": copy(20_000)}, owner="w0")
    assert refined(goal, situation, previous, standby_replicas=1, max_warm_ups=1) == Placement({T: "w0"}, {T: ("w1",)})
    situation = one(LIVE, {"w0": ACTIVE, "w1": copy(0)}, owner="w0")
    assert refined(goal, situation, previous, standby_replicas=1) == goal


def test_a_missing_standby_is_made_where_the_task_goes():
    """A task that lacks a standby gets it on its target, which costs no warm-up."""
    goal = Placement({T: "w1"}, {T: ("w0",)})
    situation = one(LIVE, {"w0": ACTIVE}, owner="w0")
    assert refined(goal, situation, FROM_W0, standby_replicas=1) == Placement({T: "w0"}, {T: ("w1",)})


def test_standby_stays_until_its_replacement_has_caught_up():
    """The extra copy costs a warm-up; without one the old standby stays."""
    goal = Placement({T: "w0"}, {T: ("w2",)})
    previous = Placement({T: "w0"}, {T: ("w1",)})
    situation = one(LIVE, {"w0": ACTIVE, "w1": copy(0)}, owner="w0")
    assert refined(goal, situation, previous, standby_replicas=1).standby == {T: ("w1", "w2")}
    situation = one(LIVE, {"w0": ACTIVE, "w1": copy(0), "w2": copy(30_000, followed=False)}, owner="w0")
    assert refined(goal, situation, previous, standby_replicas=1).standby == {T: ("w1", "w2")}
    situation = one(LIVE, {"w0": ACTIVE, "w1": copy(0), "w2": copy(30)}, owner="w0")
    assert refined(goal, situation, previous, standby_replicas=1) == goal


def test_caught_up_standby_stays_ready_despite_small_lag():
    """The lag of all copies varies with the traffic: the old standby, still reported, does not return."""
    goal = Placement({T: "w0"}, {T: ("w2",)})
    follows = Copy(Role.STANDBY, TaskState.RUNNING, 10_400, 90_000)
    situation = one(LIVE, {"w0": ACTIVE, "w1": copy(0), "w2": follows}, owner="w0")
    assert refined(goal, situation, goal, standby_replicas=1) == goal


def test_missing_standby_without_a_replacement_starts_at_once():
    """Replacing a lost standby needs no warm-up."""
    known = tasks(20)
    before = Placement(dict.fromkeys(known, "w0"), dict.fromkeys(known, ("w1",)))
    goal = Placement(dict.fromkeys(known, "w0"), dict.fromkeys(known, ("w2",)))
    live = workers("w0", "w2")
    result = refined(goal, settled(before, known, live), before, standby_replicas=1, max_warm_ups=1)
    assert result == goal


def many(count: int, copies: dict[str, dict[int, Copy]], live=LIVE) -> tuple[Placement, Situation, Placement]:
    """Tasks 0_0 ... that run on w0 and should run on w1, with some copies by partition."""
    known = tasks(count)
    held = {id_: {TaskId(0, p): c for p, c in copies.get(id_, {}).items()} for id_ in live}
    held["w0"] |= dict.fromkeys(known, ACTIVE)
    owners = dict.fromkeys(known, "w0")
    return Placement(dict.fromkeys(known, "w1")), Situation(known, live, held, {}, owners), Placement(owners)


def test_the_whole_application_shares_the_warm_ups():
    """Two at a time; the reasons of the others say so."""
    goal, situation, previous = many(5, {})
    result = refined(goal, situation, previous, max_warm_ups=2)
    assert result.warm_up == {TaskId(0, 0): ("w1",), TaskId(0, 1): ("w1",)}
    assert result.waiting[TaskId(0, 4)] == (
        "0_4 stays on w0 until w1 can warm up a copy: all 2 warm-ups (max.warmup.replicas) are in use"
    )
    assert result.waiting[TaskId(0, 0)].endswith("(lag not known yet)")


def test_warm_ups_under_way_go_on_before_new_ones_start():
    """Reported ones too, when the last placement is lost."""
    goal, situation, previous = many(5, {"w1": {3: copy(50_000, Role.WARM_UP), 4: copy(60_000, Role.WARM_UP)}})
    result = refined(goal, situation, previous, max_warm_ups=2)
    assert set(result.warm_up) == {TaskId(0, 3), TaskId(0, 4)}
    remembered = replace(previous, warm_up={TaskId(0, 2): ("w1",)})
    goal, situation, _ = many(5, {})
    assert set(refined(goal, situation, remembered, max_warm_ups=1).warm_up) == {TaskId(0, 2)}


def test_stuck_warm_up_gives_its_slot_to_another():
    """w1 restores an active task first; w2 is free."""
    known = tasks(3)
    a, b, c = sorted(known)
    live = LIVE
    stuck = Copy(Role.WARM_UP, TaskState.RESTORING, 100_000, 0)
    copies = {"w0": {a: ACTIVE, b: ACTIVE}, "w1": {c: restoring(90_000), a: stuck}, "w2": {}, "w3": {}}
    situation = Situation(known, live, copies, {}, {a: "w0", b: "w0", c: "w1"})
    goal = Placement({a: "w1", b: "w2", c: "w1"})
    previous = Placement({a: "w0", b: "w0", c: "w1"}, {}, {a: ("w1",)})
    assert refined(goal, situation, previous, max_warm_ups=1).warm_up == {b: ("w2",)}
    # Once it has something it is not given up.
    moving = replace(stuck, offset=5, lag=99_995)
    situation = replace(situation, copies={**copies, "w1": {c: restoring(90_000), a: moving}})
    assert refined(goal, situation, previous, max_warm_ups=1).warm_up == {a: ("w1",)}


def test_tasks_of_leaving_workers_warm_up_first():
    """A draining worker's tasks come before moves that only balance."""
    known = tasks(2)
    a, b = sorted(known)
    live = {**LIVE, "w3": AssignableWorker("w3", placeable=False)}
    copies = {"w0": {a: ACTIVE}, "w1": {}, "w2": {}, "w3": {b: ACTIVE}}
    situation = Situation(known, live, copies, {}, {a: "w0", b: "w3"})
    result = refined(Placement({a: "w1", b: "w2"}), situation, Placement({a: "w0", b: "w3"}), max_warm_ups=1)
    assert result.warm_up == {b: ("w2",)}


def test_warm_ups_go_from_heavy_to_light_workers():
    """Each planned one counts as load: the second one goes to another worker."""
    known = tasks(6)
    ids = sorted(known)
    owners = dict.fromkeys(ids, "w0")
    copies = {"w0": dict.fromkeys(ids, ACTIVE), "w1": {}, "w2": {}, "w3": {}}
    situation = Situation(known, LIVE, copies, {}, owners)
    goal = Placement({**owners, ids[2]: "w1", ids[3]: "w1", ids[4]: "w2", ids[5]: "w2"})
    result = refined(goal, situation, Placement(owners), max_warm_ups=2)
    assert result.warm_up == {ids[2]: ("w1",), ids[4]: ("w2",)}


def test_warm_up_without_a_valid_target_stays():
    """The target died and there is no new one yet: restored state is kept."""
    situation = one(LIVE, {"w0": ACTIVE, "w1": copy(50_000, Role.WARM_UP)}, owner="w0")
    result = refined(Placement({T: "gone"}), situation, Placement({T: "w0"}, {}, {T: ("w1",)}))
    assert result == Placement({T: "w0"}, {}, {T: ("w1",)})


@pytest.mark.parametrize("options", [{"max_warm_ups": 0}, {"acceptable_lag": 2**63 - 1}])
def test_without_warm_ups_the_target_holds_at_once(options):
    """No warm-ups allowed, or any lag acceptable: refine is the identity."""
    goal = Placement({T: "w1"}, {T: ("w2",)})
    situation = one(LIVE, {"w0": ACTIVE}, owner="w0")
    result = refined(goal, situation, standby_replicas=1, **options)
    assert result == goal
    assert result.waiting == {T: "0_0 moves to w1 when w0 has handed it over"}


def test_draining_worker_moves_tasks_to_any_warm_copy():
    """A caught-up standby that is not the target runs the task meanwhile; the target warms up for the second move."""
    goal = Placement({T: "w1"})
    situation = one(DRAINING, {"w0": ACTIVE}, owner="w0")
    assert refined(goal, situation) == Placement({T: "w0"}, {}, {T: ("w1",)})
    situation = one(DRAINING, {"w0": ACTIVE, "w2": copy(0)}, owner="w0")
    assert refined(goal, situation).active == {T: "w2"}
    assert refined(goal, situation).warm_up == {T: ("w1",)}


def test_leaving_worker_hands_over_to_the_best_copy():
    """Warm or not: caught up, else with the least lag, else the target."""
    goal = Placement({T: "w1"})
    warm = one(LEAVING, {"w0": ACTIVE, "w2": copy(0)}, owner="w0")
    assert refined(goal, warm).active == {T: "w2"}
    lukewarm = one(LEAVING, {"w0": ACTIVE, "w2": copy(40_000), "w3": copy(60_000)}, owner="w0")
    assert refined(goal, lukewarm).active == {T: "w2"}
    assert refined(goal, one(LEAVING, {"w0": ACTIVE}, owner="w0")).active == {T: "w1"}


def test_task_without_a_placeable_worker_stays_with_a_reason():
    """Only draining workers are left."""
    live = {"w0": AssignableWorker("w0", placeable=False, leaving=True), "w1": AssignableWorker("w1", placeable=False)}
    result = refined(Placement(), one(live, {"w0": ACTIVE}, owner="w0"))
    assert result == FROM_W0
    assert result.waiting == {T: "0_0 stays on w0: no other live worker may get tasks"}
    result = refined(Placement(), one(live, {}, owner="dead"))
    assert result == Placement()
    assert result.waiting == {T: "0_0 cannot run: no live worker may get tasks"}


def test_dead_owners_task_goes_through_a_warm_copy():
    """Caught up comes first, then the target, then a worker that is no standby in the target."""
    both = one(LIVE, {"w1": copy(9_000), "w2": copy(0)}, owner="dead")
    assert refined(TO_W1, both).active == {T: "w1"}
    other = one(LIVE, {"w1": copy(19_000), "w2": copy(0)}, owner="dead")
    result = refined(TO_W1, other)
    assert result.active == {T: "w2"}
    assert result.waiting == {
        T: "0_0 moves to w2 when it is taken over from dead, which is dead, and stays there until "
        "w1's copy is within 10,000 records (lag 19,000)"
    }
    spare = one(LIVE, {"w2": copy(0), "w3": copy(0)}, owner="dead")
    goal = Placement({T: "w1"}, {T: ("w2",)})
    assert refined(goal, spare, standby_replicas=1).active == {T: "w3"}


def test_least_behind_copy_takes_over_without_a_warm_one():
    """By reported lag, or by the offsets on disk, which are comparable."""
    assert refined(TO_W1, one(LIVE, {"w2": copy(50_000)}, owner="dead")).active == {T: "w2"}
    disk = one(LIVE, {"w2": copy(50_000)}, owner="dead", disk={"w3": 80_000})
    assert refined(TO_W1, disk).active == {T: "w3"}
    assert refined(TO_W1, one(LIVE, {}, owner="dead", disk={"w3": 7})).active == {T: "w3"}
    assert refined(TO_W1, one(LIVE, {}, owner=None)).active == {T: "w1"}


def test_successor_does_not_change_during_the_take_over():
    """Lag changes with every report; the choice among equally good copies does not."""
    situation = one(LIVE, {"w2": copy(500), "w3": copy(100)}, owner="dead")
    assert refined(TO_W1, situation, Placement({T: "w2"})).active == {T: "w2"}
    situation = one(LIVE, {"w2": copy(50_000), "w3": copy(40_000)}, owner="dead")
    assert refined(TO_W1, situation, Placement({T: "w2"})).active == {T: "w2"}
    # Nor because its target has caught up meanwhile.
    situation = one(LIVE, {"w1": copy(500), "w2": copy(500)}, owner="dead")
    assert refined(TO_W1, situation, Placement({T: "w2"})).active == {T: "w2"}


def test_owner_without_its_disk_hands_over_until_restored():
    """It restores with a large lag, so the standby runs the task while it warms up."""
    goal = Placement({T: "w0"}, {T: ("w2",)})
    situation = one(LIVE, {"w0": restoring(90_000), "w2": copy(0)}, owner="w0")
    result = refined(goal, situation, goal, standby_replicas=1)
    assert result.active == {T: "w2"}
    assert "w0" in (*result.warm_up.get(T, ()), *result.standby.get(T, ()))
    nearly = one(LIVE, {"w0": restoring(9_000), "w2": copy(0)}, owner="w0")
    assert refined(goal, nearly, goal, standby_replicas=1) == goal


def test_restoring_owner_hands_over_to_a_target_not_behind():
    """There is nothing to interrupt."""
    ahead = one(LIVE, {"w0": restoring(90_000), "w1": copy(80_000)}, owner="w0")
    assert refined(TO_W1, ahead).active == {T: "w1"}
    behind = one(LIVE, {"w0": restoring(80_000), "w1": copy(90_000)}, owner="w0")
    assert refined(TO_W1, behind).active == {T: "w0"}


def test_outstanding_claim_is_the_reason_for_waiting():
    """A first assignment holds when it is claimed."""
    result = refined(TO_W1, one(LIVE, {}, owner=None), Placement())
    assert result == TO_W1
    assert result.waiting == {T: "0_0 moves to w1 when it is claimed in Kafka"}


def test_placements_are_compared_by_what_they_place():
    """A changed lag changes the reasons, but not the orders."""
    near = one(LIVE, {"w0": ACTIVE, "w1": copy(20_000, Role.WARM_UP)}, owner="w0")
    far = one(LIVE, {"w0": ACTIVE, "w1": copy(30_000, Role.WARM_UP)}, owner="w0")
    assert refined(TO_W1, near) == refined(TO_W1, far)
    assert refined(TO_W1, near).waiting != refined(TO_W1, far).waiting
