"""A snapshot that cannot be used, or a recreated changelog, leads to a replay or to an error, never to wrong rows."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

import millpond as mp
from millpond.errors import ConfigError
from millpond.protocol import Role, TaskState
from millpond.runtime.restoring.snapshot_restorer import open_bootstrap
from millpond.runtime.topics.identity import TopicIdentity
from millpond.snapshots import versions
from millpond.snapshots.layouts import StoreKind, StoreLayout
from millpond.snapshots.manifest import Manifest, encode
from tests.runtime.restoring.snapshot_scene import (
    CHANGELOG,
    KEYS,
    A,
    SnapshotScene,
    check_right,
    damage_file,
    not_an_sst,
    replayed_records,
    restored,
    tail,
)

pytestmark = pytest.mark.usefixtures("no_overhead")


def _cut_file(scene: SnapshotScene, manifest: Manifest) -> None:
    path = versions.file_path("app", manifest.version, manifest.files[1].path)
    scene.location.put(path, scene.location.get(path)[:-7])


def _delete_file(scene: SnapshotScene, manifest: Manifest) -> None:
    scene.location.delete([versions.file_path("app", manifest.version, manifest.files[-1].path)])


def _cut_manifest(scene: SnapshotScene, manifest: Manifest) -> None:
    scene.location.put(versions.file_path("app", manifest.version, versions.MANIFEST), encode(manifest)[:-50])


def _newer_format(scene: SnapshotScene, manifest: Manifest) -> None:
    data = encode(manifest).replace(b'"format": 1', b'"format": 2')
    scene.location.put(versions.file_path("app", manifest.version, versions.MANIFEST), data)


@pytest.mark.parametrize(
    ("harm", "reason"),
    [
        (damage_file, "is damaged: it has another SHA-256"),
        (_cut_file, "is damaged: it has"),
        (_delete_file, "cannot read .*No such file"),
        (_cut_manifest, "manifest cannot be read"),
        (_newer_format, "has format 2"),
        (not_an_sst, "cannot be ingested"),
    ],
)
def test_damaged_snapshot_is_rejected_and_the_changelog_replayed(
    scene: SnapshotScene, caplog: pytest.LogCaptureFixture, harm: Callable[[SnapshotScene, Manifest], None], reason: str
) -> None:
    """The reason is logged."""
    harm(scene, scene.snapshot())
    tail(scene)
    parts = restored(scene, "empty")
    assert parts.executor.held[A].state is TaskState.RUNNING
    check_right(scene, parts)
    warnings = [each.getMessage() for each in caplog.records if each.levelno >= logging.WARNING]
    messages = " ".join(each for each in warnings if "snapshot" in each)
    assert messages.count("restoring from changelog") == 1
    assert re.search(reason, messages), messages


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"topic_id": "former"}, "another topic of that name"),
        ({"topic": "app-other-changelog"}, "from topic app-other-changelog"),
        ({"layout": StoreLayout(StoreKind.KEY_VALUE)}, "in another layout"),
        ({"offset": 1_000_000}, "the topic ends at"),
        ({"as_of_ms": 1}, "may have lost deletions"),
    ],
)
def test_snapshot_of_other_state_is_rejected(
    scene: SnapshotScene, caplog: pytest.LogCaptureFixture, changed: dict[str, Any], reason: str
) -> None:
    """It would be wrong state."""
    scene.snapshot(**changed)
    tail(scene)
    parts = restored(scene, "empty")
    check_right(scene, parts)
    assert reason in caplog.text


def test_snapshot_of_another_application_is_not_seen(scene: SnapshotScene) -> None:
    """It is in another folder."""
    scene.snapshot(application="application")
    parts = restored(scene, "empty")
    assert parts.executor.held[A].state is TaskState.RUNNING
    check_right(scene, parts)


def test_changelog_that_begins_after_the_snapshot_is_replayed(
    scene: SnapshotScene, caplog: pytest.LogCaptureFixture
) -> None:
    """The records between them are unknown."""
    scene.snapshot(end=10)
    scene.kafka.starts[CHANGELOG] = 20
    parts = restored(scene, "empty")
    assert parts.executor.held[A].state is TaskState.RUNNING
    assert "the topic begins at 20" in caplog.text


def _beginning_deleted(scene: SnapshotScene, first: int) -> None:
    scene.kafka.starts[CHANGELOG] = first
    scene.kafka.facts_of[CHANGELOG.topic] = TopicIdentity(CHANGELOG.topic, 86_400_000, only_compacted=True)


def test_worker_stops_when_neither_changelog_nor_snapshot_is_complete(scene: SnapshotScene) -> None:
    """Else keys would be missing for ever, unnoticed."""
    scene.snapshot(end=10)
    _beginning_deleted(scene, 20)
    with pytest.raises(mp.MillpondError, match=r"begins at offset 20.*neither it nor local rows or a snapshot"):
        restored(scene, "empty")


@pytest.mark.parametrize("directory", ["empty", "first"])
def test_changelog_without_its_beginning_is_enough_with_a_snapshot_or_local_rows(
    scene: SnapshotScene, directory: str
) -> None:
    """They have the deleted records."""
    manifest = scene.snapshot()
    _beginning_deleted(scene, manifest.stores[0].parts[0].offset - 5)
    tail(scene)
    parts = restored(scene, directory)
    assert parts.executor.held[A].state is TaskState.RUNNING
    assert len(parts.rows("counts")) == KEYS


def test_recreated_topic_is_an_error_with_local_rows(scene: SnapshotScene) -> None:
    """A snapshot does not replace local rows that may be the only copy of the state."""
    scene.snapshot()
    scene.end()
    scene.kafka.facts_of[CHANGELOG.topic] = TopicIdentity("another", None)
    with pytest.raises(mp.MillpondError, match="deleted and created again"):
        restored(scene, "first")


@pytest.mark.parametrize("role", [Role.ACTIVE, Role.STANDBY])
def test_rows_of_a_snapshot_are_dropped_when_their_changelog_was_recreated(scene: SnapshotScene, role: Any) -> None:
    """Also at a later start, as long as nothing was written after them."""
    scene.snapshot()
    parts = restored(scene, "empty")
    assert replayed_records(parts) == 0
    content = scene.kafka.logs[CHANGELOG]
    scene.kafka.remake(CHANGELOG.topic, "another")
    scene.kafka.logs[CHANGELOG] = content
    parts = restored(scene, "empty", role=role)
    assert parts.executor.held[A].state is TaskState.RUNNING
    check_right(scene, parts)


def test_rows_of_a_snapshot_do_not_hide_that_a_changelog_is_lost(scene: SnapshotScene) -> None:
    """A recreated, empty changelog with committed offsets is an error, as with an empty disk."""
    scene.snapshot()
    restored(scene, "empty")
    scene.kafka.remake(CHANGELOG.topic, "another")
    with pytest.raises(mp.MillpondError, match="the state of store 'counts' is lost"):
        restored(scene, "empty")


def test_rows_written_after_a_snapshot_are_kept(scene: SnapshotScene) -> None:
    """They may be the only copy of the later changes."""
    scene.snapshot()
    tail(scene)
    parts = restored(scene, "empty")
    rows = parts.rows("counts")
    scene.kafka.remake(CHANGELOG.topic, "another")
    with pytest.raises(mp.MillpondError, match="deleted and created again"):
        restored(scene, "empty")
    assert scene.parts is not None
    assert scene.parts.rows("counts") == rows


@pytest.mark.parametrize("uri", ["ftp://x", ""])
def test_unknown_location_is_rejected_at_the_start(scene: SnapshotScene, uri: str) -> None:
    """The error names the setting; else the worker would replay for ever, unnoticed."""
    parts = scene.parts
    assert parts is not None
    config = replace(parts.config, bootstrap_location=uri)
    with pytest.raises(ConfigError, match=r"setting 'bootstrap\.location': the location"):
        open_bootstrap(config, parts.executor.stores.backend, parts.executor._environment.now_ms)
    assert open_bootstrap(parts.config, parts.executor.stores.backend, parts.executor._environment.now_ms) is None
