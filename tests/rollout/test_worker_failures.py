"""The failure of a worker lasts until the worker is ready or its revision is replaced, whatever its pod shows then."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millpond_operator.controllers.rollout.observation import ObservedApp, ObservedPod, pods_of
from millpond_operator.controllers.rollout.problems import Problem, of_pod
from millpond_operator.controllers.rollout.worker_failures import WorkerFailure, failures, lasting_problems

_ENDED = {"terminated": {"exitCode": 1, "message": '{"reason": "ApplicationError", "message": "It cannot start."}'}}
_BACKS_OFF = {"waiting": {"reason": "CrashLoopBackOff"}}
_RUNS = {"running": {}}
_FAILS = Problem("WorkerFailed", "It ended.", persistent=True, is_failure=True)
_SILENT = Problem("WorkerSilent", "It is silent.")
_OLD, _NEW = "r1", "r2"


def _raw(state, last=None, *, restarts=1, revision=_OLD, number=0, ready=False, terminating=False):
    container = {"name": "worker", "state": state, "lastState": last or {}, "restartCount": restarts, "ready": ready}
    metadata = {"name": f"app-{number}", "uid": "u", "labels": {"millpond.dev/revision": revision}}
    conditions = [{"type": "Ready", "status": str(ready), "lastTransitionTime": "2026-01-01T12:00:00Z"}]
    return {
        "metadata": metadata | ({"deletionTimestamp": "2026-01-01T12:00:00Z"} if terminating else {}),
        "status": {"conditions": conditions, "containerStatuses": [container]},
    }


def _reported(steps, *, revision=_OLD, replicas=1):
    """Return the reason and the persistence of the first problem after each step, a list of pods; None for none."""
    kept: dict[str, WorkerFailure] = {}
    for pods in steps:
        observed = ObservedApp(pods_of(pods))
        kept = failures(kept, observed, revision, replicas)
        found = lasting_problems(observed, kept)
        yield (found[0][1].reason, found[0][1].persistent) if found else None


@pytest.mark.parametrize(
    "moment",
    [
        pytest.param([_raw(_RUNS, restarts=2)], id="it runs again, and its last state is missing"),
        pytest.param([_raw(_RUNS, _ENDED)], id="it runs again after one restart"),
        pytest.param([_raw({"terminated": {"exitCode": 1}})], id="it ended again, and its message is missing"),
        pytest.param([_raw({"waiting": {"reason": "ContainerCreating"}}, restarts=0)], id="it is another pod"),
        pytest.param([_raw(_RUNS, terminating=True)], id="its pod is being deleted"),
        pytest.param([], id="its pod has been deleted"),
    ],
)
def test_worker_that_cannot_start_stays_a_problem(moment):
    """So `Degraded` does not become False between two of its failures."""
    before, during, after = _reported([[_raw(_BACKS_OFF, _ENDED)], moment, [_raw(_BACKS_OFF, _ENDED)]])
    assert before == after == ("ApplicationNotImportable", True)
    assert during is not None and during[1]


@pytest.mark.parametrize("error", ["BrokerError", "OffsetsLost"])
def test_errors_of_brokers_are_not_those_of_the_revision(error):
    """Each revision would end with them, so none is rolled back; and the reason leads to the cure."""
    ended = {"terminated": {"exitCode": 1, "message": f'{{"reason": "{error}", "message": "It is lost."}}'}}
    problem = of_pod(_raw(_BACKS_OFF, ended))
    assert problem is not None
    assert problem.reason != "WorkerFailed"
    assert not problem.blames_revision


@pytest.mark.parametrize(
    ("pods", "revision", "replicas"),
    [
        pytest.param([_raw(_RUNS, _ENDED, ready=True)], _OLD, 1, id="it is ready"),
        pytest.param([_raw(_RUNS, revision=_NEW)], _NEW, 1, id="its pod has another revision"),
        pytest.param([], _NEW, 1, id="its pod will have another revision"),
        pytest.param([_raw(_RUNS, number=1, ready=True)], _NEW, 2, id="another worker of the revision is ready"),
        pytest.param([], _OLD, 0, id="the application is suspended"),
    ],
)
def test_failure_is_over_when_worker_is_ready_or_replaced(pods, revision, replicas):
    assert [*_reported([[_raw(_BACKS_OFF, _ENDED)], pods], revision=revision, replicas=replicas)][1] is None


def test_failed_revision_is_a_problem_until_its_last_worker_is_replaced():
    """One worker is replaced before the other one fails."""
    steps = [
        [_raw(_BACKS_OFF, _ENDED, number=0), _raw(_RUNS, restarts=0, number=1)],
        [_raw(_RUNS, restarts=0, number=1)],
        [_raw(_RUNS, revision=_NEW, number=0, ready=True), _raw(_RUNS, restarts=0, number=1)],
        [_raw(_RUNS, revision=_NEW, number=0, ready=True), _raw({}, _ENDED, number=1)],
        [_raw(_RUNS, revision=_NEW, number=0, ready=True), _raw(_RUNS, restarts=0, number=1, terminating=True)],
    ]
    *during, after = _reported(steps, revision=_NEW, replicas=2)
    assert None not in during
    assert after is None


def test_one_crash_is_over_with_its_pod():
    """Only a worker that ends again and again says something about the pod that follows it."""
    once = _raw(_ENDED, restarts=0)
    assert [*_reported([[once], [_raw(_RUNS, _ENDED)], [_raw(_RUNS)], []])] == [
        *[("ApplicationNotImportable", False)] * 3,
        None,
    ]


def test_another_problem_of_a_failed_worker_is_reported_as_well():
    kept = {"app-0": WorkerFailure(_OLD, _FAILS)}
    observed = ObservedApp((ObservedPod("app-0", 0, _OLD, "u", problem=_SILENT),))
    assert lasting_problems(observed, failures(kept, observed, _OLD, 1)) == [("app-0", _FAILS), ("app-0", _SILENT)]


_pods = st.builds(
    lambda number, revision, ready, terminating, failed: ObservedPod(
        f"app-{number}",
        number,
        revision,
        "u",
        ready=ready and not failed and not terminating,
        terminating=terminating,
        problem=_FAILS if failed else None,
    ),
    st.integers(0, 2),
    st.sampled_from([_OLD, _NEW]),
    st.booleans(),
    st.booleans(),
    st.booleans(),
)


@given(st.lists(st.lists(_pods, max_size=3, unique_by=lambda pod: pod.name), max_size=6), st.integers(1, 3))
def test_no_failure_lasts_when_all_workers_are_ready(history, replicas):
    """Whatever happened before, and with no failures the problems are those of the pods."""
    kept: dict[str, WorkerFailure] = {}
    for pods in history:
        kept = failures(kept, ObservedApp(tuple(pods)), _NEW, replicas)
        shown = {pod.name for pod in pods if pod.problem is not None and not pod.terminating}
        assert shown <= kept.keys()
    ready = tuple(ObservedPod(f"app-{number}", number, _NEW, "u", ready=True) for number in range(replicas))
    kept = failures(kept, ObservedApp(ready), _NEW, replicas)
    assert not kept
    assert not lasting_problems(ObservedApp(ready), kept)
