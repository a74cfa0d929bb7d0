"""Screens and tables from recorded overviews: what people see at 80 and at 140 columns."""

from __future__ import annotations

import io

import msgspec
import pytest
from rich.console import Console, RenderableType

from millpond.cli.cluster.drains import worker_named
from millpond.cli.cluster.overview import overview_of, sorted_tasks, wanted_workers
from millpond.cli.status.progress import progress_of
from millpond.cli.status.tasks_view import chosen, tasks_table
from millpond.cli.status.view import applications_table, screen
from millpond.cli.status.wording import behind, span
from millpond.protocol.overview import AutoscalingOverview, TaskOverview
from tests.cli.cluster.samples import APP, ASSIGNMENT, NOW_MS, OVERVIEW, pod, pod_status

WIDTHS = pytest.mark.parametrize("width", [80, 140])


def _drawn(shown: RenderableType, width: int) -> list[str]:
    """Return the lines on a terminal, without spaces at their ends."""
    file = io.StringIO()
    Console(file=file, width=width, highlight=False).print(shown)
    lines = [line.rstrip() for line in file.getvalue().splitlines()]
    assert max(map(len, lines)) <= width
    return lines


def _words(lines: list[str]) -> str:
    return " ".join(" ".join(lines).split())


@WIDTHS
def test_screen_tells_the_story_at_any_width(width: int) -> None:
    """Summary, changes in progress, workers, moves with their reasons, conditions, events; nothing is cut off."""
    lines = _drawn(screen(OVERVIEW, progress_of(APP, NOW_MS), width=width), width)
    text = _words(lines)
    assert text.startswith(
        "delays in shop . RollingOut . 2 of 3 workers . 3 of 4 tasks . 45,120 records/s . lag 1,204 (0.3 s)"
    )
    assert "Rolling out revision 7c20 (before: 6a1f) for 95 s, now delays-2, which starts." in text
    assert "delays-2: CrashLoopBackOff, last ended with Error (1)" in lines
    for each in (
        "delays-0 node-1",
        "30,080 61% 1,100 0.3 s",
        "104 grows",
        "120,400",
        "(lag",
        "24 h",
        "WorkerLost 2 h 3",
    ):
        assert each in text
    assert "…" not in text
    assert ("act/std/warm" in text) == (width == 80)
    assert "2/1/0" in text if width == 80 else "2 1 0" in text


@WIDTHS
def test_tasks_show_what_they_wait_for(width: int) -> None:
    """Owner, copies with their lags, and a reason for each task that waits."""
    lines = _drawn(tasks_table(OVERVIEW.tasks, OVERVIEW.moves, (), width=width), width)
    text = _words(lines)
    assert "delays-1 (120,400) warm-up" in text
    assert "restoring 31,200" in text
    assert "0_1 stays on delays-0 until delays-1's copy" in text
    assert "when it is taken over from delays-2, which is dead" in text
    assert "(owner delays-2)" in text if width == 80 else "0_3 delays-1 delays-2 restoring" in text


def test_tasks_are_chosen_by_worker_and_by_waiting() -> None:
    """A worker's tasks are those that it runs, owns or has a copy of."""
    found = lambda worker, waiting: [
        each.task for each in chosen(OVERVIEW.tasks, OVERVIEW.moves, worker, waiting=waiting)
    ]
    assert found(None, False) == ["0_0", "0_1", "0_2", "0_3"]
    assert found("delays-2", False) == ["0_3"]
    assert found("delays-1", False) == ["0_0", "0_1", "0_2", "0_3"]
    assert found(None, True) == ["0_1", "0_3"]
    assert _drawn(tasks_table([], (), ["Lags are missing: no operator leads."], width=80), 80) == [
        "No tasks.",
        "Lags are missing: no operator leads.",
    ]


@WIDTHS
def test_applications_are_listed_with_their_problems(width: int) -> None:
    """A problem is a line of its own, which does not squeeze the figures."""
    degraded = msgspec.structs.replace(
        OVERVIEW.summary, name="orders", degraded="TopicInvalid", message="No such topic."
    )
    lines = _drawn(applications_table([OVERVIEW.summary, degraded], namespaces=True), width)
    assert " ".join(lines[0].split()) == "namespace name phase workers tasks records/s lag behind"
    assert lines[1].split() == ["shop", "delays", "RollingOut", "2/3", "3/4", "45,120", "1,204", "0.3", "s"]
    assert "orders: TopicInvalid: No such topic." in lines
    assert "waiting for delays-2 to run its tasks." in _words(lines)


def test_small_terminal_shows_workers_with_problems_first() -> None:
    """The screen of 100 workers fits; the rest is counted."""
    many = tuple(msgspec.structs.replace(OVERVIEW.workers[0], worker=f"delays-{each}") for each in range(100))
    overview = msgspec.structs.replace(OVERVIEW, workers=(*many, OVERVIEW.workers[2]))
    lines = _drawn(screen(overview, width=80, height=30), 80)
    assert len(lines) <= 36
    assert "and 93 more workers" in lines
    assert "delays-2: CrashLoopBackOff, last ended with Error (1)" in lines
    assert len(_drawn(screen(overview, width=80), 80)) > 100


def test_changes_in_progress_are_sentences() -> None:
    """Scaling, drains, a pause, an autoscaler, a failed revision."""
    status = {
        "observedGeneration": 3,
        "scaling": {"to": 2, "since": "2026-02-02T02:35:00Z"},
        "draining": {"workers": ["delays-1"], "since": "2026-02-02T02:35:00Z"},
        "failed": {"revision": "7c20", "message": "It cannot be imported."},
    }
    app = APP | {"status": status}
    app["metadata"] = APP["metadata"] | {"annotations": {"millpond.dev/reconcile": "paused"}}
    assert progress_of(app, NOW_MS) == [
        "Revision 7c20 failed: It cannot be imported.",
        "Scaling in to 2 workers for 5 m.",
        "Draining by request for 5 m: delays-1.",
        "Reconciling is paused by the annotation millpond.dev/reconcile.",
        "The operator has not seen the latest change of the StreamApp yet.",
    ]
    status["draining"] |= {"drained": ["delays-1"]}
    assert "Drained by request for 5 m: delays-1." in progress_of(app, NOW_MS)
    status["draining"] = {"workers": ["delays-1"], "since": "2026-02-02T02:35:00Z", "message": "The drain waits."}
    assert "The drain waits." in progress_of(app, NOW_MS)
    scaled = AutoscalingOverview(mode="Recommend", current=3, recommended=4, reason="The lag grows.", rescales_left=2)
    lines = _drawn(screen(msgspec.structs.replace(OVERVIEW, autoscaling=scaled), width=140), 140)
    assert "Autoscaling (Recommend) recommends 4 workers, now 3, 2 rescales left today: The lag grows." in lines


def test_objects_alone_show_workers_tasks_and_moves() -> None:
    """Without the operator: nodes, crashes, tasks by worker, and tasks whose owner is not the assigned worker."""
    pods = [
        pod("delays-0", "shop", node="node-0") | {"status": pod_status(ready=True)},
        pod("delays-2", "shop") | {"status": pod_status(ready=False, restarts=2, waiting="CrashLoopBackOff")},
    ]
    found = overview_of(APP, ASSIGNMENT, pods, [], NOW_MS)
    states = {each.worker: (each.state, each.active, each.node, each.trouble) for each in found.workers}
    assert states == {
        "delays-0": ("alive", 2, "node-0", ""),
        "delays-1": ("gone", 2, "", "it has no pod"),
        "delays-2": ("starting", 0, "", "CrashLoopBackOff, last ended with Error (1)"),
    }
    assert [(each.task, each.source, each.target) for each in found.moves] == [
        ("0_1", "delays-0", "delays-1"),
        ("0_3", "delays-2", "delays-1"),
    ]
    assert found.epoch == "7.41"
    assert found.summary.workers_wanted == 3
    bare = overview_of({"metadata": {"name": "new", "namespace": "shop"}, "spec": {}}, None, [], [], NOW_MS)
    assert bare.tasks == () and bare.summary.phase == ""


def test_autoscaler_decides_on_the_wanted_workers() -> None:
    """In mode Auto, unless a person changed `spec.replicas` since; its workers can be drained."""
    chosen = {"mode": "Auto", "currentReplicas": 6, "specReplicas": 3}
    app = APP | {"spec": APP["spec"] | {"autoscaling": {"mode": "Auto"}}, "status": {"autoscaling": chosen}}
    assert wanted_workers(app) == overview_of(app, None, [], [], NOW_MS).summary.workers_wanted == 6
    assert worker_named(app, "5") == "delays-5"
    assert wanted_workers(app | {"status": {"autoscaling": chosen | {"specReplicas": 2}}}) == 3
    assert wanted_workers(app | {"status": {"autoscaling": chosen | {"mode": "Recommend"}}}) == 3
    assert wanted_workers(APP) == 3


def test_tasks_are_in_the_order_of_their_numbers() -> None:
    """10 comes after 9."""
    assert sorted_tasks({"0_10", "0_9", "10_0", "2_0"}) == ["0_9", "0_10", "2_0", "10_0"]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(None, "-"), (0, "0 s"), (0.31, "0.3 s"), (95, "95 s"), (600, "10 m"), (7_200, "2 h"), (300_000, "3 d")],
)
def test_times_are_in_their_largest_unit(seconds: float | None, text: str) -> None:
    """Two digits are enough."""
    assert span(seconds) == text


def test_lag_that_does_not_shrink_grows() -> None:
    """The slowest task counts; without rates, nothing is known."""
    quick = TaskOverview(task="0_0", lag=5, lag_seconds=0.5, records_per_second=10.0)
    assert behind([quick, msgspec.structs.replace(quick, lag_seconds=20.0)]) == "20 s"
    assert behind([quick, msgspec.structs.replace(quick, lag_seconds=None)]) == "grows"
    assert behind([TaskOverview(task="0_0", lag=5)]) == "-"
