"""A worker restores a large state from a snapshot, and ends with exactly the rows of a replay."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from millpond.errors import StateCorrupted
from millpond.protocol import Role, TaskState
from millpond.runtime.restoring import snapshot_choice
from millpond.snapshots.locations import LocalDirectory, open_location
from tests.runtime.restoring.snapshot_scene import (
    KEYS,
    A,
    SnapshotScene,
    check_right,
    count_of,
    replayed_records,
    restored,
    run,
    tail,
)
from tests.snapshots.s3_server import KEY, SECRET, serving

pytestmark = pytest.mark.usefixtures("no_overhead")


def test_store_comes_from_the_snapshot_and_the_tail_from_the_changelog(
    scene: SnapshotScene, caplog: pytest.LogCaptureFixture
) -> None:
    """Processing continues with correct results."""
    caplog.set_level(logging.INFO)
    manifest = scene.snapshot()
    tail(scene)
    parts = restored(scene, "empty")
    assert parts.executor.held[A].state is TaskState.RUNNING
    assert 0 < replayed_records(parts) <= 150
    assert f"ingested 400 rows of snapshot {manifest.version}" in caplog.text
    scene.feed(1, offset=300)
    before = count_of(parts, "key-300")
    parts.process()
    parts.commit()
    assert count_of(parts, "key-300") == before + 1
    check_right(scene, parts)
    assert not (scene.root / "empty/app/w0/snapshots").exists() or not list(
        (scene.root / "empty/app/w0/snapshots").iterdir()
    )


def test_copies_come_from_snapshots_too(scene: SnapshotScene) -> None:
    """Warm-ups are then fast; afterwards they follow their changelogs, and are promoted with open stores."""
    scene.snapshot()
    tail(scene)
    parts = restored(scene, "copy", role=Role.WARM_UP)
    held = parts.executor.held[A]
    assert held.role is Role.WARM_UP
    assert held.state is TaskState.RUNNING
    assert replayed_records(parts) <= 150
    assert held.lag == 0
    parts.own(A)
    run(parts)
    assert parts.executor.held[A].task is not None
    check_right(scene, parts)


def test_rows_that_are_near_the_end_are_not_replaced(scene: SnapshotScene) -> None:
    """Reading the rest of the changelog is faster."""
    scene.snapshot()
    tail(scene)
    parts = restored(scene, "first")
    assert parts.executor.held[A].state is TaskState.RUNNING
    assert not (scene.root / "first/app/w0/snapshots").exists()
    check_right(scene, parts)


def test_rows_that_are_far_behind_are_replaced(scene: SnapshotScene) -> None:
    """No old row remains."""
    for _ in range(5):
        tail(scene)
    scene.snapshot()
    scene.start("second", snapshots=False)
    assert scene.parts is not None
    scene.parts.state_file.write(
        [("counts", 0, [(b"\0\0\0\0never", b"was")])],
        {("counts", 0): (3, b"")},
        {
            ("counts", 0): scene.parts.executor.held[A]
            .changelogs[0]
            .provenance(scene.parts.executor._environment.now_ms())
        },
    )
    parts = restored(scene, "second")
    assert b"never" not in parts.rows("counts")
    assert replayed_records(parts) == 0
    check_right(scene, parts)


def test_without_a_snapshot_the_changelog_is_replayed(scene: SnapshotScene) -> None:
    """As if no location were configured."""
    parts = restored(scene, "empty")
    assert replayed_records(parts) >= KEYS
    check_right(scene, parts)


def test_restores_from_snapshots_are_counted(scene: SnapshotScene) -> None:
    """For `/metrics`."""
    manifest = scene.snapshot()
    parts = restored(scene, "empty")
    bootstrap = parts.executor.bootstrap
    assert bootstrap is not None
    assert (bootstrap.waiting, bootstrap.ingested_rows, bootstrap.ingested_stores) == (0, KEYS, 1)
    assert bootstrap.fetched == sum(each.bytes for each in manifest.files)
    assert bootstrap.rejected_stores == 0
    scene.snapshot(topic="app-other-changelog")
    parts = restored(scene, "another")
    assert parts.executor.bootstrap is not None
    assert parts.executor.bootstrap.rejected_stores == 1


def test_newest_snapshot_is_used(scene: SnapshotScene) -> None:
    """The changelog after it is the shortest."""
    scene.snapshot(end=300)
    tail(scene)
    scene.snapshot()
    parts = restored(scene, "empty")
    assert replayed_records(parts) == 0
    check_right(scene, parts)


class CutOff(LocalDirectory):
    """A location whose fetch is cut off in the middle of the second file."""

    def __init__(self, inner: LocalDirectory) -> None:
        super().__init__(inner.uri, inner._root)
        self.fetched = 0
        self.cut = True
        self.bytes = 0

    def fetch(self, path: str, local: Path, on_bytes: Any = None) -> None:
        self.fetched += 1
        if self.cut and self.fetched == 2:
            data = self.get(path)
            local.with_name(local.name + ".partial").write_bytes(data[: len(data) // 2])
            raise KeyboardInterrupt

        def told(count: int) -> None:
            self.bytes += count
            on_bytes(count)

        super().fetch(path, local, told)


def test_interrupted_fetch_continues_at_the_next_start(scene: SnapshotScene) -> None:
    """Bytes on disk are not fetched again."""
    manifest = scene.snapshot()
    location = CutOff(scene.location)
    parts = scene.start("empty", fresh_location=location)
    parts.executor.bootstrap = None  # killed: nothing is tidied up
    location.cut, already = False, location.bytes
    parts = restored(scene, "empty", fresh_location=location)
    total, cut = sum(each.bytes for each in manifest.files), manifest.files[1].bytes
    assert already == total - cut
    assert location.bytes == total - cut // 2
    check_right(scene, parts)


def test_small_state_is_replayed_without_looking_for_snapshots(
    scene: SnapshotScene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As at most starts."""
    monkeypatch.setattr(snapshot_choice, "OVERHEAD_S", 3.0)
    scene.snapshot()
    location = CutOff(scene.location)
    monkeypatch.setattr(location, "folders", lambda prefix: pytest.fail("the location was asked"))
    parts = restored(scene, "empty", fresh_location=location)
    assert parts.executor.held[A].state is TaskState.RUNNING


def test_corrupted_store_is_not_restored_from_a_snapshot_again(scene: SnapshotScene) -> None:
    """It could be corrupted again, for ever."""
    scene.snapshot()
    tail(scene)
    parts = restored(scene, "empty")
    assert replayed_records(parts) <= 150
    parts.executor.rebuild_corrupted(StateCorrupted("store 'counts' is corrupted.", "counts"))
    run(parts)
    assert parts.executor.held[A].state is TaskState.RUNNING
    assert replayed_records(parts) > 150
    check_right(scene, parts)


def test_unused_files_are_deleted(scene: SnapshotScene) -> None:
    """After a while, with those of an earlier process."""
    folder = scene.root / "first/app/w0"
    for name in ("snapshots", "snapshots.old-1-1"):
        (folder / name).mkdir()
        (folder / name / "x.sst").write_bytes(b"x")
    parts = restored(scene, "first")
    bootstrap: Any = parts.executor.bootstrap
    assert (folder / "snapshots/x.sst").exists()
    bootstrap._delete_files_at = 0.0
    run(parts, 2)
    assert sorted(each.name for each in folder.glob("snapshots*")) == []


def test_measured_rates_decide(scene: SnapshotScene) -> None:
    """A worker with a slow location replays."""
    scene.snapshot()
    tail(scene)
    scene.start("empty", role=Role.STANDBY)
    parts = scene.parts
    assert parts is not None
    bootstrap: Any = parts.executor.bootstrap
    parts.executor.drop([A])
    bootstrap.rates.snapshot = 1.0
    parts.own(A)
    run(parts)
    assert replayed_records(parts) > 150


def test_snapshot_comes_from_a_real_object_store(scene: SnapshotScene, versitygw: Path) -> None:
    """With credentials in files."""
    (scene.root / "served/bucket").mkdir(parents=True)
    secrets = scene.root / "secrets"
    secrets.mkdir()
    with serving(scene.root / "served") as endpoint:
        for name, value in (
            ("AWS_ACCESS_KEY_ID", KEY), ("AWS_SECRET_ACCESS_KEY", SECRET), ("AWS_ENDPOINT_URL", endpoint),
        ):  # fmt: skip
            (secrets / name).write_text(value + "\n")
        scene.location = open_location("s3://bucket/states", secrets)
        scene.snapshot()
        tail(scene)
        parts = restored(scene, "empty")
        assert parts.executor.held[A].state is TaskState.RUNNING
        assert replayed_records(parts) <= 150
        check_right(scene, parts)
