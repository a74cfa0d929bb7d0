"""A task's store in memory comes from a snapshot at every start, and ends with the rows of a replay."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import millpond as mp
from millpond.protocol import Role, TaskState
from millpond.state import memory_ingestion
from tests.runtime.test_bootstrap import (
    CHANGELOG,
    KEYS,
    A,
    Place,
    _damage_file,
    _not_an_sst,
    replayed_records,
    run,
    tail,
)
from tests.runtime.worker_parts import Parts


def _topology() -> mp.Topology:
    """Counts keys, in memory."""
    builder = mp.StreamsBuilder()
    counts = builder.stream("in", key=mp.String, value=mp.String).group_by_key().count(store="counts", persistent=False)
    counts.to_stream().to("out", key=mp.String, value=mp.Long)
    return builder.build()


@pytest.fixture(autouse=True)
def small(no_overhead: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Small states are worth a snapshot, and take several steps."""
    monkeypatch.setattr(memory_ingestion, "_ROWS", 30)


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    """An application that has counted for a while."""
    made = Place(tmp_path, _topology)
    made.begin()
    yield made
    made.end()


def _fetched(place: Place) -> Parts:
    """A worker whose task has all files of the snapshot, and has taken in none."""
    parts = place.start("empty", role=Role.WARM_UP)
    parts.executor.drop([A])
    run(parts, 3)
    place.tasks.deferred = True
    parts.executor.hold([A], Role.WARM_UP)
    parts.settle()
    place.tasks.work()
    return parts


def _rows(parts: Parts) -> list[Any]:
    backend = parts.executor.stores.backend("counts")
    return [*backend.range("counts", b"", None), backend.offset("counts", 0)]


def _check(place: Place, parts: Parts) -> None:
    """The rows are those of a replay, and processing goes on from them."""
    found = _rows(parts)
    place.feed(1, offset=300)
    parts.process()
    parts.commit()
    counted = parts.executor.held[A].stores["counts"].get("key-300")
    place.kafka.logs[CHANGELOG].pop()
    parts = place.start("first", snapshots=False)
    run(parts)
    assert _rows(parts) == found
    assert counted.value == parts.executor.held[A].stores["counts"].get("key-300").value + 1


@pytest.mark.parametrize("role", [Role.ACTIVE, Role.WARM_UP])
def test_rows_come_from_the_snapshot_and_the_tail_from_the_changelog(
    place: Place, caplog: pytest.LogCaptureFixture, role: Any
) -> None:
    """Whatever the role, and at a start with a disk, too."""
    caplog.set_level(logging.INFO)
    manifest = place.snapshot()
    tail(place)
    parts = place.start("first", role=role)
    run(parts)
    assert f"ingested {KEYS} rows of snapshot {manifest.version}" in caplog.text
    assert parts.executor.held[A].state is TaskState.RUNNING
    assert 0 < replayed_records(parts) <= 150
    if role is not Role.ACTIVE:
        parts.own(A)
        run(parts)
    _check(place, parts)


def test_each_turn_takes_some_rows(place: Place) -> None:
    """Other tasks go on between them."""
    manifest = place.snapshot()
    parts = _fetched(place)
    backend = parts.executor.stores.backend("counts")
    bootstrap: Any = parts.executor.bootstrap
    seen = [0]
    while bootstrap.pending(A):
        parts.executor.take_in_snapshots()
        seen.append(len(list(backend.range("counts", b"", None))))
    assert seen[-1] == manifest.stores[0].parts[0].rows
    assert max(after - before for before, after in pairwise(seen)) <= 30


@pytest.mark.parametrize("steps", [0, 1, 3, 40])
def test_task_that_is_dropped_meanwhile_leaves_no_rows_in_memory(place: Place, steps: int) -> None:
    """Nobody would take them away. The last step is the one before it is opened."""
    place.snapshot()
    parts = _fetched(place)
    bootstrap: Any = parts.executor.bootstrap
    for _ in range(steps):
        bootstrap.turn()
    assert not parts.executor.held[A].opened
    parts.executor.drop([A])
    assert _rows(parts) == [None]


@pytest.mark.parametrize("harm", [_damage_file, _not_an_sst])
def test_harmed_snapshot_is_refused_and_the_changelog_replayed(
    place: Place, caplog: pytest.LogCaptureFixture, harm: Any
) -> None:
    """With the reason in the log; none of its rows stays."""
    harm(place, place.snapshot())
    tail(place)
    parts = place.start("empty")
    run(parts)
    assert parts.executor.held[A].state is TaskState.RUNNING
    assert replayed_records(parts) > 150
    warnings = [each.getMessage() for each in caplog.records if each.levelno >= logging.WARNING]
    assert len([each for each in warnings if "restoring from changelog" in each]) == 1, warnings
    _check(place, parts)


def test_rows_of_a_snapshot_are_dropped_when_their_changelog_was_made_again(place: Place) -> None:
    """While the task waited to be opened."""
    place.snapshot()
    parts = place.start("empty", role=Role.WARM_UP)
    parts.executor.drop([A])
    run(parts, 3)
    place.tasks.deferred = True
    parts.own(A)
    content = place.kafka.logs[CHANGELOG]
    place.kafka.remake(CHANGELOG.topic, "another")
    place.kafka.logs[CHANGELOG] = content
    place.tasks.work()
    run(parts)
    assert parts.executor.held[A].state is TaskState.RUNNING
    assert replayed_records(parts) == len(content)
