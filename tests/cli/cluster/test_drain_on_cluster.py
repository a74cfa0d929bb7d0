"""`millpond drain` on a real API server: the request that the operator obeys, and its progress."""

from __future__ import annotations

import io

import msgspec
import pytest
from rich.console import Console

from millpond.cli.cluster import drains
from millpond.cli.cluster.applications import Report
from millpond.cli.cluster.overview import summary_of
from millpond.cli.status.drain import describe, wait
from millpond.durations import Duration
from millpond.errors import MillpondError
from tests.cli.cluster.conftest import ByHand
from tests.cli.cluster.samples import APP, OVERVIEW, Object
from tests.cli.conftest import Millpond


def _annotation(by_hand: ByHand) -> str | None:
    found = by_hand.api.get("StreamApp", by_hand.namespace, "delays")
    return (found["metadata"].get("annotations") or {}).get("millpond.dev/drain")


def test_request_is_an_annotation_that_can_be_undone(by_hand: ByHand, millpond: Millpond) -> None:
    """By name or number; the last worker is never drained."""
    config = by_hand.kubeconfig()
    drained = millpond("drain", "delays", "1", "--kubeconfig", config)
    assert drained.status == 0, drained.err
    assert drained.out == "delays-1 is asked to hand over its tasks; `--undo` lets it get tasks again.\n"
    assert _annotation(by_hand) == "delays-1"
    assert millpond("drain", "delays", "delays-0", "--kubeconfig", config).status == 0
    assert _annotation(by_hand) == "delays-0,delays-1"
    last = millpond("drain", "delays", "2", "--kubeconfig", config)
    assert last.status == 1
    assert "cannot drain 'delays-2', since no other worker could take its tasks: the others are drained" in last.err
    assert millpond("drain", "delays", "1", "--undo", "--kubeconfig", config).status == 0
    assert _annotation(by_hand) == "delays-0"
    assert millpond("drain", "delays", "--undo", "--kubeconfig", config).out == "All workers may get tasks again.\n"
    assert _annotation(by_hand) is None


def test_wrong_worker_and_missing_right_change_nothing(by_hand: ByHand, millpond: Millpond) -> None:
    """The sentence has the workers, or the right to patch StreamApps."""
    wrong = millpond("drain", "delays", "delays-7", "--kubeconfig", by_hand.kubeconfig())
    assert wrong.status == 1 and "StreamApp 'delays' has no worker 'delays-7': did you mean 'delays-" in wrong.err
    viewer = by_hand.user("viewer", {"apiGroups": ["millpond.dev"], "resources": ["streamapps"], "verbs": ["get"]})
    refused = millpond("drain", "delays", "1", "--kubeconfig", viewer)
    assert refused.status == 1
    assert "lacks the right to patch streamapps.millpond.dev in namespace" in refused.err
    assert millpond("drain", "delays", "--kubeconfig", viewer).status == 2
    assert _annotation(by_hand) is None


def test_change_of_someone_else_is_kept(by_hand: ByHand) -> None:
    """A StreamApp that was changed since it was read is read again."""
    from millpond.cli.cluster.client import Cluster
    from millpond.cli.cluster.options import Where

    cluster = Cluster(Where(kubeconfig=by_hand.kubeconfig()))
    old = cluster.stream_app(by_hand.namespace, "delays")
    drains.change(cluster, old, "delays-0", undo=False)
    drains.change(cluster, old, "delays-1", undo=False)
    cluster.close()
    assert _annotation(by_hand) == "delays-0,delays-1"


def _app(draining: Object | None = None, annotation: str = "delays-1") -> Object:
    metadata = APP["metadata"] | {"annotations": {drains.DRAIN: annotation}}
    return APP | {"metadata": metadata, "status": APP["status"] | ({"draining": draining} if draining else {})}


def _wait(*apps: Object, timeout: str = "1m") -> str:
    shown, now = io.StringIO(), [0.0]
    reports = iter(apps)

    def sleep(seconds: float) -> None:
        now[0] += seconds

    last = [apps[-1]]

    def read() -> Report:
        last[0] = next(reports, last[0])
        return Report(OVERVIEW, last[0])

    console = Console(file=shown, width=80)
    wait("delays-1", read, console, Duration.parse(timeout), sleep=sleep, clock=lambda: now[0])
    return shown.getvalue()


REQUESTED = {"workers": ["delays-1"], "since": "2026-02-02T02:40:00Z"}


@pytest.mark.parametrize(("replicas", "seen", "workers"), [(2, 2, 4), (6, 6, 4), (2, 3, 2)], ids=["out", "in", "new"])
def test_workers_are_those_that_the_autoscaler_wants(replicas: int, seen: int, workers: int) -> None:
    """`spec.replicas` is only the number to start from; another one is a new start."""
    app: Object = {
        "metadata": {"name": "delays", "namespace": "shop"},
        "spec": {"replicas": replicas, "autoscaling": {"mode": "Auto", "maxReplicas": 8}},
        "status": {"autoscaling": {"mode": "Auto", "currentReplicas": 4, "specReplicas": seen}},
    }
    assert drains.workers_of(app) == [f"delays-{number}" for number in range(workers)]
    assert summary_of(app).workers_wanted == workers
    del app["spec"]["autoscaling"]
    assert len(drains.workers_of(app)) == replicas


def test_progress_is_shown_until_the_worker_has_no_task() -> None:
    """Each change once: the request is seen, tasks are left, none is left."""
    shown = _wait(_app(), _app(), _app(REQUESTED), _app(REQUESTED), _app(REQUESTED | {"drained": ["delays-1"]}))
    assert shown.splitlines() == [
        "Waiting for the operator to see the request.",
        "2 tasks are left on delays-1: 0_3 moves to delays-1 when it is taken over from delays-2, which is dead.",
        "delays-1 has no task.",
    ]


@pytest.mark.parametrize(
    ("app", "why"),
    [
        (_app(REQUESTED), "'delays-1' still has tasks after 1m, and the drain continues"),
        (_app(REQUESTED, annotation="delays-0"), "the drain of 'delays-1' was undone meanwhile"),
        (_app(REQUESTED | {"message": "The annotation names all workers."}), "names all workers"),
    ],
)
def test_drain_that_does_not_end_is_a_failure(app: Object, why: str) -> None:
    """Time is over, someone undid it, or the operator refuses it."""
    with pytest.raises(MillpondError, match=why):
        _wait(app)


def test_wait_of_the_operator_is_quoted() -> None:
    """The last task and the reason why it stays."""
    waits = REQUESTED | {"message": "The drain of delays-1 waits: no other worker can take tasks now."}
    assert describe("delays-1", waits, OVERVIEW) == (waits["message"], False)
    none = msgspec.structs.replace(OVERVIEW, tasks=())
    assert describe("delays-1", REQUESTED, none)[0].startswith("delays-1 has no task by the assignment")
