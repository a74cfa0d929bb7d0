"""Single decisions of `rollout.decide`: why a worker is drained or deleted, and when it counts as working."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from millpond_operator.controllers.rollout.decide import decide
from millpond_operator.controllers.rollout.model import Decision, Existing, WantedWorkers
from millpond_operator.controllers.rollout.observation import (
    ObservedApp,
    ObservedPod,
    ObservedWorker,
    RejectedWorker,
    Tasks,
)
from millpond_operator.controllers.rollout.problems import Problem
from millpond_operator.controllers.rollout.status import AppStatus, RolloutProgress, timestamp

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
DEADLINE = timedelta(minutes=5)
WANTED = WantedWorkers(
    "r2", 2, min_ready=timedelta(seconds=10), progress_deadline=DEADLINE, kept=frozenset({"r1", "r2"})
)
BEFORE = timestamp(NOW - timedelta(hours=1))
RUNNING = AppStatus(current_revision="r1", target_revision="r2", topology="t")


def _pod(ordinal: int, revision: str = "r1", **fields) -> ObservedPod:
    given = {"ready": True, "ready_since": NOW - timedelta(hours=2), **fields}
    return ObservedPod(f"app-{ordinal}", ordinal, revision, f"uid-{ordinal}", **given)


def _worker(ordinal: int, revision: str = "r1", **fields) -> ObservedWorker:
    return ObservedWorker(
        f"app-{ordinal}", **{"alive": True, "revision": revision, "owned": 2, "active": 2, "running": 2, **fields}
    )


def _observed(pods: tuple[ObservedPod, ...], *workers: ObservedWorker, informed: bool = True) -> ObservedApp:
    tasks = Tasks(known=True, total=4, running=4, topology="t")
    return ObservedApp(pods, {each.name: each for each in workers}, tasks, informed)


def _rolling(worker: str = "app-1", since: str = BEFORE, *, restarting: bool = False) -> AppStatus:
    rollout = RolloutProgress("r2", "Rolling", BEFORE, "r1", worker=worker, worker_since=since, restarting=restarting)
    return msgspec.structs.replace(RUNNING, rollout=rollout)


def _decide(observed: ObservedApp, status: AppStatus, wanted: WantedWorkers = WANTED, replicas: int = 2) -> Decision:
    return decide(wanted, Existing("r2", replicas), observed, status, NOW)


OLD_PODS = (_pod(0), _pod(1))
ALL_NEW = (_pod(0, "r2"), _pod(1, "r2"))


def test_full_worker_waits_for_another_that_takes_tasks():
    """A worker with tasks is not deleted while another worker can take them."""
    decision = _decide(_observed(OLD_PODS, _worker(0), _worker(1, draining=True)), _rolling())
    assert decision.delete == ()
    assert decision.drain == {"app-1"}


@pytest.mark.parametrize(
    "other",
    [
        {"draining": True},
        {"rejection": RejectedWorker("IncompatibleTopology", "It has another store.")},
        {"alive": False},
    ],
    ids=["draining", "refused", "dead"],
)
def test_full_worker_is_deleted_when_no_other_takes_tasks(other):
    """It must not wait for a worker that will never take its tasks."""
    decision = _decide(_observed(OLD_PODS, _worker(0, **other), _worker(1, draining=True)), _rolling())
    assert [pod.name for pod in decision.delete] == ["app-1"]


def test_worker_without_tasks_drains_before_it_is_deleted():
    """Until the coordinator drains it, tasks may be on their way to it."""
    empty = {"owned": 0, "active": 0, "running": 0}
    decision = _decide(_observed(OLD_PODS, _worker(0), _worker(1, **empty)), _rolling())
    assert decision.delete == ()
    decision = _decide(_observed(OLD_PODS, _worker(0), _worker(1, draining=True, **empty)), _rolling())
    assert [pod.name for pod in decision.delete] == ["app-1"]


def test_silent_worker_is_not_empty_until_the_coordinator_is_informed():
    """A coordinator that has just started does not know whether the worker runs tasks."""
    workers = (_worker(0), _worker(1, alive=False, owned=0, active=0, running=0))
    assert _decide(_observed(OLD_PODS, *workers, informed=False), _rolling()).delete == ()
    assert [pod.name for pod in _decide(_observed(OLD_PODS, *workers), _rolling()).delete] == ["app-1"]


@pytest.mark.parametrize(
    ("pod", "worker"),
    [
        ({"ready_since": NOW - timedelta(seconds=9)}, {}),
        ({"ready": False}, {}),
        ({}, {"running": 1}),
        ({}, {"revision": "r1"}),
        ({}, {"alive": False}),
    ],
    ids=["ready for less than minReady", "not ready", "restores a task", "report of the old process", "not heard of"],
)
def test_next_worker_waits_until_the_new_one_has_settled(pod, worker):
    """A rolling update continues only after the current worker has run all its tasks for long enough."""
    status = _rolling(since=timestamp(NOW - timedelta(seconds=30)), restarting=True)
    pods = (_pod(0), _pod(1, "r2", **{"ready_since": NOW - timedelta(seconds=20), **pod}))
    decision = _decide(_observed(pods, _worker(0), _worker(1, **{"revision": "r2", **worker})), status)
    assert decision.waiting == "app-1 to run its tasks"
    assert decision.status.rollout is not None
    assert decision.status.rollout.worker == "app-1"
    settled = (_pod(0), _pod(1, "r2", ready_since=NOW - timedelta(seconds=10)))
    decision = _decide(_observed(settled, _worker(0), _worker(1, "r2")), status)
    assert decision.status.rollout is not None
    assert decision.status.rollout.worker == "app-0"


def test_rollout_is_complete_when_every_wanted_worker_has_settled():
    """A revision counts as the last good one only when none of its workers is missing."""
    status = _rolling("app-0", restarting=True)
    wanted = replace(WANTED, replicas=3)
    missing = _decide(_observed(ALL_NEW, _worker(0, "r2"), _worker(1, "r2")), status, wanted, replicas=3)
    assert missing.status.current_revision == "r1"
    complete = _decide(_observed(ALL_NEW, _worker(0, "r2"), _worker(1, "r2")), status)
    assert complete.status.current_revision == "r2"
    assert complete.status.rollout is None


def test_scale_in_ends_before_a_rollout_goes_on():
    """Only the worker that goes is drained: with two at a time there would be fewer places for its tasks."""
    pods = (_pod(0), _pod(1), _pod(2))
    decision = _decide(_observed(pods, _worker(0), _worker(1), _worker(2)), _rolling("app-0"), replicas=3)
    assert decision.waiting == "the scale-in to end"
    assert decision.drain == {"app-2"}


def test_recreate_keeps_volumes_and_the_pin_until_all_have_ended():
    """Workers of the old topology still commit: no other is admitted, and their state is kept."""
    wanted = replace(WANTED, strategy="Recreate")
    decision = _decide(_observed(OLD_PODS, _worker(0), _worker(1)), RUNNING, wanted)
    assert (decision.replicas, decision.keep_volumes, decision.pinned) == (0, True, "t")
    assert decision.drain == {"app-0", "app-1"}
    last = (_pod(1, terminating=True),)
    decision = _decide(_observed(last, _worker(1)), decision.status, wanted, replicas=0)
    assert (decision.replicas, decision.keep_volumes, decision.pinned) == (0, True, "t")
    decision = _decide(_observed(()), decision.status, wanted, replicas=0)
    assert (decision.replicas, decision.pinned) == (2, "")


def _failing(problem: Problem | None, *, waited: timedelta, **worker) -> ObservedApp:
    pods = (_pod(0), _pod(1, "r2", ready=False, ready_since=NOW - waited, problem=problem))
    return _observed(pods, _worker(0), _worker(1, "r2", **{"running": 0, **worker}))


BROKEN = Problem("ApplicationNotImportable", "It cannot be imported.", persistent=True)


@pytest.mark.parametrize("auto_rollback", [True, False])
def test_failed_revision_is_rolled_back_only_where_that_is_wanted(auto_rollback):
    """Without autoRollback a failed revision stays, and the failure is shown."""
    wanted = replace(WANTED, auto_rollback=auto_rollback)
    decision = _decide(_failing(BROKEN, waited=DEADLINE), _rolling(restarting=True), wanted)
    assert decision.status.failed is not None
    assert decision.revision == ("r1" if auto_rollback else "r2")
    assert decision.status.rollout is not None
    assert decision.status.rollout.revision == decision.revision
    assert ("RollingBack" in {reason for _, reason, _ in decision.events}) == auto_rollback


@pytest.mark.parametrize("reason", ["BrokerUnreachable", "OffsetsLost", "Unschedulable", "VolumeNotExpandable"])
def test_revision_is_not_blamed_for_the_cluster(reason):
    """Another revision would have the same problem."""
    problem = Problem(reason, "The cluster has no room.", persistent=True)
    decision = _decide(_failing(problem, waited=DEADLINE * 2), _rolling(restarting=True))
    assert decision.status.failed is None


def test_worker_that_restores_is_not_blamed_for_taking_long():
    """It makes progress while its lag shrinks, even after the deadline."""
    observed = _failing(None, waited=DEADLINE * 10, restoring=True)
    assert _decide(observed, _rolling(restarting=True)).status.failed is None
    stuck = _failing(None, waited=DEADLINE * 10, restoring=False)
    failed = _decide(stuck, _rolling(restarting=True)).status.failed
    assert failed is not None
    assert failed.reason == "NoProgress"


@pytest.mark.parametrize("reason", ["PartitionsUnread", "TopicsUnreplicated"])
def test_a_warning_does_not_excuse_a_revision_that_is_stuck(reason):
    """A worker runs all the same with such a problem, so it is not the reason why this one does not."""
    stuck = _failing(Problem(reason, "Worker app-1 warns."), waited=DEADLINE * 10, restoring=False)
    failed = _decide(stuck, _rolling(restarting=True)).status.failed
    assert failed is not None
    assert failed.reason == "NoProgress"


def test_revision_is_not_blamed_for_a_refusal_of_its_predecessor():
    """The coordinator remembers rejections for a while; the pod has another revision since then."""
    refusal = {"alive": False, "rejection": RejectedWorker("IncompatibleTopology", "It has another store.", "r1")}
    recent = _failing(None, waited=timedelta(seconds=30), **refusal)
    assert _decide(recent, _rolling(since=timestamp(NOW), restarting=True)).status.failed is None
    refusal["rejection"] = RejectedWorker("IncompatibleTopology", "It has another store.", "r2")
    recent = _failing(None, waited=timedelta(seconds=30), **refusal)
    assert _decide(recent, _rolling(since=timestamp(NOW), restarting=True)).status.failed is not None


def test_broken_workers_are_restarted_before_working_ones():
    """No task is lost with a worker that does not work; among the working ones the highest ordinal is first."""
    pods = (_pod(0), _pod(1))
    wanted = replace(WANTED, replicas=2)
    decision = _decide(_observed(pods, _worker(0, alive=False), _worker(1)), RUNNING, wanted)
    assert decision.status.rollout is not None
    assert decision.status.rollout.worker == "app-0"
    decision = _decide(_observed(pods, _worker(0), _worker(1)), RUNNING, wanted)
    assert decision.status.rollout is not None
    assert decision.status.rollout.worker == "app-1"
