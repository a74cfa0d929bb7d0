"""Restarts by a new version of the operator: within a budget, one worker at a time, never before a user's change."""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from millpond_operator.controllers.reconcile.upgrades import Upgrades, former_revision
from millpond_operator.controllers.rollout.model import WantedWorkers
from millpond_operator.controllers.rollout.status import (
    AppPhase,
    AppStatus,
    FailedRevision,
    Rendered,
    RolloutProgress,
    timestamp,
)
from tests.rollout.world import World

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
RUNNING = AppStatus(current_revision="r1", target_revision="r1", rendered=Rendered("s1", "r1"), observed_generation=3)
FAILED = FailedRevision("r2", "Rolling", "NoProgress", "It did not settle.")
WANTED = WantedWorkers(
    "r1", 3, strategy="Recreate", min_ready=timedelta(seconds=2), progress_deadline=timedelta(seconds=60)
)


def key(number: int) -> tuple[str, str]:
    return "shop", f"app-{number}"


class Budget:
    """An operator's budget, and the StreamApps whose passes were requested."""

    def __init__(self, budget: int) -> None:
        self.told: list[tuple[str, str]] = []
        self.upgrades = Upgrades(budget, self.told.append)

    def asks(self, number: int, status: AppStatus = RUNNING, now: datetime = NOW) -> bool:
        admitted = self.upgrades.admits(key(number), status, now)
        self.upgrades.note(key(number), waits=not admitted, restarts=admitted)
        return admitted

    def is_through(self, number: int) -> None:
        self.upgrades.note(key(number), waits=False, restarts=False)


def _former(
    status: AppStatus, at_hand: set[str], *, revision: str = "r9", spec: str = "s1", auto_rollback: bool = True
) -> str:
    return former_revision(status, 3, spec, revision, at_hand, auto_rollback=auto_rollback)


def test_only_so_many_applications_restart_at_a_time():
    """A pass over the next one is requested when there is room, not before."""
    budget = Budget(2)
    assert [budget.asks(number) for number in range(5)] == [True, True, False, False, False]
    assert [budget.asks(number) for number in range(5)] == [True, True, False, False, False]
    assert budget.upgrades.waiting == 3
    assert not budget.told
    budget.is_through(0)
    assert key(2) in budget.told
    assert budget.asks(2)
    assert not budget.asks(3)
    assert budget.upgrades.waiting == 2


def test_deleted_applications_leave_room_for_others():
    """A deleted StreamApp does not count towards the budget."""
    budget = Budget(1)
    assert budget.asks(0)
    assert not budget.asks(1)
    budget.upgrades.forget(key(0))
    assert budget.told == [key(1)]
    assert budget.asks(1)


def test_application_that_restarts_for_an_hour_lets_others_begin():
    """Its brokers may be unavailable for days."""
    budget = Budget(1)
    assert budget.asks(0)
    assert not budget.asks(1, now=NOW + timedelta(minutes=59))
    assert budget.asks(1, now=NOW + timedelta(hours=1))


def test_a_new_leader_counts_what_was_begun_before_it():
    """It finds them in the statuses."""
    budget = Budget(1)
    begun = RolloutProgress("r2", "Rolling", timestamp(NOW), "r1", upgrade=True)
    statuses = [
        AppStatus(rollout=begun),
        AppStatus(rollout=RolloutProgress("r2", "Rolling", timestamp(NOW), "r1")),
        RUNNING,
    ]
    apps = [
        {"metadata": {"namespace": "shop", "name": f"app-{number}"}, "status": status.as_object()}
        for number, status in enumerate(statuses)
    ]
    budget.upgrades.prime(apps, NOW)
    assert not budget.asks(2)
    budget.is_through(0)
    assert budget.asks(2)


@pytest.mark.parametrize(
    "status",
    [AppStatus(rollout=RolloutProgress("r2", "Rolling", timestamp(NOW))), AppStatus(failed=FAILED)],
    ids=["in the middle of a rollout", "rolled back"],
)
def test_an_application_that_has_not_settled_is_not_upgraded(status):
    """A user's rollout finishes first, and a failed revision is not tried again because of an upgrade."""
    budget = Budget(1)
    assert not budget.asks(0, status)
    assert budget.asks(1)


def test_another_revision_of_the_same_specification_is_the_operators():
    """The former revision continues as long as its template exists."""
    assert _former(RUNNING, {"r1"}) == "r1"
    assert _former(RUNNING, set()) == ""
    assert _former(RUNNING, {"r1"}, revision="r1") == ""


def test_a_persons_change_is_not_the_operators():
    """Whatever the new version changes at the same time."""
    assert _former(RUNNING, {"r1"}, spec="s2") == ""


def test_statuses_of_earlier_versions_count_by_their_generation():
    """They do not contain the rendered revision."""
    old = AppStatus(current_revision="r1", target_revision="r1", observed_generation=3)
    assert _former(old, {"r1"}) == "r1"
    assert _former(AppStatus(current_revision="r1", target_revision="r1", observed_generation=2), {"r1"}) == ""
    assert (
        _former(AppStatus(target_revision="r1", current_revision="r1", failed=FAILED, observed_generation=3), {"r1"})
        == "r2"
    )


def test_a_failed_revision_stays_failed_under_a_new_version():
    """The good revision runs instead, if rollback is on and its template exists."""
    failed = AppStatus(current_revision="r1", target_revision="r1", failed=FAILED, rendered=Rendered("s1", "r2"))
    assert _former(failed, {"r1"}) == "r2"
    assert _former(failed, {"r1"}, auto_rollback=False) == ""
    assert _former(failed, {"r2"}, auto_rollback=False) == "r2"


@pytest.fixture(params=range(5))
def world(request) -> World:
    print("seed", request.param)
    made = World(random.Random(request.param), WANTED)
    made.until(lambda decision: decision.phase is AppPhase.RUNNING and len(made.pods) == 3)
    return made


def _upgrade(world: World, revision: str) -> None:
    """Return a decision of a new version; afterwards the status says that the restart began."""
    world.wanted = replace(world.wanted, revision=revision, upgrade=True)
    world.turn()
    world.wanted = replace(world.wanted, upgrade=False)


def test_an_upgrade_restarts_recreated_applications_one_worker_at_a_time(world):
    """The topology is the same, so not all workers need to stop."""
    _upgrade(world, "r2")
    assert world.status.rollout.upgrade

    def through(decision) -> bool:
        assert decision.replicas == 3
        return world.status.current_revision == "r2" and world.status.rollout is None

    world.until(through)
    assert {pod.revision for pod in world.pods.values()} == {"r2"}
    assert world.deleted_full == []
    assert world.down_by_us == 1


def test_a_failed_upgrade_goes_back_one_worker_at_a_time(world):
    """It stays the current worker until it is back."""
    world.bad.add("r2")
    _upgrade(world, "r2")

    def back(decision) -> bool:
        assert decision.replicas == 3
        assert world.status.rollout is None or world.status.rollout.upgrade
        return decision.phase is AppPhase.DEGRADED and world.status.rollout is None

    world.until(back)
    assert {pod.revision for pod in world.pods.values()} == {"r1"}
    assert world.down_by_us == 1


def test_a_new_topology_during_an_upgrade_stops_all_workers(world):
    """A user's change is rolled out with the user's strategy."""
    world.topology["r3"] = "two"
    _upgrade(world, "r2")
    world.until(lambda _: any(pod.revision == "r2" for pod in world.pods.values()))
    world.wanted = replace(world.wanted, revision="r3")
    world.until(lambda _: world.status.current_revision == "r3")
    assert world.running_topology == "two"
    assert world.status.failed is None
