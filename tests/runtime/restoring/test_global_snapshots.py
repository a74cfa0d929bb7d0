"""Global tables restored from a snapshot: the rows of a replay, whatever fails, without blocking the loop."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import millpond as mp
from millpond.runtime.commit.pipeline import CommitFailed
from millpond.snapshots import versions
from millpond.snapshots.layouts import StoreKind, StoreLayout
from millpond.snapshots.manifest import Manifest
from millpond.state import KeyValueStoreBuilder
from tests.runtime.restoring.global_scene import FIRST, KEYS, LAYOUT, SECOND, GlobalScene

pytestmark = pytest.mark.usefixtures("no_overhead")


class _Keep(mp.Processor[Any, Any, Any, Any]):
    """A processor that fills a global store."""

    def process(self, record: Any) -> None:
        self.context.store("rates").put(record.key, record.value)


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[GlobalScene]:
    """A topic in which keys were overwritten and deleted many times."""
    made = GlobalScene(tmp_path)
    made.feed(3_000)
    yield made
    made.end()


@pytest.mark.parametrize("persistent", [True, False], ids=["on disk", "in memory"])
def test_rows_come_from_the_snapshot_and_the_tail_from_the_topic(
    scene: GlobalScene, caplog: pytest.LogCaptureFixture, persistent: bool
) -> None:
    """All partitions of the topic are in one store."""
    caplog.set_level(logging.INFO)
    scene.persistent = persistent
    manifest = scene.snapshot()
    ends = {each: len(scene.kafka.logs[each]) for each in (FIRST, SECOND)}
    scene.feed(70, first=40)
    worker = scene.start("empty")
    worker.tasks.deferred = True
    worker.stores.create()
    worker.turn(3)
    assert worker.stores.behind == {FIRST, SECOND}, "tasks wait for it"
    assert worker.consumer.positions == {}
    worker.tasks.work()
    assert worker.bootstrap is not None
    while worker.bootstrap.waiting:
        for id in worker.bootstrap.turn():
            assert worker.stores.restored(id)
    assert worker.consumer.positions == ends
    worker.turn()
    assert not worker.stores.behind
    rows = sum(part.rows for part in manifest.stores[0].parts)
    assert f"global store rates: ingested {rows} rows of snapshot {manifest.version}" in caplog.text
    scene.check(worker)


@pytest.mark.parametrize("persistent", [True, False], ids=["on disk", "in memory"])
def test_key_in_both_partitions_has_one_of_its_rows(scene: GlobalScene, persistent: bool) -> None:
    """With a replay it is unknown which one, too."""
    scene.persistent = persistent
    for partition in range(2):
        for number in range(0, KEYS, 3):
            scene.kafka.append("rates", f"key-{number}", f"of-{partition}", timestamp=9_000, partition=partition)
    scene.snapshot()
    worker = scene.run("empty")
    assert worker.bootstrap is not None
    assert worker.bootstrap.ingested_rows
    seen = dict(worker.stores.by_name()["rates"].all())
    assert {seen[f"key-{number}"].value for number in range(0, KEYS, 3)} <= {"of-0", "of-1"}
    replayed = scene.run("replayed", snapshots=False)
    assert seen.keys() == {key for key, _ in replayed.stores.by_name()["rates"].all()}


def test_rows_that_are_near_the_end_are_kept(scene: GlobalScene) -> None:
    """Reading the rest of the topic is faster."""
    scene.run("first", snapshots=False)
    scene.snapshot()
    scene.feed(10)
    worker = scene.run("first")
    assert worker.bootstrap is not None
    assert worker.bootstrap.ingested_rows == 0
    scene.check(worker)


def test_rows_that_are_far_behind_are_replaced(scene: GlobalScene) -> None:
    """No old row and no old offset remains."""
    worker = scene.run("first", snapshots=False)
    worker.backend.write([("rates", 0, [(b"\0\0\0\0never", bytes(8) + b"was")])])
    scene.feed(5_000)
    scene.snapshot()
    worker = scene.run("first")
    assert worker.bootstrap is not None
    assert worker.bootstrap.ingested_rows
    scene.check(worker)


def _damage(scene: GlobalScene, manifest: Manifest) -> None:
    path = versions.file_path("app", manifest.version, manifest.files[-1].path)
    data = bytearray(scene.location.get(path))
    data[len(data) // 2] ^= 0xFF
    scene.location.put(path, bytes(data))


def _lose(scene: GlobalScene, manifest: Manifest) -> None:
    scene.location.delete([versions.file_path("app", manifest.version, manifest.files[-1].path)])


def _advance(scene: GlobalScene, manifest: Manifest) -> None:
    """Delete records of one partition beyond the end of the snapshot."""
    scene.kafka.starts[SECOND] = manifest.stores[0].parts[1].offset + 1


def _remake(scene: GlobalScene, manifest: Manifest) -> None:
    scene.kafka.remake("rates", "other")
    scene.feed(2_000, first=7)


@pytest.mark.parametrize("persistent", [True, False], ids=["on disk", "in memory"])
@pytest.mark.parametrize(
    ("harm", "reason"),
    [
        (_damage, "is damaged: it has another SHA-256"),
        (_lose, "cannot read .*No such file"),
        (_advance, "the topic begins at"),
        (_remake, "another topic of that name"),
    ],
)
def test_damaged_snapshot_is_rejected_for_all_partitions(
    scene: GlobalScene,
    caplog: pytest.LogCaptureFixture,
    harm: Callable[[GlobalScene, Manifest], None],
    reason: str,
    persistent: bool,
) -> None:
    """The reason is logged, and the topic is read."""
    scene.persistent = persistent
    manifest = scene.snapshot()
    scene.feed(100)
    harm(scene, manifest)
    worker = scene.run("empty")
    assert worker.bootstrap is not None
    assert worker.bootstrap.ingested_rows == 0
    messages = [each.getMessage() for each in caplog.records if each.levelno >= logging.WARNING]
    assert [each for each in messages if re.search(f"^global store rates: .*{reason}", each)], messages
    scene.check(worker)


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"partitions": 1}, "has 1 partitions of rates, but the topic has 2 now"),
        ({"layout": StoreLayout(StoreKind.TIMESTAMPED_KEY_VALUE)}, "instead of global timestamped_key_value"),
        (
            {"layout": StoreLayout(LAYOUT.kind, is_global=True, serdes="String, Long")},
            "of String, Long instead of global .* of String, String",
        ),
        ({"ends": {1: 1_000_000}}, "the topic ends at"),
        ({"as_of_ms": 1}, "may have lost deletions"),
    ],
)
def test_snapshot_of_other_state_is_rejected(
    scene: GlobalScene, caplog: pytest.LogCaptureFixture, changed: dict[str, Any], reason: str
) -> None:
    """It would be wrong state."""
    scene.snapshot(**changed)
    scene.feed(10)
    worker = scene.run("empty")
    assert re.search(reason, caplog.text)
    scene.check(worker)


def test_topic_recreated_during_the_fetch_is_read(scene: GlobalScene) -> None:
    """No row of the old topic remains."""
    scene.snapshot()
    worker = scene.start("empty")
    worker.tasks.deferred = True
    worker.stores.create()
    scene.kafka.remake("rates", "other")
    scene.feed(4_000, first=3)
    worker.tasks.work()
    worker.turn()
    assert worker.bootstrap is not None
    assert worker.bootstrap.ingested_rows
    assert not worker.stores.behind
    scene.check(worker)


@pytest.mark.parametrize("persistent", [True, False], ids=["on disk", "in memory"])
@pytest.mark.parametrize("steps", [0, 1, 2, 4])
def test_worker_that_stops_meanwhile_leaves_nothing(scene: GlobalScene, steps: int, persistent: bool) -> None:
    """And the next start is not affected."""
    scene.persistent = persistent
    scene.snapshot()
    worker = scene.start("empty")
    worker.tasks.deferred = True
    worker.stores.create()
    if steps:
        worker.tasks.work()
    for _ in range(steps):
        assert worker.bootstrap is not None
        assert not worker.bootstrap.turn()
    worker.stores.close()
    assert worker.state() == ([], [None, None])
    scene.check(scene.run("empty"))


def test_killed_ingestion_leaves_no_offset_of_any_partition(scene: GlobalScene) -> None:
    """Else incomplete rows would be continued for ever."""
    worker = scene.run("first", snapshots=False)
    scene.feed(5_000)
    scene.snapshot()
    worker = scene.start("first")
    worker.stores.create()
    assert worker.bootstrap is not None
    for _ in range(3):
        worker.bootstrap.turn()
    assert worker.state()[0], "some are there"
    worker.file._database.close()  # killed: nothing is tidied up
    worker.file._database.recover()
    assert worker.state() == ([], [None, None])
    worker.bootstrap = None
    scene.check(scene.run("first"))


def test_rows_are_dropped_with_the_offsets_of_all_partitions_at_once(scene: GlobalScene) -> None:
    """Else a worker killed in between would continue from an offset without its rows."""
    worker = scene.run("first", snapshots=False)
    updater = worker.stores.of_topic("rates")
    assert updater is not None
    seen = []
    write = worker.file._database.write
    worker.file._database.write = lambda fill: (write(fill), seen.append(fill))[0]  # type: ignore[assignment,func-returns-value]
    updater.drop()
    assert len(seen) == 1
    assert worker.state() == ([], [None, None])


def test_store_that_tasks_hold_is_rebuilt_from_the_snapshot(scene: GlobalScene) -> None:
    """The object stays open and shows the new rows."""
    scene.run("first", snapshots=False)
    worker = scene.run("first")
    held = worker.stores.by_name()["rates"]
    assert held.get("key-1") is not None
    scene.feed(3_000, first=3_000)
    scene.snapshot()
    updater = worker.stores.of_topic("rates")
    assert updater is not None
    worker.tasks.deferred = True
    with pytest.raises(CommitFailed, match="no longer has the position"):
        worker.stores.rebuild(updater, "no longer has the position")
    worker.stores.rebuild(updater, "no longer has the position")  # what a second partition reports
    messages = scene.kafka.readable(FIRST, 0)
    assert worker.stores.apply(FIRST, messages), "what was polled before is nobody else's"
    worker.stores.reread()
    assert worker.consumer.positions == {}
    worker.tasks.work()
    worker.turn()
    assert worker.stores.by_name()["rates"] is held
    assert held.is_open
    assert worker.bootstrap is not None
    assert worker.bootstrap.ingested_rows
    scene.check(worker)


def _with_processor() -> mp.Topology:
    builder = mp.StreamsBuilder()
    own = KeyValueStoreBuilder(name="rates", key=mp.String, value=mp.String, logging=False)
    builder.add_global_store(own, "rates", _Keep, key=mp.String, value=mp.String)
    return builder.build()


def _with_extractor() -> mp.Topology:
    builder = mp.StreamsBuilder()
    builder.global_table("rates", key=mp.String, value=mp.String, store="rates", timestamp=lambda value: 5)
    return builder.build()


@pytest.mark.parametrize("topology", [_with_processor, _with_extractor])
def test_store_that_is_no_plain_table_reads_its_topic(
    scene: GlobalScene, monkeypatch: pytest.MonkeyPatch, topology: Callable[[], mp.Topology]
) -> None:
    """No snapshot has it, so none is requested."""
    scene.snapshot()
    monkeypatch.setattr(scene.location, "folders", lambda prefix: pytest.fail("the location was asked"))
    worker = scene.start("empty", topology=topology())
    worker.stores.create()
    assert worker.consumer.positions == {FIRST: 0, SECOND: 0}
