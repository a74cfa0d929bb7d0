"""A task that waits for a snapshot does not block the loop, and its wait always ends."""

from __future__ import annotations

from typing import Any

import pytest

from millpond.protocol import Role, TaskState
from millpond.runtime.restoring import snapshot_restorer as bootstrap_module
from tests.runtime.restoring.snapshot_scene import (
    CHANGELOG,
    IN,
    A,
    SnapshotScene,
    check_right,
    replayed_records,
    run,
    tail,
)
from tests.runtime.worker_parts import Parts

pytestmark = pytest.mark.usefixtures("no_overhead")


def _idle(scene: SnapshotScene) -> tuple[Parts, Any]:
    """Start a worker without tasks next to a snapshot; `scene.tasks.work()` prepares requests."""
    scene.snapshot()
    tail(scene)
    parts = scene.start("empty", role=Role.WARM_UP)
    bootstrap: Any = parts.executor.bootstrap
    parts.executor.drop([A])
    run(parts, 3)
    scene.tasks.deferred = True
    bootstrap._decided.clear()
    return parts, bootstrap


@pytest.fixture
def waiting(scene: SnapshotScene) -> Parts:
    """A worker whose task waits for a snapshot; `scene.tasks.work()` prepares it."""
    parts, bootstrap = _idle(scene)
    parts.own(A)
    assert parts.executor.held[A].state is TaskState.ACQUIRING
    assert bootstrap.pending(A)
    return parts


def test_task_waits_and_the_loop_does_not(scene: SnapshotScene, waiting: Parts) -> None:
    """The worker reports what it waits for."""
    run(waiting, 5)
    assert not waiting.executor.held[A].opened
    assert waiting.executor.unsettled(0.0) == ["task 0_0: waiting for a snapshot (0 of 0 bytes fetched)"]
    assert not waiting.executor.settled
    scene.tasks.work()
    run(waiting)
    assert waiting.executor.held[A].state is TaskState.RUNNING
    assert replayed_records(waiting) <= 150
    check_right(scene, waiting)


def test_each_turn_ingests_one_file_at_most(scene: SnapshotScene, waiting: Parts) -> None:
    """Other tasks run between them."""
    scene.tasks.work()
    turns = 0
    while waiting.executor.bootstrap.pending(A):  # type: ignore[union-attr]
        waiting.executor.take_in_snapshots()
        turns += 1
    assert turns == 1 + 4 + 1


@pytest.mark.parametrize("steps", [0, 1, 2, 4])
def test_task_that_is_dropped_meanwhile_leaves_nothing(scene: SnapshotScene, waiting: Parts, steps: int) -> None:
    """And it can be held again."""
    if steps:
        scene.tasks.work()
    for _ in range(steps):
        waiting.executor.take_in_snapshots()
    waiting.executor.drop([A])
    assert waiting.rows("counts") == {}
    scene.tasks.work()
    run(waiting, 5)
    assert waiting.rows("counts") == {}
    scene.tasks.deferred = False
    waiting.executor.hold([A], Role.ACTIVE)
    run(waiting)
    assert waiting.executor.held[A].state is TaskState.RUNNING
    assert replayed_records(waiting) <= 150
    check_right(scene, waiting)


def test_going_back_meanwhile_does_not_disturb_it(scene: SnapshotScene, waiting: Parts) -> None:
    """The commit of another task may have failed."""
    waiting.new_producer()
    waiting.executor.go_back()
    run(waiting, 5)
    assert waiting.executor.held[A].state is TaskState.ACQUIRING
    scene.tasks.work()
    waiting.executor.take_in_snapshots()
    waiting.executor.go_back()
    run(waiting)
    assert waiting.executor.held[A].state is TaskState.RUNNING
    check_right(scene, waiting)


def test_task_that_is_to_be_released_waits_no_longer(scene: SnapshotScene, waiting: Parts) -> None:
    """Else its next owner would wait, too."""
    waiting.executor.release(A, "w1")
    run(waiting)
    waiting.commit()
    assert waiting.executor.held[A].role is Role.STANDBY
    assert scene.kafka.committed(IN).metadata.owner == "w1"


def test_task_that_is_to_be_released_before_it_was_looked_up_does_not_begin_to_wait(scene: SnapshotScene) -> None:
    """For the same reason."""
    parts, bootstrap = _idle(scene)
    parts.own(A, start=False)
    parts.executor.hold([A], Role.ACTIVE)
    parts.executor.release(A, "w1")
    parts.settle()
    assert not bootstrap.pending(A)
    parts.commit()
    assert scene.kafka.committed(IN).metadata.owner == "w1"


def test_copy_that_is_promoted_meanwhile_waits_for_its_snapshot(scene: SnapshotScene) -> None:
    """Then it runs."""
    scene.snapshot()
    tail(scene)
    parts = scene.start("empty", role=Role.STANDBY)
    parts.executor.drop([A])
    run(parts, 3)
    scene.tasks.deferred = True
    parts.executor.hold([A], Role.STANDBY)
    run(parts, 3)
    assert parts.executor.held[A].lag is None
    parts.own(A)
    run(parts, 3)
    assert not parts.executor.held[A].opened
    scene.tasks.work()
    run(parts)
    assert parts.executor.held[A].task is not None
    assert replayed_records(parts) <= 150
    check_right(scene, parts)


def test_location_that_does_not_answer_is_given_up(
    scene: SnapshotScene, waiting: Parts, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """And not used for a while."""
    monkeypatch.setattr(bootstrap_module, "_MANIFEST_TIMEOUT_S", -1.0)
    bootstrap: Any = waiting.executor.bootstrap
    bootstrap._requests[A].started = 0.0
    run(waiting)
    assert "has not answered" in caplog.text
    assert waiting.executor.held[A].state is TaskState.RUNNING
    assert replayed_records(waiting) > 150
    scene.tasks.work()
    run(waiting, 3)
    waiting.executor.drop([A])
    waiting.executor.hold([A], Role.ACTIVE)
    assert not bootstrap.pending(A)
    run(waiting)
    check_right(scene, waiting)


def test_slow_fetch_is_given_up(
    scene: SnapshotScene, waiting: Parts, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """When a replay would be done by now, and less than half was fetched."""
    monkeypatch.setattr(bootstrap_module, "_FETCH_TIMEOUT_S", 0.0)
    bootstrap: Any = waiting.executor.bootstrap
    job = bootstrap._requests[A]
    job.started, job.planned, job.progress.total = 0.0, True, 1000
    run(waiting)
    assert "only 0 of 1000 bytes of the snapshot were fetched" in caplog.text
    assert waiting.executor.held[A].state is TaskState.RUNNING
    check_right(scene, waiting)


def test_changelog_recreated_during_the_fetch_is_replayed(scene: SnapshotScene, waiting: Parts) -> None:
    """The rows of the snapshot are not the only copy of the state: the worker is like one with an empty disk."""
    content = scene.kafka.logs[CHANGELOG]
    scene.kafka.remake(CHANGELOG.topic, "another")
    scene.kafka.logs[CHANGELOG] = content
    scene.tasks.deferred = False
    scene.tasks.work()
    run(waiting)
    assert waiting.executor.held[A].state is TaskState.RUNNING
    assert replayed_records(waiting) == len(content)
    check_right(scene, waiting)
