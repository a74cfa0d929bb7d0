"""A store in memory is restored from a snapshot at every start, and ends with the rows of a replay."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import millpond as mp
from millpond.protocol import Role, TaskState
from millpond.state.memory import ingestion as memory_ingestion
from tests.runtime.restoring.snapshot_scene import (
    CHANGELOG,
    KEYS,
    A,
    SnapshotScene,
    damage_file,
    not_an_sst,
    replayed_records,
    run,
    tail,
)
from tests.runtime.worker_parts import Parts


def _topology() -> mp.Topology:
    """Return a topology that counts keys, in memory."""
    builder = mp.StreamsBuilder()
    counts = builder.stream("in", key=mp.String, value=mp.String).group_by_key().count(store="counts", persistent=False)
    counts.to_stream().to("out", key=mp.String, value=mp.Long)
    return builder.build()


@pytest.fixture(autouse=True)
def small(no_overhead: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Use snapshots for small states, too, and several steps."""
    monkeypatch.setattr(memory_ingestion, "_ROWS", 30)


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[SnapshotScene]:
    """An application that has counted 1,000 records."""
    made = SnapshotScene(tmp_path, _topology)
    made.begin()
    yield made
    made.end()


def _fetched(scene: SnapshotScene) -> Parts:
    """Start a worker whose task has fetched all files of the snapshot, and ingested none."""
    parts = scene.start("empty", role=Role.WARM_UP)
    parts.executor.drop([A])
    run(parts, 3)
    scene.tasks.deferred = True
    parts.executor.hold([A], Role.WARM_UP)
    parts.settle()
    scene.tasks.work()
    return parts


def _rows(parts: Parts) -> list[Any]:
    backend = parts.executor.stores.backend("counts")
    return [*backend.range("counts", b"", None), backend.offset("counts", 0)]


def _check(scene: SnapshotScene, parts: Parts) -> None:
    """Check that the rows are those of a replay."""
    found = _rows(parts)
    scene.feed(1, offset=300)
    parts.process()
    parts.commit()
    counted = parts.executor.held[A].stores["counts"].get("key-300")
    scene.kafka.logs[CHANGELOG].pop()
    parts = scene.start("first", snapshots=False)
    run(parts)
    assert _rows(parts) == found
    assert counted.value == parts.executor.held[A].stores["counts"].get("key-300").value + 1


@pytest.mark.parametrize("role", [Role.ACTIVE, Role.WARM_UP])
def test_rows_come_from_the_snapshot_and_the_tail_from_the_changelog(
    scene: SnapshotScene, caplog: pytest.LogCaptureFixture, role: Any
) -> None:
    """In every role, and also at a start with a disk."""
    caplog.set_level(logging.INFO)
    manifest = scene.snapshot()
    tail(scene)
    parts = scene.start("first", role=role)
    run(parts)
    assert f"ingested {KEYS} rows of snapshot {manifest.version}" in caplog.text
    assert parts.executor.held[A].state is TaskState.RUNNING
    assert 0 < replayed_records(parts) <= 150
    if role is not Role.ACTIVE:
        parts.own(A)
        run(parts)
    _check(scene, parts)


def test_each_turn_ingests_some_rows(scene: SnapshotScene) -> None:
    """Other tasks run between them."""
    manifest = scene.snapshot()
    parts = _fetched(scene)
    backend = parts.executor.stores.backend("counts")
    bootstrap: Any = parts.executor.bootstrap
    seen = [0]
    while bootstrap.pending(A):
        parts.executor.take_in_snapshots()
        seen.append(len(list(backend.range("counts", b"", None))))
    assert seen[-1] == manifest.stores[0].parts[0].rows
    assert max(after - before for before, after in pairwise(seen)) <= 30


@pytest.mark.parametrize("steps", [0, 1, 3, 40])
def test_task_that_is_dropped_meanwhile_leaves_no_rows_in_memory(scene: SnapshotScene, steps: int) -> None:
    """They would stay for ever. The last step is the one before the activation."""
    scene.snapshot()
    parts = _fetched(scene)
    bootstrap: Any = parts.executor.bootstrap
    for _ in range(steps):
        bootstrap.turn()
    assert not parts.executor.held[A].opened
    parts.executor.drop([A])
    assert _rows(parts) == [None]


@pytest.mark.parametrize("harm", [damage_file, not_an_sst])
def test_damaged_snapshot_is_rejected_and_the_changelog_replayed(
    scene: SnapshotScene, caplog: pytest.LogCaptureFixture, harm: Any
) -> None:
    """The reason is logged; none of its rows remains."""
    harm(scene, scene.snapshot())
    tail(scene)
    parts = scene.start("empty")
    run(parts)
    assert parts.executor.held[A].state is TaskState.RUNNING
    assert replayed_records(parts) > 150
    warnings = [each.getMessage() for each in caplog.records if each.levelno >= logging.WARNING]
    assert len([each for each in warnings if "restoring from changelog" in each]) == 1, warnings
    _check(scene, parts)


def test_rows_of_a_snapshot_are_dropped_when_their_changelog_was_recreated(scene: SnapshotScene) -> None:
    """While the task waited for its activation."""
    scene.snapshot()
    parts = scene.start("empty", role=Role.WARM_UP)
    parts.executor.drop([A])
    run(parts, 3)
    scene.tasks.deferred = True
    parts.own(A)
    content = scene.kafka.logs[CHANGELOG]
    scene.kafka.remake(CHANGELOG.topic, "another")
    scene.kafka.logs[CHANGELOG] = content
    scene.tasks.work()
    run(parts)
    assert parts.executor.held[A].state is TaskState.RUNNING
    assert replayed_records(parts) == len(content)
