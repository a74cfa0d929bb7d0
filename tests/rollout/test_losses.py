"""Events about lost workers, take-overs and returns: each is recorded once; there are none about stopped workers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from millpond_operator.controllers.reconcile.lost_workers import LostWorkers
from millpond_operator.controllers.rollout.observation import ObservedApp, ObservedPod, ObservedWorker

KEY = ("shop", "delays")
OWNERS = {"0_0": "d-0", "0_1": "d-1", "0_2": "d-1", "0_3": "d-2"}


def _seen(alive="012", owners=None, *, informed=True, draining="", ending="", starts=None, heard=""):
    workers = {
        f"d-{number}": ObservedWorker(
            f"d-{number}",
            alive=number in alive,
            draining=number in draining,
            incarnation=(starts or {}).get(number, "first"),
            revision="r1" if number in heard else "",
        )
        for number in "012"
    }
    pods = tuple(ObservedPod(name, int(name[-1]), "r", "u", terminating=name[-1] in ending) for name in workers)
    return ObservedApp(pods, workers, owners=owners or OWNERS, informed=informed)


@pytest.fixture
def told():
    """Return the events of one observation after another, after a first one."""
    losses = LostWorkers()
    assert losses.noted(KEY, _seen(), frozenset()) == []

    def look(observed, leaving=frozenset()):
        return losses.noted(KEY, observed, leaving)

    look.losses = losses
    return look


def test_a_lost_worker_its_takers_and_its_return_are_told_once(told):
    """The take-over is recorded once all tasks were taken over."""
    assert told(_seen("02")) == [("Warning", "WorkerLost", "Worker d-1 was lost: other workers take over 2 tasks.")]
    assert told(_seen("02")) == []
    assert told(_seen("02", OWNERS | {"0_1": "d-0"})) == []
    after = OWNERS | {"0_1": "d-0", "0_2": "d-2"}
    assert told(_seen("02", after)) == [
        ("Normal", "TasksTakenOver", "2 tasks of d-1 were taken over by d-0 (1), d-2 (1).")
    ]
    assert told(_seen("02", after)) == []
    assert told(_seen("012", after)) == [("Normal", "WorkerBack", "Worker d-1 is back.")]
    assert told(_seen("012", after)) == []


def test_tasks_that_went_before_the_next_look_are_counted(told):
    """A take-over may be faster than the next observation."""
    after = OWNERS | {"0_1": "d-0", "0_2": "d-0"}
    assert [each[1:] for each in told(_seen("02", after))] == [
        ("WorkerLost", "Worker d-1 was lost: other workers take over 2 tasks."),
        ("TasksTakenOver", "2 tasks of d-1 were taken over by d-0 (2)."),
    ]


def test_a_worker_whose_pod_was_deleted_has_ended(told):
    """The deletion was intended, so the event is no warning."""
    (event,) = told(_seen("02", ending="1"))
    assert event == ("Normal", "WorkerEnded", "Worker d-1 ended with its pod: other workers take over 2 tasks.")
    assert [reason for _, reason, _ in told(_seen("012"))] == ["WorkerBack"]


def test_a_worker_whose_pod_was_replaced_has_ended(told):
    """Its successor exists before the next observation."""
    seen = _seen("02")
    replaced = ObservedApp(tuple(replace(pod, uid="new") for pod in seen.pods), seen.workers, owners=seen.owners)
    assert [reason for _, reason, _ in told(replaced)] == ["WorkerEnded"]


def test_a_worker_that_comes_back_with_its_tasks_lost_none(told):
    """Its tasks were not taken over."""
    told(_seen("02"))
    assert told(_seen("012")) == [("Normal", "WorkerBack", "Worker d-1 is back.")]


def test_a_process_that_is_replaced_within_a_session_is_told(told):
    """Its container restarted before the loss was observed."""
    assert [reason for _, reason, _ in told(_seen(starts={"2": "second"}))] == ["WorkerRestarted"]
    assert told(_seen(starts={"2": "second"})) == []


def test_workers_that_the_operator_stops_are_not_lost(told):
    """Neither a draining worker nor one beyond `spec.replicas` counts as lost."""
    assert told(_seen(draining="1")) == []
    assert told(_seen("02", draining="1")) == []
    assert told(_seen("012", starts={"1": "second"})) == []
    assert told(_seen("01", starts={"1": "second"}), leaving=frozenset({"d-2"})) == []


def test_nobody_is_missed_before_all_could_report(told):
    """After a change of leaders, the first observation is the baseline."""
    assert told(_seen("", informed=False)) == []
    assert told(_seen("02")) == []
    assert told(_seen("0")) != []
    told.losses.forget(KEY)
    assert told(_seen("")) == []


def test_a_worker_lost_soon_after_a_change_of_leaders_is_told(told):
    """It reported to this leader, whether or not all others have had time to."""
    told.losses.forget(KEY)
    assert told(_seen("012", informed=False)) == []
    assert told(_seen("012", informed=False, heard="01")) == []
    after = OWNERS | {"0_1": "d-0", "0_2": "d-0"}
    assert [reason for _, reason, _ in told(_seen("02", after, informed=False, heard="01"))] == [
        "WorkerLost",
        "TasksTakenOver",
    ]
    assert told(_seen("02", after)) == []
