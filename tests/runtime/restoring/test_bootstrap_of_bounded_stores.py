"""LRU stores and global versioned stores are in no snapshot: beside stores that are, they are restored by a replay."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import millpond as mp
from tests.runtime.restoring.global_scene import FIRST, SECOND, GlobalScene, GlobalWorker
from tests.runtime.restoring.snapshot_scene import (
    A,
    SnapshotScene,
    check_right,
    replayed_records,
    restored,
    tail,
)

pytestmark = pytest.mark.usefixtures("no_overhead")

_RETENTION_MS = 5_000


def _counts_and_recent() -> mp.Topology:
    builder = mp.StreamsBuilder()
    grouped = builder.stream("in", key=mp.String, value=mp.String).group_by_key()
    grouped.count(store="counts").to_stream().to("out", key=mp.String, value=mp.Long)
    grouped.count(store="recent", max_entries=3)
    return builder.build()


class _Keep(mp.Processor[str, str, None, None]):
    """A processor that fills a global versioned store."""

    def process(self, record: mp.Record[str, str]) -> None:
        self.context.get_state_store("rates").put(record.key, record.value, record.timestamp)


def _versions() -> mp.Topology:
    builder = mp.StreamsBuilder()
    store = mp.VersionedKeyValueStoreBuilder(
        name="rates", key=mp.String, value=mp.String, history_retention_ms=_RETENTION_MS, logging=False
    )
    builder.add_global_store(store, "rates", _Keep, key=mp.String, value=mp.String)
    return builder.build()


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[SnapshotScene]:
    """An application with an LRU store beside another one, which has processed 1,000 records."""
    made = SnapshotScene(tmp_path, _counts_and_recent)
    made.begin()
    yield made
    made.end()


def _recent(scene: SnapshotScene) -> list[tuple[str, int]]:
    assert scene.parts is not None
    store = scene.parts.executor.held[A].stores["recent"]
    return [(raw.decode(), store.peek(raw)[0]) for raw in store._recent]


def test_an_lru_store_is_replayed_beside_a_store_of_a_snapshot(scene: SnapshotScene) -> None:
    """Both stand at the same commit, and the LRU store has its entries in the order in which they were put."""
    scene.snapshot()
    tail(scene)
    before = _recent(scene)
    assert [count for _, count in before] == [1, 1, 1], "counts of other keys were forgotten"
    parts = restored(scene, "empty")
    assert replayed_records(parts) < 200, "of the counts, only what follows the snapshot"
    assert _recent(scene) == before
    scene.feed(1, offset=7)
    parts.process()
    parts.commit()
    assert [key for key, _ in _recent(scene)] == [key for key, _ in before[1:]] + ["key-7"]
    check_right(scene, parts)


def _versions_of(worker: GlobalWorker) -> list[Any]:
    store = worker.stores.by_name()["rates"]
    return [[store.get(f"key-{number}", at) for at in (None, 2_500, 3_900)] for number in range(0, 250, 7)]


def test_a_global_versioned_store_reads_its_topic_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A snapshot of an earlier topology has a store of its name, whose rows are others. From disk it goes on."""
    scene = GlobalScene(tmp_path)
    scene.feed(3_000)
    scene.snapshot()
    monkeypatch.setattr(scene.location, "folders", lambda prefix: pytest.fail("the location was asked"))
    worker = scene.start("empty", topology=_versions())
    worker.stores.create()
    assert worker.consumer.positions == {FIRST: 0, SECOND: 0}
    worker.turn()
    before = _versions_of(worker)
    assert any(found is not None for each in before for found in each[1:])
    ends = dict(worker.consumer.positions)
    again = scene.start("empty", topology=_versions())
    again.stores.create()
    assert again.consumer.positions == ends
    again.turn()
    assert _versions_of(again) == before
    scene.end()
