"""Global tables that come from a snapshot: the rows of a replay, whatever goes wrong, and the loop never waits for them."""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import millpond as mp
from millpond.runtime.commit.pipeline import CommitFailed
from millpond.runtime.config.model import Config
from millpond.runtime.kafka.admin import KafkaAdmin
from millpond.runtime.offsets.metadata import Partition
from millpond.runtime.restoring import snapshot_restorer as bootstrap_module
from millpond.runtime.restoring.global_stores import GlobalStores
from millpond.runtime.restoring.snapshot_files import SnapshotFiles
from millpond.runtime.restoring.snapshot_restorer import SnapshotRestorer
from millpond.runtime.states import WorkerState
from millpond.runtime.worker.assembly import _environment
from millpond.snapshots import versions
from millpond.snapshots.locations import LocalDirectory
from millpond.snapshots.manifest import Manifest
from millpond.snapshots.rows import StoreKind, StoreLayout
from millpond.state import KeyValueStoreBuilder, MemoryBackend, StateFile
from tests.conftest import CreateTopic
from tests.runtime.memory_kafka import Consumer, Kafka
from tests.runtime.running import Running
from tests.runtime.worker_parts import Errands
from tests.snapshots.reference import write_snapshot
from tests.support import kafka as kafka_support
from tests.support.broker import Broker

pytestmark = pytest.mark.usefixtures("no_overhead")

FIRST, SECOND = Partition("rates", 0), Partition("rates", 1)
LAYOUT = StoreLayout(StoreKind.TIMESTAMPED_KEY_VALUE, is_global=True, serdes="String, String")
KEYS = 250


class _Keep(mp.Processor[Any, Any, Any, Any]):
    """Fills a global store, in a way that nobody else knows."""

    def process(self, record: Any) -> None:
        self.context.store("rates").put(record.key, record.value)


def plain_table(*, persistent: bool = True) -> mp.Topology:
    """A global table."""
    builder = mp.StreamsBuilder()
    builder.global_table("rates", key=mp.String, value=mp.String, store="rates", persistent=persistent)
    return builder.build()


class Worker:
    """The global store of one worker, on a directory or in memory; the loop is the test's."""

    def __init__(self, place: Place, directory: str, topology: mp.Topology, *, snapshots: bool) -> None:
        config = Config.of(
            {"application.id": "app", "bootstrap.servers": "memory:1", "state.dir": place.root / directory}
        )
        cluster: Any = place.kafka
        environment = _environment(topology, config, cluster)
        self.environment = replace(environment, now_ms=lambda: int(time.time() * 1000) + place.ahead_ms)
        self.file = StateFile(config.directory)
        memory: Any = MemoryBackend()
        self.backend: Any = self.file if topology.global_stores[0].store.persistent else memory  # type: ignore[attr-defined]
        consumer: Any = Consumer(place.kafka)
        self.consumer: Consumer = consumer
        self.tasks: Any = Errands(place.kafka)
        self.bootstrap = None
        if snapshots:
            fetchers: Any = Errands(place.kafka)
            files = SnapshotFiles(place.location, config.directory / "snapshots", fetchers)
            self.bootstrap = SnapshotRestorer(
                place.location, "app", lambda _: self.backend, self.tasks, files, self.environment.now_ms
            )
        self.stores = GlobalStores(
            topology.global_stores,
            {"rates": 2},
            self.environment,
            lambda _: self.backend,
            consumer,
            cluster,
            self.bootstrap,
        )

    def turn(self, turns: int = 40) -> None:
        """Let the loop turn."""
        for _ in range(turns):
            for id in () if self.bootstrap is None else self.bootstrap.turn():
                assert self.stores.restored(id)
            for partition, messages, end in self.consumer.read():
                if messages:
                    self.stores.apply(partition, messages)
                self.stores.reached_end(partition, end)

    def state(self) -> tuple[Any, Any]:
        """The rows as they are committed, and where they end."""
        return list(self.backend.range("rates", b"", None)), [self.backend.offset("rates", each) for each in range(2)]

    def close(self) -> None:
        self.stores.close()
        if self.bootstrap is not None:
            self.bootstrap.close()
        self.file.close()


class Place:
    """A topic of two partitions, snapshots of it, and workers with directories of their own."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.kafka = Kafka()
        self.location: Any = LocalDirectory("snapshots", root / "snapshots")
        self.ahead_ms = 0
        self.persistent = True
        self._open: list[Worker] = []

    def feed(self, count: int, first: int = 0) -> None:
        """Write to the topic; every fifth key is deleted again."""
        for number in range(first, first + count):
            key = f"key-{number % KEYS}"
            partition = number % KEYS % 2
            self.kafka.append("rates", key, f"value-{number}", timestamp=1_000 + number, partition=partition)
            if number % 5 == 0:
                self.kafka.append("rates", key, "", timestamp=2_000 + number, partition=partition)
                self.kafka.logs[Partition("rates", partition)][-1].value = None

    def snapshot(self, **changed: Any) -> Manifest:
        """Take a snapshot of what is in the topic."""
        logs = {
            each: [
                (record.key, record.value, record.timestamp, None)
                for record in self.kafka.logs[Partition("rates", each)]
            ]
            for each in range(changed.get("partitions", 2))
        }
        ends = changed.get("ends", {})
        return write_snapshot(
            self.location,
            "app",
            versions.new_version(1_790_000_000_000),
            {
                "rates": (
                    changed.get("layout", LAYOUT),
                    "rates",
                    changed.get("topic_id", "rates"),
                    {each: (log, ends.get(each, len(log))) for each, log in logs.items()},
                )
            },
            as_of_ms=changed.get("as_of_ms", int(time.time() * 1000)),
            rows_per_file=60,
        )

    def start(self, directory: str, *, snapshots: bool = True, topology: mp.Topology | None = None) -> Worker:
        """Start a worker, after the one before has ended."""
        self.end()
        made = Worker(self, directory, topology or plain_table(persistent=self.persistent), snapshots=snapshots)
        self._open.append(made)
        return made

    def run(self, directory: str, *, snapshots: bool = True) -> Worker:
        """Start a worker, and let it read all there is."""
        made = self.start(directory, snapshots=snapshots)
        made.stores.create()
        made.turn()
        assert not made.stores.behind
        return made

    def end(self) -> None:
        """End the worker."""
        for each in self._open:
            each.close()
        self._open.clear()

    def check(self, worker: Worker) -> None:
        """The rows are those of a replay, in the state file and through the store."""
        found, seen = worker.state(), list(worker.stores.by_name()["rates"].all())
        replayed = self.run("replayed", snapshots=False)
        assert found == replayed.state()
        assert seen == list(replayed.stores.by_name()["rates"].all())


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    """With a topic in which keys were overwritten and deleted many times."""
    made = Place(tmp_path)
    made.feed(3_000)
    yield made
    made.end()


@pytest.mark.parametrize("persistent", [True, False], ids=["on disk", "in memory"])
def test_rows_come_from_the_snapshot_and_the_tail_from_the_topic(
    place: Place, caplog: pytest.LogCaptureFixture, persistent: bool
) -> None:
    """All partitions of the topic into one store."""
    caplog.set_level(logging.INFO)
    place.persistent = persistent
    manifest = place.snapshot()
    ends = {each: len(place.kafka.logs[each]) for each in (FIRST, SECOND)}
    place.feed(70, first=40)
    worker = place.start("empty")
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
    place.check(worker)


@pytest.mark.parametrize("persistent", [True, False], ids=["on disk", "in memory"])
def test_key_in_both_partitions_has_one_of_its_rows(place: Place, persistent: bool) -> None:
    """Which one nobody knows of a replay either."""
    place.persistent = persistent
    for partition in range(2):
        for number in range(0, KEYS, 3):
            place.kafka.append("rates", f"key-{number}", f"of-{partition}", timestamp=9_000, partition=partition)
    place.snapshot()
    worker = place.run("empty")
    assert worker.bootstrap is not None
    assert worker.bootstrap.ingested_rows
    seen = dict(worker.stores.by_name()["rates"].all())
    assert {seen[f"key-{number}"].value for number in range(0, KEYS, 3)} <= {"of-0", "of-1"}
    replayed = place.run("replayed", snapshots=False)
    assert seen.keys() == {key for key, _ in replayed.stores.by_name()["rates"].all()}


def test_rows_that_are_near_the_end_are_kept(place: Place) -> None:
    """Reading on is quicker."""
    place.run("first", snapshots=False)
    place.snapshot()
    place.feed(10)
    worker = place.run("first")
    assert worker.bootstrap is not None
    assert worker.bootstrap.ingested_rows == 0
    place.check(worker)


def test_rows_that_are_far_behind_are_replaced(place: Place) -> None:
    """None of the old ones stays, and neither does the offset of any partition."""
    worker = place.run("first", snapshots=False)
    worker.backend.write([("rates", 0, [(b"\0\0\0\0never", bytes(8) + b"was")])])
    place.feed(5_000)
    place.snapshot()
    worker = place.run("first")
    assert worker.bootstrap is not None
    assert worker.bootstrap.ingested_rows
    place.check(worker)


def _damage(place: Place, manifest: Manifest) -> None:
    path = versions.file_path("app", manifest.version, manifest.files[-1].path)
    data = bytearray(place.location.get(path))
    data[len(data) // 2] ^= 0xFF
    place.location.put(path, bytes(data))


def _lose(place: Place, manifest: Manifest) -> None:
    place.location.delete([versions.file_path("app", manifest.version, manifest.files[-1].path)])


def _advance(place: Place, manifest: Manifest) -> None:
    """One of the partitions begins where the snapshot does not reach."""
    place.kafka.starts[SECOND] = manifest.stores[0].parts[1].offset + 1


def _remake(place: Place, manifest: Manifest) -> None:
    place.kafka.remake("rates", "other")
    place.feed(2_000, first=7)


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
def test_harmed_snapshot_is_refused_for_all_partitions(
    place: Place,
    caplog: pytest.LogCaptureFixture,
    harm: Callable[[Place, Manifest], None],
    reason: str,
    persistent: bool,
) -> None:
    """With the reason in the log, and then the topic is read."""
    place.persistent = persistent
    manifest = place.snapshot()
    place.feed(100)
    harm(place, manifest)
    worker = place.run("empty")
    assert worker.bootstrap is not None
    assert worker.bootstrap.ingested_rows == 0
    messages = [each.getMessage() for each in caplog.records if each.levelno >= logging.WARNING]
    assert [each for each in messages if re.search(f"^global store rates: .*{reason}", each)], messages
    place.check(worker)


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"partitions": 1}, "is of 1 partitions of rates, and the topic has 2 now"),
        ({"layout": StoreLayout(StoreKind.TIMESTAMPED_KEY_VALUE)}, "instead of global timestamped_key_value"),
        (
            {"layout": StoreLayout(LAYOUT.kind, is_global=True, serdes="String, Long")},
            "of String, Long instead of global .* of String, String",
        ),
        ({"ends": {1: 1_000_000}}, "the topic ends at"),
        ({"as_of_ms": 1}, "deletions may have left"),
    ],
)
def test_snapshot_of_something_else_is_refused(
    place: Place, caplog: pytest.LogCaptureFixture, changed: dict[str, Any], reason: str
) -> None:
    """It would be wrong state."""
    place.snapshot(**changed)
    place.feed(10)
    worker = place.run("empty")
    assert re.search(reason, caplog.text)
    place.check(worker)


def test_topic_made_again_while_files_are_fetched_is_read(place: Place) -> None:
    """Nothing of the former one stays."""
    place.snapshot()
    worker = place.start("empty")
    worker.tasks.deferred = True
    worker.stores.create()
    place.kafka.remake("rates", "other")
    place.feed(4_000, first=3)
    worker.tasks.work()
    worker.turn()
    assert worker.bootstrap is not None
    assert worker.bootstrap.ingested_rows
    assert not worker.stores.behind
    place.check(worker)


@pytest.mark.parametrize("persistent", [True, False], ids=["on disk", "in memory"])
@pytest.mark.parametrize("steps", [0, 1, 2, 4])
def test_worker_that_stops_meanwhile_leaves_nothing(place: Place, steps: int, persistent: bool) -> None:
    """And the next start is not disturbed."""
    place.persistent = persistent
    place.snapshot()
    worker = place.start("empty")
    worker.tasks.deferred = True
    worker.stores.create()
    if steps:
        worker.tasks.work()
    for _ in range(steps):
        assert worker.bootstrap is not None
        assert not worker.bootstrap.turn()
    worker.stores.close()
    assert worker.state() == ([], [None, None])
    place.check(place.run("empty"))


def test_killed_ingestion_leaves_no_offset_of_any_partition(place: Place) -> None:
    """Rows without some of their keys would be read on from, for ever."""
    worker = place.run("first", snapshots=False)
    place.feed(5_000)
    place.snapshot()
    worker = place.start("first")
    worker.stores.create()
    assert worker.bootstrap is not None
    for _ in range(3):
        worker.bootstrap.turn()
    assert worker.state()[0], "some are there"
    worker.file._close_database()  # killed: nothing is tidied up
    worker.file._open_or_set_aside()
    assert worker.state() == ([], [None, None])
    worker.bootstrap = None
    place.check(place.run("first"))


def test_rows_are_dropped_with_the_offsets_of_all_partitions_at_once(place: Place) -> None:
    """A worker that is killed in between would go on from an offset whose rows are gone."""
    worker = place.run("first", snapshots=False)
    updater = worker.stores.of_topic("rates")
    assert updater is not None
    seen = []
    write = worker.file._write
    worker.file._write = lambda fill: (write(fill), seen.append(fill))[0]  # type: ignore[assignment,func-returns-value]
    updater.drop()
    assert len(seen) == 1
    assert worker.state() == ([], [None, None])


def test_store_that_tasks_hold_is_filled_anew_from_the_snapshot(place: Place) -> None:
    """The object stays open, and shows the new rows."""
    place.run("first", snapshots=False)
    worker = place.run("first")
    held = worker.stores.by_name()["rates"]
    assert held.get("key-1") is not None
    place.feed(3_000, first=3_000)
    place.snapshot()
    updater = worker.stores.of_topic("rates")
    assert updater is not None
    worker.tasks.deferred = True
    with pytest.raises(CommitFailed, match="does not have the position any more"):
        worker.stores.rebuild(updater, "does not have the position any more")
    worker.stores.rebuild(updater, "does not have the position any more")  # what a second partition reports
    messages = place.kafka.readable(FIRST, 0)
    assert worker.stores.apply(FIRST, messages), "what was polled before is nobody else's"
    worker.stores.reread()
    assert worker.consumer.positions == {}
    worker.tasks.work()
    worker.turn()
    assert worker.stores.by_name()["rates"] is held
    assert held.is_open
    assert worker.bootstrap is not None
    assert worker.bootstrap.ingested_rows
    place.check(worker)


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
    place: Place, monkeypatch: pytest.MonkeyPatch, topology: Callable[[], mp.Topology]
) -> None:
    """No snapshot has it, so none is looked for."""
    place.snapshot()
    monkeypatch.setattr(place.location, "folders", lambda prefix: pytest.fail("the location was asked"))
    worker = place.start("empty", topology=topology())
    worker.stores.create()
    assert worker.consumer.positions == {FIRST: 0, SECOND: 0}


def _joined(source: str, rates: str, target: str) -> mp.Topology:
    builder = mp.StreamsBuilder()
    table = builder.global_table(rates, key=mp.String, value=mp.String, store="rates")
    builder.stream(source, key=mp.String, value=mp.String).join(
        table, lambda value, rate: f"{value} {rate}", on=lambda key, _: key, value=mp.String
    ).to(target, key=mp.String, value=mp.String)
    return builder.build()


def test_tasks_join_with_rows_of_a_snapshot(
    broker: Broker,
    create_topic: CreateTopic,
    app_id: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """On a real broker: the worker is alive and can be stopped while the location does not answer, and joins once it does."""
    caplog.set_level(logging.INFO)
    servers = broker.bootstrap_servers
    source, rates, target = create_topic("in"), create_topic("rates", 2), create_topic("out")
    records = [(f"key-{number % 40}", f"{number}", 1_000, number % 2) for number in range(400)]
    kafka_support.produce(servers, rates, records)
    cluster = KafkaAdmin({"bootstrap.servers": servers}, patience=timedelta(seconds=30), stopping=lambda: False)
    logs: Any = {
        each: ([(key.encode(), value.encode(), time, None) for key, value, time, at in records if at == each], 200)
        for each in range(2)
    }
    write_snapshot(
        LocalDirectory("snapshots", tmp_path / "snapshots"), app_id, versions.new_version(1_790_000_000_000),
        {"rates": (LAYOUT, rates, cluster.facts([rates])[rates].id, logs)}, as_of_ms=int(time.time() * 1000),
    )  # fmt: skip
    kafka_support.produce(servers, rates, [("key-7", "newer", 1_000, 1)])
    kafka_support.produce(servers, source, [("key-7", "x"), ("key-8", "y")])
    settings: dict[str, object] = {"bootstrap.location": str(tmp_path / "snapshots")}
    monkeypatch.setattr(bootstrap_module, "_MANIFEST_TIMEOUT_S", 600.0)
    monkeypatch.setattr(bootstrap_module, "_FETCH_S", 600.0)
    answers, asked = threading.Event(), threading.Event()
    folders = LocalDirectory.folders

    def slow_folders(location: LocalDirectory, prefix: str) -> Any:
        asked.set()
        assert answers.wait(60)
        return folders(location, prefix)

    monkeypatch.setattr(LocalDirectory, "folders", slow_folders)
    topology = _joined(source, rates, target)
    with Running(topology, servers, app_id, tmp_path / "state", settings) as running:
        running.wait(asked.is_set, "the location is asked")
        before = running.worker.last_turn
        running.wait(lambda: running.worker.last_turn > before, "the loop turns")
        assert running.state is WorkerState.RESTORING
    assert kafka_support.read(servers, target) == []
    answers.set()
    with Running(topology, servers, app_id, tmp_path / "state", settings) as running:
        running.wait(lambda: len(kafka_support.read(servers, target)) == 2, "both are joined")
    assert "global store rates: ingested 40 rows" in caplog.text
    assert [row.value for row in kafka_support.read(servers, target)] == [b"x newer", b"y 368"]
