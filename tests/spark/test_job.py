"""The Spark job makes the rows that a replay makes, and publishes a version completely or not at all."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from rocksdict import Options, Rdict

from millpond import serdes
from millpond.errors import SnapshotError
from millpond.snapshots import versions
from millpond.snapshots.layouts import layout_of
from millpond.snapshots.locations import open_location
from millpond.snapshots.manifest import Manifest, Part
from millpond.state import KeyValueStoreBuilder
from millpond_spark.cuts.boundaries import read_boundaries, wall_ms
from millpond_spark.progress import Stage
from tests.conftest import CreateTopic
from tests.snapshots.changelogs import BUILDERS
from tests.snapshots.reference import newest_rows
from tests.spark.changelogs import PARTITIONS, Application
from tests.support import kafka
from tests.support.broker import Broker

pytestmark = [
    pytest.mark.timeout(300),
    pytest.mark.filterwarnings(
        "ignore:unclosed <socket:ResourceWarning"
    ),  # pyspark leaves them to the garbage collector
]

Make = Callable[..., Any]
Rows = dict[bytes, bytes]


@pytest.fixture
def two_stores(broker: Broker, app_id: str, create_topic: CreateTopic) -> Application:
    """An application with a buffer and a store of windows: one for all kinds of stores takes several times as long."""
    builders = {kind: BUILDERS[kind] for kind in ("buffer", "window")}
    return Application(broker.bootstrap_servers, app_id, create_topic("input", PARTITIONS), builders)


def rows_of(root: Path, manifest: Manifest, part: Part) -> list[Rows]:
    """The rows of each file of a part, as RocksDB reads them."""
    found = []
    for number, file in enumerate(part.files):
        scratch = root.parent / f"read-{manifest.version}-{part.partition}-{number}"
        database = Rdict(str(scratch), Options(raw_mode=True))
        database.ingest_external_file([str(root / manifest.application / manifest.version / file.path)])
        found.append(dict(database.items()))
        database.close()
        Rdict.destroy(str(scratch), Options(raw_mode=True))
        assert len(found[-1]) == file.rows
    return found


def check(application: Application, manifest: Manifest, tmp_path: Path) -> None:
    """Compare a snapshot with a plain loop over the committed records, key by key."""
    root = tmp_path / "snapshots"
    assert versions.verify(open_location(str(root)), manifest) == []
    assert [each.store for each in manifest.stores] == sorted(each.name for each in application.builders.values())
    for builder in application.builders.values():
        layout, topic = layout_of(builder), application.changelog(builder.name)
        store = manifest.store(builder.name)
        assert store is not None
        assert (store.layout, store.topic, store.partitions) == (layout, topic, PARTITIONS)
        ends = kafka.end_offsets(application.bootstrap_servers, topic)
        assert {part.partition: part.offset for part in store.parts} == ends
        for number, records in application.committed(builder.name).items():
            part = store.part(number)
            assert part is not None
            rows, metadata = newest_rows(layout, number, records)
            files = rows_of(root, manifest, part)
            assert {key: value for file in files for key, value in file.items()} == dict(rows), builder.name
            assert part.metadata == metadata
            assert (part.rows, part.bytes) == (len(rows), sum(file.bytes for file in part.files))
            keys = [key for file in files for key in file]
            assert keys == sorted(keys), "files of a part have ranges of keys that ascend and do not overlap"


def test_a_snapshot_has_the_rows_that_replaying_leaves(
    application: Application, snapshot: Make, rng: random.Random, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every kind of store: aborted and open transactions, deletions, expired windows, null keys; full and on a base."""
    application.write(rng, 6)
    application.truncate("tkv", 0, 20)
    # What is in a transaction that is open while the job reads is no state yet.
    pending = application.producer()
    pending.begin_transaction()
    for builder in application.builders.values():
        application.send(
            pending,
            builder.name,
            0,
            (b"pending", None, 1, None) if builder.name in ("kv", "tkv") else (b"pending" + bytes(16), None, 1, None),
        )
    pending.flush(60)
    # Its end does not come while this waits.
    monkeypatch.setattr("millpond_spark.job.read_boundaries", partial(read_boundaries, cut_timeout_s=1.0))
    first = snapshot(application)
    check(application, first.manifest, tmp_path)
    assert first.base is None

    pending.commit_transaction(60)
    application.write(rng, 3)
    second = snapshot(application)
    check(application, second.manifest, tmp_path)
    assert second.base == first.manifest.version
    assert all(second.records[name] < count for name, count in first.records.items()), "only what is new is read"


@pytest.mark.long
def test_nothing_is_read_where_nothing_is_new_and_everything_for_a_full_snapshot(
    two_stores: Application, snapshot: Make, rng: random.Random, tmp_path: Path
) -> None:
    """Both have the rows that replaying leaves; retention deletes the versions that are not kept."""
    two_stores.write(rng, 3)
    first = snapshot(two_stores)

    nothing_new = snapshot(two_stores, keep=1)
    check(two_stores, nothing_new.manifest, tmp_path)
    assert nothing_new.removed == (first.manifest.version,)
    assert sum(nothing_new.records.values()) == 0

    full = snapshot(two_stores, full=True)
    check(two_stores, full.manifest, tmp_path)
    assert full.base is None
    assert full.records == first.records


@pytest.mark.long
def test_a_previous_version_is_not_built_upon_when_the_changelog_is_another_one(
    broker: Broker, app_id: str, create_topic: CreateTopic, snapshot: Make, rng: random.Random, tmp_path: Path
) -> None:
    """A changelog that was deleted and created again, and one that begins after the end of the version."""
    names = ("a", "b")
    builders = {
        f"key_value_{each}": KeyValueStoreBuilder(name=each, key=serdes.Bytes, value=serdes.Bytes) for each in names
    }
    application = Application(broker.bootstrap_servers, app_id, create_topic("input", PARTITIONS), builders)
    application.write(rng, 3)
    first = snapshot(application)
    kafka.delete_topics(broker.bootstrap_servers, [application.changelog("a")])
    gone = application.changelog("a")
    kafka.eventually(lambda: gone not in kafka.topic_names(broker.bootstrap_servers, gone), "the changelog is deleted")
    kafka.create_topic(broker.bootstrap_servers, application.changelog("a"), PARTITIONS)
    application.write(rng, 3)
    part = first.manifest.store("b").part(1)
    application.truncate("b", 1, part.offset + 5)
    second = snapshot(application)
    assert second.base == first.manifest.version, "the other partitions of b build upon it"
    base = first.manifest.store("b")
    starts = {number: 0 if number == 1 else base.part(number).offset for number in range(PARTITIONS)}
    assert second.records == {"a": application.keyed("a", {}), "b": application.keyed("b", starts)}
    for name in names:
        for number, records in application.committed(name).items():
            files = rows_of(tmp_path / "snapshots", second.manifest, second.manifest.store(name).part(number))
            expected, _ = newest_rows(layout_of(builders[f"key_value_{name}"]), number, records)
            assert {key: value for file in files for key, value in file.items()} == dict(expected), (name, number)


@pytest.mark.long
def test_a_version_is_not_built_upon_when_reading_outlasts_the_deletions_since_then(
    broker: Broker, app_id: str, create_topic: CreateTopic, snapshot: Make
) -> None:
    """It was too old when reading ended: a deletion that was compacted away would be missing."""
    builders = {"key_value": KeyValueStoreBuilder(name="a", key=serdes.Bytes, value=serdes.Bytes)}
    application = Application(broker.bootstrap_servers, app_id, create_topic("input", PARTITIONS), builders)
    kafka.alter_topic(
        broker.bootstrap_servers,
        application.changelog("a"),
        **{"cleanup.policy": "compact", "delete.retention.ms": "600000"},
    )
    kafka.produce(broker.bootstrap_servers, application.changelog("a"), [(b"a", b"1", 1_000, 0)])
    now_ms = wall_ms()
    snapshot(application, now_ms=lambda: now_ms)
    kafka.produce(broker.bootstrap_servers, application.changelog("a"), [(b"a", None, 1_000, 0)])
    elapsed_ms = 500_000

    def reads_slowly(stage: Stage, _done: int, _total: int) -> None:
        nonlocal elapsed_ms
        if stage is Stage.PUBLISHING:
            elapsed_ms = 700_000

    with pytest.raises(SnapshotError, match=r"the previous snapshot is 700 s old now, .*: run it again"):
        snapshot(application, now_ms=lambda: now_ms + elapsed_ms, on_progress=reads_slowly)
    made = snapshot(application, now_ms=lambda: now_ms + elapsed_ms)
    assert made.records == {"a": 2}, "the version is too old by now, and everything is read"


def test_a_partition_with_most_of_the_keys_is_divided(
    broker: Broker, app_id: str, create_topic: CreateTopic, snapshot: Make, rng: random.Random, tmp_path: Path
) -> None:
    """Different executors write its rows into several files of similar size, without overlap."""
    builders = {
        "timestamped_key_value": KeyValueStoreBuilder(
            name="hot", key=serdes.Bytes, value=serdes.Bytes, timestamped=True
        )
    }
    application = Application(broker.bootstrap_servers, app_id, create_topic("input", PARTITIONS), builders)
    records = [
        (b"%09d" % rng.randrange(10**9), rng.randbytes(60), 1_000, 0 if number % 10 else 1 + number // 10 % 2)
        for number in range(20_000)
    ]
    kafka.produce(broker.bootstrap_servers, application.changelog("hot"), records)
    made = snapshot(application, file_bytes=300_000)
    check(application, made.manifest, tmp_path)
    hot, other, _, empty = made.manifest.stores[0].parts
    sizes = sorted(file.rows for file in hot.files)
    print(f"rows per file: {sizes}; the other partitions: {[file.rows for file in other.files]}")
    assert len(sizes) >= 4
    whole = sizes[1:] if len(sizes) > 4 else sizes  # the last range may be shared with the next partition
    assert whole[-1] <= 2 * whole[0]
    assert empty.files == ()


def test_a_job_that_fails_leaves_nothing_and_says_why(
    two_stores: Application, snapshot: Make, rng: random.Random, tmp_path: Path
) -> None:
    """A record that workers cannot restore, either; without it the next job succeeds."""
    application = two_stores
    application.write(rng, 2)
    producer = application.producer()
    producer.begin_transaction()
    application.send(producer, "buf", 1, (b"old", b"of another version", 1, None))
    producer.commit_transaction(60)
    application.settle()
    with pytest.raises(SnapshotError, match="version 3") as failed:
        snapshot(application)
    assert "\n" not in str(failed.value)
    assert not list((tmp_path / "snapshots").rglob("*.*"))

    producer.begin_transaction()
    application.send(producer, "buf", 1, (b"old", None, 2, None))
    producer.commit_transaction(60)
    application.settle()
    check(application, snapshot(application).manifest, tmp_path)


@pytest.mark.soak
def test_two_jobs_at_once_make_two_complete_versions(
    application: Application, snapshot: Make, rng: random.Random, tmp_path: Path
) -> None:
    """Neither job deletes the other's files."""
    application.write(rng, 2)
    made: list[Manifest] = []
    threads = [threading.Thread(target=lambda: made.append(snapshot(application).manifest)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({each.version for each in made}) == 2
    assert versions.versions(open_location(str(tmp_path / "snapshots")), application.id) == sorted(
        (each.version for each in made), reverse=True
    )
    for each in made:
        check(application, each, tmp_path)
