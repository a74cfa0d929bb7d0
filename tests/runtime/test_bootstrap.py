"""A worker that needs much state takes it from a snapshot, and ends with the very rows of a replay, whatever goes wrong."""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

import millpond as mp
from millpond.errors import ConfigError, StateCorrupted
from millpond.protocol import Role, TaskState
from millpond.runtime.offsets.metadata import Partition
from millpond.runtime.restoring import snapshot_choice
from millpond.runtime.restoring import snapshot_restorer as bootstrap_module
from millpond.runtime.restoring.snapshot_files import SnapshotFiles
from millpond.runtime.restoring.snapshot_restorer import SnapshotRestorer, open_bootstrap
from millpond.runtime.topics.identity import TopicIdentity
from millpond.snapshots import versions
from millpond.snapshots.locations import LocalDirectory, open_location
from millpond.snapshots.manifest import Manifest, encode
from millpond.snapshots.rows import StoreKind, StoreLayout
from millpond.topology import TaskId
from tests.runtime.memory_kafka import Kafka
from tests.runtime.worker_parts import Errands, Parts
from tests.snapshots.reference import write_snapshot
from tests.snapshots.s3_server import KEY, SECRET, serving

pytestmark = pytest.mark.usefixtures("no_overhead")

A = TaskId(0, 0)
IN, CHANGELOG = Partition("in", 0), Partition("app-counts-changelog", 0)
KEYS = 400
LAYOUT = StoreLayout(StoreKind.TIMESTAMPED_KEY_VALUE)


def topology() -> Any:
    """Counts keys."""
    builder = mp.StreamsBuilder()
    builder.stream("in", key=mp.String, value=mp.String).group_by_key().count(store="counts").to_stream().to(
        "out", key=mp.String, value=mp.Long
    )
    return builder.build()


class Place:
    """A worker's world: its brokers, its snapshots, and workers with directories of their own."""

    def __init__(self, root: Path, topology: Callable[[], Any] = topology) -> None:
        self.root = root
        self.topology = topology
        self.kafka = Kafka()
        self.location: Any = LocalDirectory("snapshots", root / "snapshots")
        self.now_ms = 1_790_000_000_000
        self.parts: Parts | None = None
        self.tasks: Errands

    def start(
        self, directory: str, *, snapshots: bool = True, fresh_location: Any = None, role: Any = Role.ACTIVE
    ) -> Parts:
        """Start a worker, after the one before has ended."""
        self.end()
        self.parts = parts = Parts(self.kafka, self.topology(), self.root / directory, {"in": 1, "out": 1})
        self.tasks = Errands(self.kafka)
        if snapshots:
            location = fresh_location or self.location
            tasks: Any = self.tasks
            fetchers: Any = Errands(self.kafka)
            files = SnapshotFiles(location, parts.config.directory / "snapshots", fetchers)
            parts.executor.bootstrap = SnapshotRestorer(
                location, "app", parts.executor.stores.backend, tasks, files, parts.executor._environment.now_ms
            )
        if role is Role.ACTIVE:
            parts.own(A)
        else:
            parts.executor.hold([A], role)
        return parts

    def end(self) -> None:
        """End the worker."""
        if self.parts is not None:
            self.parts.close()
            self.parts = None

    def feed(self, count: int, offset: int = 0) -> None:
        """More input."""
        for number in range(count):
            self.kafka.append("in", f"key-{(number + offset) % KEYS}", "x", timestamp=1_000 + number)

    def begin(self) -> None:
        """The application counts for a while."""
        self.feed(1_000)
        parts = self.start("first", snapshots=False)
        parts.process()
        parts.commit()

    def snapshot(self, *, end: int | None = None, **changed: Any) -> Manifest:
        """Take a snapshot of the changelog."""
        log = self.kafka.logs[CHANGELOG]
        end = len(log) if end is None else end
        records = [(each.key, each.value, each.timestamp, None) for each in log[:end]]
        given = {
            "layout": LAYOUT,
            "topic": CHANGELOG.topic,
            "topic_id": CHANGELOG.topic,
            "application": "app",
        } | changed
        version = versions.new_version(self.now_ms)
        self.now_ms += 1_000
        parts = self.parts
        assert parts is not None
        return write_snapshot(
            self.location, given["application"], version,
            {"counts": (given["layout"], given["topic"], given["topic_id"], {0: (records, given.get("offset", end))})},
            as_of_ms=given.get("as_of_ms", parts.executor._environment.now_ms()), rows_per_file=100,
        )  # fmt: skip


def run(parts: Parts, turns: int = 60) -> None:
    """Turn the loop until the task runs, or nothing happens any more."""
    for _ in range(turns):
        parts.executor.take_in_snapshots()
        parts.settle()
        parts.executor.look_at_copies()


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    """An application that has counted for a while, with a snapshot of that and a tail of changes after it."""
    made = Place(tmp_path)
    made.begin()
    yield made
    made.end()


def tail(place: Place) -> None:
    """The application goes on after the snapshot."""
    assert place.parts is not None
    place.feed(150, offset=300)
    place.parts.process()
    place.parts.commit()


def restored(place: Place, directory: str, **given: Any) -> Parts:
    """A worker with an empty disk that has come up."""
    parts = place.start(directory, **given)
    run(parts)
    return parts


def check_right(place: Place, parts: Parts) -> None:
    """The rows are those of a replay, and processing goes on from them."""
    found, offset = parts.rows("counts"), parts.offset_on_disk("counts")
    provenance = parts.state_file.provenance("counts", 0)
    parts = restored(place, "replayed", snapshots=False)
    assert parts.rows("counts") == found
    assert parts.offset_on_disk("counts") == offset
    theirs = parts.state_file.provenance("counts", 0)
    assert provenance is not None
    assert theirs is not None
    assert provenance.topic_id == theirs.topic_id


def count_of(parts: Parts, key: str) -> int:
    """What the store says."""
    return int(parts.executor.held[A].stores["counts"].get(key).value)


def replayed_records(parts: Parts) -> int:
    """Changelog records that were read into the store."""
    return parts.executor.held[A].changelogs[0].restored


def test_store_comes_from_the_snapshot_and_the_tail_from_the_changelog(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    """Its output goes on right."""
    caplog.set_level(logging.INFO)
    manifest = place.snapshot()
    tail(place)
    parts = restored(place, "empty")
    assert parts.executor.held[A].state is TaskState.RUNNING
    assert 0 < replayed_records(parts) <= 150
    assert f"ingested 400 rows of snapshot {manifest.version}" in caplog.text
    place.feed(1, offset=300)
    before = count_of(parts, "key-300")
    parts.process()
    parts.commit()
    assert count_of(parts, "key-300") == before + 1
    check_right(place, parts)
    assert not (place.root / "empty/app/w0/snapshots").exists() or not list(
        (place.root / "empty/app/w0/snapshots").iterdir()
    )


def test_copies_come_from_snapshots_too(place: Place) -> None:
    """So that warming up is quick; then they follow their changelogs, and are promoted with their stores open."""
    place.snapshot()
    tail(place)
    parts = restored(place, "copy", role=Role.WARM_UP)
    held = parts.executor.held[A]
    assert held.role is Role.WARM_UP
    assert held.state is TaskState.RUNNING
    assert replayed_records(parts) <= 150
    assert held.lag == 0
    parts.own(A)
    run(parts)
    assert parts.executor.held[A].task is not None
    check_right(place, parts)


def test_rows_that_are_near_the_end_are_not_replaced(place: Place) -> None:
    """Reading on from them is quicker."""
    place.snapshot()
    tail(place)
    parts = restored(place, "first")
    assert parts.executor.held[A].state is TaskState.RUNNING
    assert not (place.root / "first/app/w0/snapshots").exists()
    check_right(place, parts)


def test_rows_that_are_far_behind_are_replaced(place: Place) -> None:
    """None of the old ones stays."""
    for _ in range(5):
        tail(place)
    place.snapshot()
    place.start("second", snapshots=False)
    assert place.parts is not None
    place.parts.state_file.write(
        [("counts", 0, [(b"\0\0\0\0never", b"was")])],
        {("counts", 0): (3, b"")},
        {
            ("counts", 0): place.parts.executor.held[A]
            .changelogs[0]
            .provenance(place.parts.executor._environment.now_ms())
        },
    )
    parts = restored(place, "second")
    assert b"never" not in parts.rows("counts")
    assert replayed_records(parts) == 0
    check_right(place, parts)


def test_without_a_snapshot_the_changelog_is_replayed(place: Place) -> None:
    """As if no location were configured."""
    parts = restored(place, "empty")
    assert replayed_records(parts) >= KEYS
    check_right(place, parts)


def _damage_file(place: Place, manifest: Manifest) -> None:
    path = versions.file_path("app", manifest.version, manifest.files[1].path)
    data = bytearray(place.location.get(path))
    data[len(data) // 2] ^= 0xFF
    place.location.put(path, bytes(data))


def _cut_file(place: Place, manifest: Manifest) -> None:
    path = versions.file_path("app", manifest.version, manifest.files[1].path)
    place.location.put(path, place.location.get(path)[:-7])


def _delete_file(place: Place, manifest: Manifest) -> None:
    place.location.delete([versions.file_path("app", manifest.version, manifest.files[-1].path)])


def _cut_manifest(place: Place, manifest: Manifest) -> None:
    place.location.put(versions.file_path("app", manifest.version, versions.MANIFEST), encode(manifest)[:-50])


def _newer_format(place: Place, manifest: Manifest) -> None:
    data = encode(manifest).replace(b'"format": 1', b'"format": 2')
    place.location.put(versions.file_path("app", manifest.version, versions.MANIFEST), data)


def _not_an_sst(place: Place, manifest: Manifest) -> None:
    """A file with the right checksum and no rows."""
    junk = b"junk" * 1000
    first = manifest.files[0]
    changed = msgspec.structs.replace(first, sha256=hashlib.sha256(junk).hexdigest(), bytes=len(junk))
    place.location.put(versions.file_path("app", manifest.version, first.path), junk)
    data = msgspec.json.encode(manifest).replace(msgspec.json.encode(first), msgspec.json.encode(changed))
    place.location.put(versions.file_path("app", manifest.version, versions.MANIFEST), data)


@pytest.mark.parametrize(
    ("harm", "reason"),
    [
        (_damage_file, "is damaged: it has another SHA-256"),
        (_cut_file, "is damaged: it has"),
        (_delete_file, "cannot read .*No such file"),
        (_cut_manifest, "manifest cannot be read"),
        (_newer_format, "has format 2"),
        (_not_an_sst, "cannot be ingested"),
    ],
)
def test_harmed_snapshot_is_refused_and_the_changelog_replayed(
    place: Place, caplog: pytest.LogCaptureFixture, harm: Callable[[Place, Manifest], None], reason: str
) -> None:
    """With the reason in the log."""
    harm(place, place.snapshot())
    tail(place)
    parts = restored(place, "empty")
    assert parts.executor.held[A].state is TaskState.RUNNING
    check_right(place, parts)
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
        ({"as_of_ms": 1}, "deletions may have left"),
    ],
)
def test_snapshot_of_something_else_is_refused(
    place: Place, caplog: pytest.LogCaptureFixture, changed: dict[str, Any], reason: str
) -> None:
    """It would be wrong state."""
    place.snapshot(**changed)
    tail(place)
    parts = restored(place, "empty")
    check_right(place, parts)
    assert reason in caplog.text


def test_snapshot_of_another_application_is_not_seen(place: Place) -> None:
    """It is in a folder of its own."""
    place.snapshot(application="application")
    parts = restored(place, "empty")
    assert parts.executor.held[A].state is TaskState.RUNNING
    check_right(place, parts)


def test_changelog_that_begins_after_the_snapshot_is_replayed(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    """What lies between is not known."""
    place.snapshot(end=10)
    place.kafka.starts[CHANGELOG] = 20
    parts = restored(place, "empty")
    assert parts.executor.held[A].state is TaskState.RUNNING
    assert "the topic begins at 20" in caplog.text


def _beginning_deleted(place: Place, first: int) -> None:
    place.kafka.starts[CHANGELOG] = first
    place.kafka.facts_of[CHANGELOG.topic] = TopicIdentity(CHANGELOG.topic, 86_400_000, only_compacted=True)


def test_worker_stops_when_neither_changelog_nor_snapshot_has_all(place: Place) -> None:
    """Keys would be missing for ever, and nobody would know."""
    place.snapshot(end=10)
    _beginning_deleted(place, 20)
    with pytest.raises(mp.MillpondError, match=r"begins at offset 20.*neither it nor local rows or a snapshot"):
        restored(place, "empty")


@pytest.mark.parametrize("directory", ["empty", "first"])
def test_changelog_without_its_beginning_is_enough_with_a_snapshot_or_local_rows(place: Place, directory: str) -> None:
    """That have what was deleted."""
    manifest = place.snapshot()
    _beginning_deleted(place, manifest.stores[0].parts[0].offset - 5)
    tail(place)
    parts = restored(place, directory)
    assert parts.executor.held[A].state is TaskState.RUNNING
    assert len(parts.rows("counts")) == KEYS


def test_what_snapshots_did_is_counted(place: Place) -> None:
    """For `/metrics`."""
    manifest = place.snapshot()
    parts = restored(place, "empty")
    bootstrap = parts.executor.bootstrap
    assert bootstrap is not None
    assert (bootstrap.waiting, bootstrap.ingested_rows, bootstrap.ingested_stores) == (0, KEYS, 1)
    assert bootstrap.fetched == sum(each.bytes for each in manifest.files)
    assert bootstrap.refused_stores == 0
    place.snapshot(topic="app-other-changelog")
    parts = restored(place, "another")
    assert parts.executor.bootstrap is not None
    assert parts.executor.bootstrap.refused_stores == 1


def test_newest_snapshot_is_taken(place: Place) -> None:
    """The tail after it is the shortest."""
    place.snapshot(end=300)
    tail(place)
    place.snapshot()
    parts = restored(place, "empty")
    assert replayed_records(parts) == 0
    check_right(place, parts)


class CutOff(LocalDirectory):
    """A location whose fetching ends in the middle of the second file."""

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


def test_fetching_that_a_kill_ended_goes_on_at_the_next_start(place: Place) -> None:
    """What is there is not fetched again."""
    manifest = place.snapshot()
    location = CutOff(place.location)
    parts = place.start("empty", fresh_location=location)
    parts.executor.bootstrap = None  # killed: nothing is tidied up
    location.cut, already = False, location.bytes
    parts = restored(place, "empty", fresh_location=location)
    total, cut = sum(each.bytes for each in manifest.files), manifest.files[1].bytes
    assert already == total - cut
    assert location.bytes == total - cut // 2
    check_right(place, parts)


def _idle(place: Place) -> tuple[Parts, Any]:
    """A worker without tasks where there is a snapshot, and its bootstrap; `place.tasks.work()` prepares what it asks for."""
    place.snapshot()
    tail(place)
    parts = place.start("empty", role=Role.WARM_UP)
    bootstrap: Any = parts.executor.bootstrap
    parts.executor.drop([A])
    run(parts, 3)
    place.tasks.deferred = True
    bootstrap._decided.clear()
    return parts, bootstrap


@pytest.fixture
def waiting(place: Place) -> Parts:
    """A worker whose task waits for a snapshot; `place.tasks.work()` prepares it."""
    parts, bootstrap = _idle(place)
    parts.own(A)
    assert parts.executor.held[A].state is TaskState.ACQUIRING
    assert bootstrap.pending(A)
    return parts


def test_task_waits_unopened_and_the_loop_does_not(place: Place, waiting: Parts) -> None:
    """And says what for."""
    run(waiting, 5)
    assert not waiting.executor.held[A].opened
    assert waiting.executor.unsettled(0.0) == ["task 0_0: waiting for a snapshot (0 of 0 bytes fetched)"]
    assert not waiting.executor.settled
    place.tasks.work()
    run(waiting)
    assert waiting.executor.held[A].state is TaskState.RUNNING
    assert replayed_records(waiting) <= 150
    check_right(place, waiting)


def test_each_turn_ingests_one_file_at_most(place: Place, waiting: Parts) -> None:
    """Other tasks go on between them."""
    place.tasks.work()
    turns = 0
    while waiting.executor.bootstrap.pending(A):  # type: ignore[union-attr]
        waiting.executor.take_in_snapshots()
        turns += 1
    assert turns == 1 + 4 + 1


@pytest.mark.parametrize("steps", [0, 1, 2, 4])
def test_task_that_is_dropped_meanwhile_leaves_nothing(place: Place, waiting: Parts, steps: int) -> None:
    """And can be held again."""
    if steps:
        place.tasks.work()
    for _ in range(steps):
        waiting.executor.take_in_snapshots()
    waiting.executor.drop([A])
    assert waiting.rows("counts") == {}
    place.tasks.work()
    run(waiting, 5)
    assert waiting.rows("counts") == {}
    place.tasks.deferred = False
    waiting.executor.hold([A], Role.ACTIVE)
    run(waiting)
    assert waiting.executor.held[A].state is TaskState.RUNNING
    assert replayed_records(waiting) <= 150
    check_right(place, waiting)


def test_going_back_meanwhile_does_not_disturb_it(place: Place, waiting: Parts) -> None:
    """Another task's commit may have failed."""
    waiting.new_producer()
    waiting.executor.go_back()
    run(waiting, 5)
    assert waiting.executor.held[A].state is TaskState.ACQUIRING
    place.tasks.work()
    waiting.executor.take_in_snapshots()
    waiting.executor.go_back()
    run(waiting)
    assert waiting.executor.held[A].state is TaskState.RUNNING
    check_right(place, waiting)


def test_task_that_is_to_be_released_waits_no_longer(place: Place, waiting: Parts) -> None:
    """Its next owner would wait with it."""
    waiting.executor.release(A, "w1")
    run(waiting)
    waiting.commit()
    assert waiting.executor.held[A].role is Role.STANDBY
    assert place.kafka.committed(IN).metadata.owner == "w1"


def test_task_that_is_to_be_released_before_it_was_looked_up_does_not_begin_to_wait(place: Place) -> None:
    """Neither."""
    parts, bootstrap = _idle(place)
    parts.own(A, start=False)
    parts.executor.hold([A], Role.ACTIVE)
    parts.executor.release(A, "w1")
    parts.settle()
    assert not bootstrap.pending(A)
    parts.commit()
    assert place.kafka.committed(IN).metadata.owner == "w1"


def test_copy_that_is_promoted_meanwhile_waits_for_its_snapshot(place: Place) -> None:
    """Then it runs."""
    place.snapshot()
    tail(place)
    parts = place.start("empty", role=Role.STANDBY)
    parts.executor.drop([A])
    run(parts, 3)
    place.tasks.deferred = True
    parts.executor.hold([A], Role.STANDBY)
    run(parts, 3)
    assert parts.executor.held[A].lag is None
    parts.own(A)
    run(parts, 3)
    assert not parts.executor.held[A].opened
    place.tasks.work()
    run(parts)
    assert parts.executor.held[A].task is not None
    assert replayed_records(parts) <= 150
    check_right(place, parts)


def test_location_that_does_not_answer_is_given_up(
    place: Place, waiting: Parts, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """And left alone for a while."""
    monkeypatch.setattr(bootstrap_module, "_MANIFEST_TIMEOUT_S", -1.0)
    bootstrap: Any = waiting.executor.bootstrap
    bootstrap._jobs[A].started = 0.0
    run(waiting)
    assert "does not answer" in caplog.text
    assert waiting.executor.held[A].state is TaskState.RUNNING
    assert replayed_records(waiting) > 150
    place.tasks.work()
    run(waiting, 3)
    waiting.executor.drop([A])
    waiting.executor.hold([A], Role.ACTIVE)
    assert not bootstrap.pending(A)
    run(waiting)
    check_right(place, waiting)


def test_slow_fetching_is_given_up(
    place: Place, waiting: Parts, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Where a replay would be through by now, and not half of it has come."""
    monkeypatch.setattr(bootstrap_module, "_FETCH_S", 0.0)
    bootstrap: Any = waiting.executor.bootstrap
    job = bootstrap._jobs[A]
    job.started, job.planned, job.progress.total = 0.0, True, 1000
    run(waiting)
    assert "0 of 1000 bytes of the snapshot came" in caplog.text
    assert waiting.executor.held[A].state is TaskState.RUNNING
    check_right(place, waiting)


def test_small_state_is_replayed_without_looking_for_snapshots(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Most starts are of this kind."""
    monkeypatch.setattr(snapshot_choice, "OVERHEAD_S", 3.0)
    place.snapshot()
    location = CutOff(place.location)
    monkeypatch.setattr(location, "folders", lambda prefix: pytest.fail("the location was asked"))
    parts = restored(place, "empty", fresh_location=location)
    assert parts.executor.held[A].state is TaskState.RUNNING


def test_topic_made_again_is_left_to_the_rules_for_that(place: Place) -> None:
    """A snapshot does not replace local rows that may be the only copy of the state."""
    place.snapshot()
    place.end()
    place.kafka.facts_of[CHANGELOG.topic] = TopicIdentity("another", None)
    with pytest.raises(mp.MillpondError, match="deleted and made again"):
        restored(place, "first")


def test_changelog_made_again_while_files_are_fetched_is_replayed(place: Place, waiting: Parts) -> None:
    """The rows of the snapshot are no only copy of anything: the worker is like one with an empty disk."""
    content = place.kafka.logs[CHANGELOG]
    place.kafka.remake(CHANGELOG.topic, "another")
    place.kafka.logs[CHANGELOG] = content
    place.tasks.deferred = False
    place.tasks.work()
    run(waiting)
    assert waiting.executor.held[A].state is TaskState.RUNNING
    assert replayed_records(waiting) == len(content)
    check_right(place, waiting)


@pytest.mark.parametrize("role", [Role.ACTIVE, Role.STANDBY])
def test_rows_of_a_snapshot_are_dropped_when_their_changelog_was_made_again(place: Place, role: Any) -> None:
    """At a later start, too, as long as nothing was written after them."""
    place.snapshot()
    parts = restored(place, "empty")
    assert replayed_records(parts) == 0
    content = place.kafka.logs[CHANGELOG]
    place.kafka.remake(CHANGELOG.topic, "another")
    place.kafka.logs[CHANGELOG] = content
    parts = restored(place, "empty", role=role)
    assert parts.executor.held[A].state is TaskState.RUNNING
    check_right(place, parts)


def test_rows_of_a_snapshot_do_not_hide_that_a_changelog_is_lost(place: Place) -> None:
    """Made again and empty, while the committed offsets go on: that is said, as for an empty disk."""
    place.snapshot()
    restored(place, "empty")
    place.kafka.remake(CHANGELOG.topic, "another")
    with pytest.raises(mp.MillpondError, match="the state of store 'counts' is lost"):
        restored(place, "empty")


def test_rows_that_went_on_after_a_snapshot_are_kept_as_any_others(place: Place) -> None:
    """They may be the only copy of what was written since."""
    place.snapshot()
    tail(place)
    parts = restored(place, "empty")
    rows = parts.rows("counts")
    place.kafka.remake(CHANGELOG.topic, "another")
    with pytest.raises(mp.MillpondError, match="deleted and made again"):
        restored(place, "empty")
    assert place.parts is not None
    assert place.parts.rows("counts") == rows


def test_corrupted_store_is_not_taken_from_a_snapshot_again(place: Place) -> None:
    """It would be corrupted again, for ever."""
    place.snapshot()
    tail(place)
    parts = restored(place, "empty")
    assert replayed_records(parts) <= 150
    parts.executor.rebuild_corrupted(StateCorrupted("store 'counts' is corrupted.", "counts"))
    run(parts)
    assert parts.executor.held[A].state is TaskState.RUNNING
    assert replayed_records(parts) > 150
    check_right(place, parts)


def test_files_that_nobody_came_back_for_are_deleted(place: Place) -> None:
    """After a while; also those of an earlier process."""
    folder = place.root / "first/app/w0"
    for name in ("snapshots", "snapshots.old-1-1"):
        (folder / name).mkdir()
        (folder / name / "x.sst").write_bytes(b"x")
    parts = restored(place, "first")
    bootstrap: Any = parts.executor.bootstrap
    assert (folder / "snapshots/x.sst").exists()
    bootstrap._clear_at = 0.0
    run(parts, 2)
    assert sorted(each.name for each in folder.glob("snapshots*")) == []


def test_measured_rates_decide(place: Place) -> None:
    """A worker that fetches slowly replays."""
    place.snapshot()
    tail(place)
    place.start("empty", role=Role.STANDBY)
    parts = place.parts
    assert parts is not None
    bootstrap: Any = parts.executor.bootstrap
    parts.executor.drop([A])
    bootstrap.rates.snapshot = 1.0
    parts.own(A)
    run(parts)
    assert replayed_records(parts) > 150


@pytest.mark.parametrize("uri", ["ftp://x", ""])
def test_unknown_location_is_refused_at_the_start(place: Place, uri: str) -> None:
    """With the setting's name, rather than replaying for ever unnoticed."""
    parts = place.parts
    assert parts is not None
    config = replace(parts.config, bootstrap_location=uri)
    with pytest.raises(ConfigError, match=r"setting 'bootstrap\.location': the location"):
        open_bootstrap(config, parts.executor.stores.backend, parts.executor._environment.now_ms)
    assert open_bootstrap(parts.config, parts.executor.stores.backend, parts.executor._environment.now_ms) is None


def test_snapshot_comes_from_a_real_object_store(place: Place, versitygw: Path) -> None:
    """With credentials in files."""
    (place.root / "served/bucket").mkdir(parents=True)
    secrets = place.root / "secrets"
    secrets.mkdir()
    with serving(place.root / "served") as endpoint:
        for name, value in (
            ("AWS_ACCESS_KEY_ID", KEY), ("AWS_SECRET_ACCESS_KEY", SECRET), ("AWS_ENDPOINT_URL", endpoint),
        ):  # fmt: skip
            (secrets / name).write_text(value + "\n")
        place.location = open_location("s3://bucket/states", secrets)
        place.snapshot()
        tail(place)
        parts = restored(place, "empty")
        assert parts.executor.held[A].state is TaskState.RUNNING
        assert replayed_records(parts) <= 150
        check_right(place, parts)
