"""Decisions about workers in a world of simulated pods."""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import timedelta

import pytest

from millpond_operator.controllers.rollout.model import WantedWorkers
from millpond_operator.controllers.rollout.status import AppPhase
from tests.rollout.world import World
from tests.support import generated

WANTED = WantedWorkers("r1", 3, min_ready=timedelta(seconds=2), progress_deadline=timedelta(seconds=60))


def _running(world: World, **changes) -> World:
    world.wanted = replace(WANTED, **changes)
    world.until(lambda decision: decision.phase is AppPhase.RUNNING and len(world.pods) == world.wanted.replicas)
    return world


def _settled(world: World):
    return lambda decision: (
        decision.phase in {AppPhase.RUNNING, AppPhase.DEGRADED, AppPhase.SUSPENDED}
        and len(world.pods) == decision.replicas
        and all(pod.terminating_until is None for pod in world.pods.values())
        and world.status.rollout is None
    )


def _revisions(world: World) -> set[str]:
    return {pod.revision for pod in world.pods.values()}


@pytest.fixture(params=range(5))
def world(request) -> World:
    print("seed", request.param)
    return World(random.Random(request.param), WANTED)


def test_first_revision_counts_as_good_once_it_works(world):
    """There is no rollback to a revision that never worked."""
    assert world.turn().phase is AppPhase.PENDING
    assert world.status.current_revision == ""
    _running(world)
    assert world.status.current_revision == "r1"


def test_a_rolling_update_restarts_one_empty_worker_at_a_time(world):
    """Tasks move off a worker before it ends, and the next one waits until it has settled."""
    _running(world)
    world.wanted = replace(world.wanted, revision="r2")
    world.until(lambda decision: _settled(world)(decision) and world.status.current_revision == "r2")
    assert _revisions(world) == {"r2"}
    assert world.deleted_full == []
    assert world.down_by_us == 1


def test_single_worker_is_restarted_without_draining_elsewhere(world):
    """It must not wait for a place to drain to."""
    _running(world, replicas=1)
    world.wanted = replace(world.wanted, revision="r2")
    world.until(lambda _: world.status.current_revision == "r2", turns=40)


def test_broken_revision_is_rolled_back_after_one_worker(world):
    """The other workers keep the good revision; the failure is saved, and the revision is not tried again."""
    _running(world)
    world.bad.add("r2")
    world.wanted = replace(world.wanted, revision="r2")
    world.until(lambda decision: decision.phase is AppPhase.DEGRADED)
    world.until(_settled(world))
    assert _revisions(world) == {"r1"}
    assert world.status.failed is not None
    assert world.status.failed.reason == "ApplicationNotImportable"
    assert world.down_by_us == 1
    for _ in range(100):
        world.turn()
    assert _revisions(world) == {"r1"}


def test_after_a_rollback_the_next_revision_is_tried(world):
    """Only the one that failed is not tried again."""
    _running(world)
    world.bad.add("r2")
    world.wanted = replace(world.wanted, revision="r2")
    world.until(lambda decision: decision.phase is AppPhase.DEGRADED)
    world.wanted = replace(world.wanted, revision="r3")
    world.until(lambda decision: _settled(world)(decision) and world.status.current_revision == "r3")
    assert _revisions(world) == {"r3"}
    assert world.status.failed is None


def test_broken_first_revision_gives_way_to_the_next(world):
    """There is no rollback; the corrected revision rolls out."""
    world.bad.add("r1")
    world.until(lambda _: world.status.failed is not None)
    world.wanted = replace(world.wanted, revision="r2")
    world.until(lambda _: world.status.current_revision == "r2")
    assert _revisions(world) == {"r2"}
    assert world.status.failed is None


@pytest.mark.parametrize("replicas", [1, 3])
def test_another_topology_is_refused_under_rolling(world, replicas):
    """Its workers cannot share tasks or state with those of the old one."""
    _running(world, replicas=replicas)
    world.topology["r2"] = "two"
    world.wanted = replace(world.wanted, revision="r2")
    world.until(lambda decision: decision.phase is AppPhase.DEGRADED)
    assert world.status.failed is not None
    assert world.status.failed.reason == "IncompatibleTopology"
    assert "Recreate" in world.status.failed.message
    world.until(_settled(world))
    assert _revisions(world) == {"r1"}
    assert world.running_topology == "one"


def test_another_topology_takes_over_under_recreate_when_all_have_stopped(world):
    """Changing the strategy, as the message suggests, lets the failed revision be tried again."""
    _running(world)
    world.topology["r2"] = "two"
    world.wanted = replace(world.wanted, revision="r2")
    world.until(lambda decision: decision.phase is AppPhase.DEGRADED)
    world.wanted = replace(world.wanted, strategy="Recreate")
    mixed = []
    world.until(
        lambda _: (
            mixed.append(len(_revisions(world)) > 1 and world.status.rollout is None)
            or world.status.current_revision == "r2"
        )
    )
    assert not any(mixed)
    assert world.running_topology == "two"
    assert world.turn().pinned == "two"


def test_recreate_never_runs_two_revisions_at_once(world):
    """All stop before the first one starts."""
    _running(world, strategy="Recreate")
    world.wanted = replace(world.wanted, revision="r2")
    for _ in range(200):
        world.turn()
        assert len(_revisions(world)) <= 1
    assert world.status.current_revision == "r2"


def test_recreate_rolls_back_a_bad_revision(world):
    """Whether or not the bad revision has another topology."""
    _running(world, strategy="Recreate")
    world.bad.add("r2")
    world.topology["r2"] = "two"
    world.wanted = replace(world.wanted, revision="r2")
    world.until(lambda decision: decision.phase is AppPhase.DEGRADED)
    world.until(_settled(world))
    assert _revisions(world) == {"r1"}
    assert world.running_topology == "one"


def test_a_scale_in_drains_the_highest_ordinals_first(world):
    """None of them ends while it has a task."""
    _running(world, replicas=4)
    world.wanted = replace(world.wanted, replicas=2)
    while True:
        decision = world.turn()
        if decision.replicas == 2:
            break
        assert {2, 3}.isdisjoint({int(each[-1]) for each in {"app-0", "app-1"} & decision.drain})
    assert {world.owners[task] for task in world.owners} <= {0, 1}
    world.until(_settled(world))
    assert set(world.pods) == {0, 1}
    assert world.draining == frozenset()


def test_a_suspended_application_stops_and_resumes_with_what_it_had(world):
    """Its volumes are kept, and the revision that worked before still counts as good."""
    _running(world)
    world.wanted = replace(world.wanted, suspended=True)
    world.until(lambda decision: decision.phase is AppPhase.SUSPENDED)
    assert not world.pods
    assert world.turn().keep_volumes
    world.wanted = replace(world.wanted, suspended=False)
    world.until(lambda decision: decision.phase is AppPhase.RUNNING and len(world.pods) == 3)


def test_zero_replicas_do_not_prove_a_revision(world):
    """With no workers, a new revision does not count as good."""
    _running(world)
    world.wanted = replace(world.wanted, replicas=0, revision="r2")
    world.until(_settled(world))
    assert world.status.current_revision == "r1"
    world.bad.add("r2")
    world.wanted = replace(world.wanted, replicas=2)
    world.until(lambda decision: decision.phase is AppPhase.DEGRADED)
    world.until(_settled(world))
    assert _revisions(world) == {"r1"}


def test_pod_deletion_waits_for_the_observed_revision(world):
    """Otherwise the pod would be recreated with the old revision."""
    _running(world)
    world.lag_of_controller = True
    world.wanted = replace(world.wanted, revision="r2")
    for _ in range(50):
        assert world.turn().delete == ()
    world.lag_of_controller = False
    world.until(lambda _: world.status.current_revision == "r2")


def test_topology_is_noted_as_soon_as_its_tasks_ran(world):
    """However long a revision takes to count as good: what it processed stays."""
    world.wanted = replace(WANTED, min_ready=timedelta(hours=1))
    world.until(lambda _: all(owner is not None for owner in world.owners.values()))
    for _ in range(5):
        world.turn()
    world.topology["r2"] = "two"
    world.wanted = replace(world.wanted, revision="r2")
    world.until(lambda _: world.status.failed is not None)
    assert world.status.failed.reason == "IncompatibleTopology"
    assert world.running_topology == "one"


def test_no_automatic_rollback_from_a_topology_that_processed(world):
    """A rollback would lose what it processed, so a person decides."""
    _running(world, strategy="Recreate")
    world.topology["r2"] = "two"
    world.unready.add(("r2", 1))
    world.wanted = replace(world.wanted, revision="r2")
    world.until(lambda _: world.status.failed is not None)
    for _ in range(100):
        world.turn()
        assert _revisions(world) == {"r2"}
    assert world.running_topology == "two"
    world.wanted = replace(world.wanted, revision="r1")
    world.until(lambda decision: _settled(world)(decision) and world.status.current_revision == "r1")
    assert world.running_topology == "one"


def test_long_rollout_does_not_blame_a_worker_that_restarts(world):
    """Twelve workers take longer than the deadline; each of them has the whole deadline."""
    _running(world, replicas=12)
    world.wanted = replace(world.wanted, revision="r2")
    began = world.now
    world.until(lambda _: world.now - began > world.wanted.progress_deadline * 1.2 and world.status.rollout is not None)
    settled = next(pod.ordinal for pod in world.pods.values() if pod.revision == "r2")
    world.crash(settled)
    world.until(lambda decision: _settled(world)(decision) and world.status.current_revision == "r2")
    assert world.status.failed is None


@pytest.mark.parametrize("change", [{"replicas": 1}, {"revision": "r2"}])
def test_unreported_workers_are_not_taken_for_empty(world, change):
    """After a restart of the operator, a ready worker may have tasks."""
    _running(world)
    world.informed = False
    world.wanted = replace(world.wanted, **change)
    for _ in range(30):
        decision = world.turn()
        assert decision.replicas == 3
        assert decision.delete == ()
    world.informed = True
    world.until(_settled(world))


def test_lost_nodes_pod_does_not_block_an_upgrade(world):
    """It ends once its node is back; the others do not wait for it."""
    _running(world, replicas=4)
    world.pods[3].terminating_until = world.now + timedelta(days=1)
    world.wanted = replace(world.wanted, replicas=3, revision="r2")
    world.until(lambda _: world.status.current_revision == "r2")


@pytest.mark.share(100)
@pytest.mark.parametrize("seed", range(generated.examples(200)))
def test_random_changes_end_in_the_wanted_revision(seed):
    """With changes and crashes at any time, the wanted revision runs in the end, or the last good one if it is bad."""
    print("seed", seed)
    chance = random.Random(seed)
    world = World(chance, WANTED, topology={"r3": "two"}, bad={"r4"})
    for _ in range(chance.randint(3, 10)):
        for _ in range(chance.randint(1, 60)):
            world.turn(chance.uniform(0.2, 3))
            if chance.random() < 0.03:
                world.crash(chance.randrange(5))
            if chance.random() < 0.02 and world.pods:
                pod = chance.choice(list(world.pods.values()))
                pod.terminating_until = world.now
        world.wanted = replace(
            world.wanted,
            revision=chance.choice(["r1", "r2", "r3", "r4"]),
            replicas=chance.choice([0, 1, 2, 3, 5]),
            strategy=chance.choice(["Rolling", "Recreate"]),
            suspended=chance.random() < 0.15,
        )
    world.wanted = replace(world.wanted, suspended=False, replicas=3)

    def hopeless(_) -> bool:
        return world.status.failed is not None and world.status.current_revision not in world.kept | {"r1", "r2", "r3"}

    world.until(lambda decision: _settled(world)(decision) or hopeless(decision), turns=1500)
    for _ in range(60):
        world.turn()
    running = _revisions(world)
    if world.status.failed is None:
        assert running == {world.wanted.revision}
    else:
        assert world.status.failed.revision == world.wanted.revision
        assert running == {world.status.current_revision or world.wanted.revision}
    assert {pod.ordinal for pod in world.pods.values()} == {0, 1, 2}
    assert world.draining == frozenset()
