"""The target: complete, balanced, sticky, and spread over racks and tags."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

import pytest

from millpond.protocol import Role
from millpond.topology import TaskId
from millpond_operator.assignment import AssignableWorker, AssignmentOptions, Placement, Situation, Task, target
from tests.assignment.simulator import Cluster, check_target, skew
from tests.assignment.situations import ACTIVE, T, copy, one, settled, tasks, unknown, workers
from tests.support import generated


def moved(before: Placement, after: Placement) -> set[TaskId]:
    """Tasks that became active on another worker."""
    return {task for task, worker in after.active.items() if before.active.get(task) != worker}


def random_workers(dice: random.Random, most: int) -> dict[str, AssignableWorker]:
    """Some workers with tags and racks."""
    return {
        f"w{i}": AssignableWorker(
            f"w{i}", {"zone": dice.choice("abc"), "cluster": dice.choice("xy")}, dice.choice("pq")
        )
        for i in range(dice.randint(1, most))
    }


@pytest.mark.parametrize("seed", range(generated.examples(60)))
def test_a_target_is_complete_balanced_and_stable(seed):
    """For all sizes: counts differ by at most one, in each sub-topology, per kind and in total."""
    print(f"seed {seed}")
    dice = random.Random(seed)
    live = random_workers(dice, 12)
    known = tasks(dice.randint(0, 40), dice.randint(0, 40), dice.randint(1, 6))
    tags = dice.choice([(), ("zone",), ("cluster", "zone")])
    options = AssignmentOptions(standby_replicas=dice.randint(0, 3), rack_aware_tags=tags)
    situation = unknown(known, live)
    goal = target(situation, options, Placement())
    check_target(goal, situation, options)
    assert target(situation, options, goal) == goal
    assert target(settled(goal, known, live), options, goal) == goal
    assert target(settled(goal, known, live), options, Placement()) == goal


@pytest.mark.parametrize("seed", range(generated.examples(40)))
def test_rebalancing_moves_as_few_tasks_as_possible(seed):
    """One worker more or less moves few more tasks than balance needs, where sub-topologies share a worker."""
    print(f"seed {seed}")
    dice = random.Random(seed)
    subtopologies = dice.randint(1, 4)
    live = workers(*(f"w{i}" for i in range(dice.randint(2, 9))))
    known = tasks(dice.randint(1, 60), dice.randint(0, 30), subtopologies)
    before = target(unknown(known, live), AssignmentOptions(), Placement())
    if dice.random() < 0.5:
        after_live = {**live, "x": AssignableWorker("x")}
        needed = len(known) / len(after_live) + 1
    else:
        gone = dice.choice(sorted(live))
        after_live = {id_: worker for id_, worker in live.items() if id_ != gone}
        needed = sum(worker == gone for worker in before.active.values())
    after = target(settled(before, known, after_live), AssignmentOptions(), before)
    check_target(after, settled(before, known, after_live), AssignmentOptions())
    # Each sub-topology of each kind has its own remainder, which may be in the way of the sums.
    assert len(moved(before, after)) <= needed + 2 * subtopologies


def test_a_worker_that_comes_back_gets_its_tasks_back():
    """A restart within one target changes nothing: tasks stick to worker ids, and state is on the disk."""
    known, live = tasks(12, 4), workers("w0", "w1", "w2")
    options = AssignmentOptions(standby_replicas=1)
    goal = target(unknown(known, live), options, Placement())
    situation = settled(goal, known, live)
    restarted = replace(situation, copies={**situation.copies, "w1": {}})
    assert target(restarted, options, goal) == goal


def test_tasks_of_a_dead_worker_go_to_its_standbys():
    """The standby has the state; another target would have to restore."""
    known, live = tasks(12), workers("w0", "w1", "w2", "w3")
    options = AssignmentOptions(standby_replicas=1)
    before = target(unknown(known, live), options, Placement())
    left = {id_: worker for id_, worker in live.items() if id_ != "w0"}
    after = target(settled(before, known, left), options, before)
    orphans = [task for task, worker in before.active.items() if worker == "w0"]
    assert all(after.active[task] in before.standby[task] for task in orphans)
    assert moved(before, after) == set(orphans)


def test_orphan_task_goes_to_the_most_advanced_disk():
    """No worker runs it: the most advanced state on a disk counts."""
    situation = one(workers("w0", "w1", "w2"), {}, owner="dead", disk={"w1": 10, "w2": 900})
    assert target(situation, AssignmentOptions(), Placement()).active == {T: "w2"}


def test_caught_up_copy_beats_a_disk():
    """A copy within the acceptable lag comes first."""
    situation = one(workers("w0", "w1", "w2"), {"w0": copy(10)}, owner="dead", disk={"w2": 900})
    assert target(situation, AssignmentOptions(), Placement()).active == {T: "w0"}


def test_owner_keeps_its_tasks_and_gives_those_warming_elsewhere():
    """A move in progress continues, with the last target or by the reports alone."""
    known = tasks(4)
    live = workers("w0", "w1")
    ids = sorted(known)
    copies = {"w0": dict.fromkeys(ids, ACTIVE), "w1": {ids[0]: copy(50_000, Role.WARM_UP)}}
    situation = Situation(known, live, copies, {}, dict.fromkeys(known, "w0"))
    from_reports = target(situation, AssignmentOptions(), Placement())
    assert from_reports.active[ids[0]] == "w1"
    from_placement = target(situation, AssignmentOptions(), Placement(dict.fromkeys(ids, "w0"), {}, {ids[0]: ("w1",)}))
    assert from_placement.active[ids[0]] == "w1"


def test_intended_moves_survive_when_shares_shrink():
    """A new worker takes tasks from all, also planned ones."""
    known = tasks(8)
    ids = sorted(known)
    last = Placement(dict(zip(ids, ["w0"] * 3 + ["w1"] * 3 + ["w2"] * 2, strict=True)))
    live = workers("w0", "w1", "w2", "w3")
    situation = settled(Placement(dict.fromkeys(ids, "w0")), known, live)
    goal = target(situation, AssignmentOptions(), last)
    assert {task for task in ids if goal.active[task] == "w2"} == {*ids[6:]}
    assert {task for task in ids if goal.active[task] == "w1"} < {*ids[3:6]}


def test_cold_copy_does_not_displace_a_warm_one():
    """w1 has room for one of two orphans: for the one it has caught up with."""
    known = tasks(2)
    a, b = sorted(known)
    copies = {"w1": {a: copy(50_000), b: copy(0)}, "w2": {}}
    situation = Situation(known, workers("w1", "w2"), copies, {}, dict.fromkeys(known, "dead"))
    assert target(situation, AssignmentOptions(), Placement()).active == {a: "w2", b: "w1"}


@pytest.mark.parametrize("seed", range(generated.examples(20)))
def test_copies_are_balanced_too_after_every_change(seed):
    """Without tags the sums of active tasks and standbys differ by one at most."""
    print(f"seed {seed}")
    dice = random.Random(seed)
    known = tasks(dice.randint(5, 60), 0, dice.randint(1, 3))
    live = workers(*(f"w{i}" for i in range(dice.randint(4, 10))))
    options = AssignmentOptions(standby_replicas=dice.randint(1, 2))
    goal = target(unknown(known, live), options, Placement())
    for change in range(4):
        situation = settled(goal, known, live)
        load = Counter(goal.active.values()) + Counter(each for holders in goal.standby.values() for each in holders)
        assert skew(load[worker] for worker in live) <= 1
        assert target(situation, options, goal) == goal
        live = (
            {**live, f"x{change}": AssignableWorker(f"x{change}")}
            if change % 2
            else dict(dice.sample([*live.items()], len(live) - 1))
        )
        goal = target(settled(goal, known, live), options, goal)


def test_workers_that_drain_or_leave_get_nothing():
    """Only placeable workers are in a target; none of them means none in it."""
    known = tasks(6, 2)
    live = {**workers("w0"), "w1": AssignableWorker("w1", placeable=False), "w2": AssignableWorker("w2", leaving=True)}
    options = AssignmentOptions(standby_replicas=2)
    goal = target(unknown(known, live), options, Placement())
    assert set(goal.active.values()) == {"w0"}
    assert not goal.standby
    del live["w0"]
    assert target(unknown(known, live), options, Placement()) == Placement()


def test_weights_even_out_where_tasks_of_a_sub_topology_differ():
    """Counts stay even, and no worker is much heavier than necessary."""
    dice = random.Random(1)
    ids = [TaskId(0, i) for i in range(40)]
    known = {id_: Task(id_, stateful=True, weight=dice.choice([1.0, 1.0, 1.0, 10.0])) for id_ in ids}
    live = workers("w0", "w1", "w2", "w3")
    # The last target had them in the worst order: all the heavy ones together.
    heavy_first = sorted(ids, key=lambda id_: -known[id_].weight)
    worst = Placement({id_: f"w{i // 10}" for i, id_ in enumerate(heavy_first)})
    situation = settled(worst, known, live)
    goal = target(situation, AssignmentOptions(), worst)
    load = Counter()
    for task, worker in goal.active.items():
        load[worker] += known[task].weight
    check_target(goal, situation, AssignmentOptions())
    assert skew(load.values()) <= 10
    assert target(situation, AssignmentOptions(), goal) == goal


def test_small_differences_in_weight_move_nothing():
    """Measured weights vary; tasks stay."""
    dice = random.Random(2)
    known = tasks(40)
    live = workers("w0", "w1", "w2", "w3")
    goal = target(unknown(known, live), AssignmentOptions(), Placement())
    wobbling = {id_: replace(task, weight=dice.uniform(0.97, 1.03)) for id_, task in known.items()}
    assert target(settled(goal, wobbling, live), AssignmentOptions(), goal) == goal


def test_few_workers_make_few_standbys_and_stateless_tasks_none():
    """A task has at most one copy on each worker."""
    goal = target(unknown(tasks(4, 4), workers("w0", "w1")), AssignmentOptions(standby_replicas=3), Placement())
    assert set(goal.standby) == set(tasks(4))
    assert all(len(holders) == 1 for holders in goal.standby.values())


def test_standbys_of_one_worker_are_spread_over_the_others():
    """When it dies the others share its tasks."""
    known, live = tasks(40), workers("w0", "w1", "w2", "w3", "w4")
    goal = target(unknown(known, live), AssignmentOptions(standby_replicas=1), Placement())
    pairs = Counter((goal.active[task], goal.standby[task][0]) for task in known)
    assert max(pairs.values()) <= 4  # 8 tasks, 4 others


def test_copies_are_in_different_zones():
    """One tag: as many of its values as a task has copies (KIP-708)."""
    live = {f"w{i}": AssignableWorker(f"w{i}", {"zone": "abc"[i % 3]}) for i in range(7)}
    options = AssignmentOptions(standby_replicas=2, rack_aware_tags=("zone",))
    goal = target(unknown(tasks(30), live), options, Placement())
    for task, worker in goal.active.items():
        assert {live[each].tags["zone"] for each in (worker, *goal.standby[task])} == {"a", "b", "c"}


def test_racks_are_spread_over_when_no_tags_are_configured():
    """`client.rack` is enough."""
    live = {f"w{i}": AssignableWorker(f"w{i}", rack="ab"[i % 2]) for i in range(4)}
    goal = target(unknown(tasks(8), live), AssignmentOptions(standby_replicas=1), Placement())
    assert all(live[goal.active[task]].rack != live[goal.standby[task][0]].rack for task in goal.active)


def test_spread_over_zones_comes_before_balance():
    """One worker in zone b has a copy of every task of zone a."""
    live = {f"w{i}": AssignableWorker(f"w{i}", {"zone": "a"}) for i in range(4)} | {
        "b": AssignableWorker("b", {"zone": "b"})
    }
    options = AssignmentOptions(standby_replicas=1, rack_aware_tags=("zone",))
    known = tasks(20)
    goal = target(unknown(known, live), options, Placement())
    assert all("b" in {goal.active[task], *goal.standby[task]} for task in known)
    assert target(settled(goal, known, live), options, goal) == goal


def test_a_zone_that_appears_gets_standbys():
    """Standbys that share a zone with their active task move when they no longer have to."""
    known, options = tasks(12), AssignmentOptions(standby_replicas=1, rack_aware_tags=("zone",))
    live = {f"w{i}": AssignableWorker(f"w{i}", {"zone": "a"}) for i in range(3)}
    before = target(unknown(known, live), options, Placement())
    live |= {f"v{i}": AssignableWorker(f"v{i}", {"zone": "b"}) for i in range(3)}
    after = target(settled(before, known, live), options, before)
    assert all(live[after.active[task]].tags != live[after.standby[task][0]].tags for task in known)


def test_first_configured_tag_counts_most():
    """With `zone` before `cluster`, zones are spread first; `colour` is not configured."""
    live = {
        "w0": AssignableWorker("w0", {"zone": "a", "cluster": "x", "colour": "red"}),
        "w1": AssignableWorker("w1", {"zone": "a", "cluster": "y", "colour": "blue"}),
        "w2": AssignableWorker("w2", {"zone": "b", "cluster": "x", "colour": "red"}),
        "w3": AssignableWorker("w3", {"zone": "b", "cluster": "y", "colour": "red"}),
    }
    options = AssignmentOptions(standby_replicas=1, rack_aware_tags=("zone", "cluster"))
    goal = target(unknown(tasks(8), live), options, Placement())
    opposite = {"w0": ("w3",), "w3": ("w0",), "w1": ("w2",), "w2": ("w1",)}
    assert all(goal.standby[task] == opposite[worker] for task, worker in goal.active.items())


def test_worker_without_the_tag_is_the_last_choice():
    """It neither shares a zone nor adds one."""
    live = {
        "w0": AssignableWorker("w0", {"zone": "a"}),
        "w1": AssignableWorker("w1"),
        "w2": AssignableWorker("w2", {"zone": "b"}),
    }
    options = AssignmentOptions(standby_replicas=1, rack_aware_tags=("zone",))
    goal = target(unknown(tasks(9), live), options, Placement())
    assert all(
        goal.standby[task] == ({"w0": "w2", "w2": "w0"}[worker],)
        for task, worker in goal.active.items()
        if worker != "w1"
    )


def test_fewer_replicas_keep_the_better_spread_ones():
    """Of standbys in zones b and a, the one in another zone than the active task stays."""
    live = {id_: AssignableWorker(id_, {"zone": zone}) for id_, zone in (("w0", "a"), ("w1", "a"), ("w2", "b"))}
    situation = one(live, {"w0": ACTIVE, "w1": copy(0), "w2": copy(0)}, owner="w0")
    previous = Placement({T: "w0"}, {T: ("w1", "w2")})
    options = AssignmentOptions(standby_replicas=1, rack_aware_tags=("zone",))
    assert target(situation, options, previous).standby == {T: ("w2",)}


@pytest.mark.parametrize("seed", range(generated.examples(20)))
def test_refined_placement_serves_as_the_previous_target(seed):
    """After a restart only the last placement is known: it leads to the same target, or an equally good one."""
    print(f"seed {seed}")
    dice = random.Random(seed)
    cluster = Cluster(stateful=dice.randint(1, 20), stateless=dice.randint(0, 5), seed=seed)
    cluster.add("w0", "w1")
    cluster.waves(1)
    cluster.add("w2", speed=1_000)
    for _ in range(3):
        cluster.step()
    goal = target(cluster.situation(), cluster.options, cluster.placement)
    check_target(goal, cluster.situation(), cluster.options)
    for task, [worker] in cluster.placement.warm_up.items():
        assert goal.active[task] == worker
