"""A version of the state catalog is of one moment, whatever compaction removes while changelogs are read."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer, TopicPartition

import millpond as mp
from millpond import serdes
from millpond.catalog import indexes as catalog
from millpond.errors import SnapshotError
from millpond.runtime.config.model import Config
from millpond.runtime.kafka.admin import KafkaAdmin
from millpond.runtime.offsets.metadata import Partition
from millpond.runtime.topics.identity import topic_configs
from millpond.snapshots import versions
from millpond.snapshots.layouts import StoreKind, StoreLayout, layout_of
from millpond.snapshots.locations import open_location
from millpond.snapshots.store_columns import columns_of
from millpond.state import KeyValueStoreBuilder, StoreBuilder
from millpond_spark.cuts.boundaries import Boundaries, Range, read_boundaries
from millpond_spark.cuts.log_tails import Tail, TailRecord
from millpond_spark.cuts.moving_cut import MovingCut
from millpond_spark.stores import ChangelogStore
from tests.conftest import CreateTopic
from tests.snapshots.changelogs import BUILDERS
from tests.snapshots.reference import newest_rows
from tests.spark.changelogs import PARTITIONS, Application, with_stores
from tests.support import kafka
from tests.support.broker import Broker, OwnBroker

pytestmark = [
    pytest.mark.timeout(600),
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]

Make = Callable[..., Any]
YEAR_MS = 365 * 86_400_000
HOUR_MS = 3_600_000
AGGRESSIVE = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.01",
    "min.compaction.lag.ms": "0",
    "segment.bytes": str(1024 * 1024),
    "message.timestamp.after.max.ms": str(2 * YEAR_MS),
}
FILLER = b"x" * 300_000


def table(tables: Path, application: str, version: str, store: str) -> list[dict[str, Any]]:
    """Return the rows of a table."""
    from millpond.catalog.tables import open_table

    found = open_table(open_location(str(tables)), None, application, version, store)
    rows: list[dict[str, Any]] = found.scan().to_arrow().to_pylist()
    return rows


class Log:
    """A partition that is written and compacted between any two steps of its readers."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.written: list[str | None] = []
        """The key at each offset; None for the end of a transaction."""
        self.left: set[int] = set()
        self.state: dict[str, int] = {}
        """The offset of the newest record of each key that was read."""

    def go_on(self) -> None:
        """Write a transaction or single records, and compact a part of the log."""
        if self.rng.random() < 0.3:
            transaction = self.rng.random() < 0.5
            for key in self.rng.choices("abcdef", k=self.rng.randrange(1, 4)):
                self.left.add(len(self.written))
                self.written.append(key)
            if transaction:
                self.written.append(None)
        if self.rng.random() < 0.5:
            newest = self.state_at(self.rng.randrange(len(self.written) + 1))
            self.left -= {each for each in self.left if each < newest.get(self.written[each] or "", 0)}

    def state_at(self, offset: int) -> dict[str, int]:
        """Return the offset of the newest record of each key before an offset, as it was written."""
        return {key: number for number, key in enumerate(self.written[:offset]) if key is not None}

    def read(self, offset: int) -> bool:
        """Read the record at an offset, if it still exists."""
        key = self.written[offset]
        if offset not in self.left or key is None:
            return False
        self.state[key] = max(offset, self.state.get(key, -1))
        return True


def test_what_is_called_complete_is_the_state_of_its_moment(seed: int) -> None:
    """In logs that are written and compacted while they are read, in any order, and then followed."""
    lost = between = 0
    for number in range(300):
        log = Log(random.Random(f"{seed}-{number}"))
        while len(log.written) < 20:
            log.go_on()
        first = log.rng.randrange(10, 20)
        for offset in log.rng.sample(range(first), first):
            log.read(offset)
            log.go_on()
        lost += log.state != log.state_at(first)
        tail, position, ends = Tail(first), first, set[int]()
        seen = {first: dict(log.state)}
        for _ in range(60):
            if position == len(log.written):
                tail.add_end(position)
                ends.add(position)
            for _ in range(log.rng.randrange(1, 8)):
                if position < len(log.written):
                    if log.read(position):
                        tail.add(position)
                    position += 1
                    seen[position] = dict(log.state)
            for _ in range(log.rng.randrange(3)):
                log.go_on()
        for offset, state in seen.items():
            if tail.complete_at(offset):
                assert state == log.state_at(offset), f"offset {offset} of log {number}"
                between += offset not in ends
    assert lost > 50, "compaction has removed what was not read yet"
    assert between > 50, "moments between two ends are found, too"


@pytest.fixture
def follow(broker: Broker, app_id: str) -> Callable[[], tuple[Boundaries, list[TailRecord]]]:
    """Return a function that finds the cut of a store with a compacted changelog, from which ten records were read."""
    servers, topic = broker.bootstrap_servers, f"{app_id}-s-changelog"
    kafka.create_topic(servers, topic, 1, {"cleanup.policy": "compact"})
    kafka.produce(servers, topic, [("k", str(number)) for number in range(20)])
    config = Config.load(None, flags={"application.id": app_id, "bootstrap.servers": servers})
    store = ChangelogStore("s", StoreLayout(StoreKind.KEY_VALUE), topic, 1, is_input=False)

    def find() -> tuple[Boundaries, list[TailRecord]]:
        cluster = KafkaAdmin(config.admin_settings(), patience=timedelta(seconds=30), stopping=lambda: False)
        start = read_boundaries(cluster, config, [store], cut_timeout_s=0.1)
        return MovingCut(cluster, config, (store,), start, frozenset()).find(dict.fromkeys(start.ranges, 10))

    return find


def test_cut_before_an_open_transaction_is_complete_too(
    broker: Broker,
    app_id: str,
    follow: Callable[[], tuple[Boundaries, list[TailRecord]]],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """No moment between commits is found meanwhile: a warning says so, as without tables."""
    monkeypatch.setattr("millpond_spark.cuts.moving_cut._PROOF_TIMEOUT_S", 0.5)
    topic = f"{app_id}-s-changelog"
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "transactional.id": app_id}, logger=kafka.log)
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce(topic, b"v", b"k", 0)
    producer.flush(60)
    found, records = follow()
    producer.abort_transaction(60)
    assert found.ranges == {Partition(topic, 0): Range(0, 20)}
    assert [each.offset for each in records] == list(range(10, 20))
    assert "tasks 0_0: no pause of some milliseconds between commits within 0.5 s" in caplog.text


def test_partition_whose_end_is_never_reached_has_no_cut(
    app_id: str, follow: Callable[[], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if records arrived without any pause: the error names the topic."""
    monkeypatch.setattr("millpond_spark.cuts.moving_cut._PROOF_TIMEOUT_S", 0.5)
    monkeypatch.setattr("millpond_spark.cuts.moving_cut._CATCH_UP_S", 0.5)
    monkeypatch.setattr(Tail, "add_end", lambda *_: None)
    refused = f"topic '{app_id}-s-changelog', partition 0 was not read up to its end within 0.5 s"
    with pytest.raises(SnapshotError, match=refused):
        follow()


def test_records_in_the_memory_of_the_driver_have_a_limit(
    app_id: str, follow: Callable[[], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """More of them end the job instead of its machine."""
    monkeypatch.setattr("millpond_spark.cuts.moving_cut._MOST_BYTES", 5)
    with pytest.raises(
        SnapshotError, match=rf"more than 0 MiB arrived .* in topic '{app_id}-s-changelog', partition 0\."
    ):
        follow()


@pytest.mark.long
def test_tables_have_what_spark_and_the_driver_read_later(
    broker: Broker,
    app_id: str,
    create_topic: CreateTopic,
    snapshot: Make,
    seed: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Records are written while Spark reads, once more while it reads those, and then the driver reads the rest."""
    pytest.importorskip("pyiceberg")
    rng = random.Random(seed)
    builders = {kind: BUILDERS[kind] for kind in ("buffer", "versioned", "window")}
    application = Application(broker.bootstrap_servers, app_id, create_topic("input", PARTITIONS), builders)
    application.write(rng, 3)

    def while_it_reads(*args: Any) -> Any:
        found = read_boundaries(*args)
        application.write(rng, 3)
        return found

    def before_the_driver_reads(cut: MovingCut, read: Any) -> Any:
        application.write(rng, 1, each=5)
        found = find(cut, read)
        assert found[1]
        return found

    find = MovingCut.find
    monkeypatch.setattr("millpond_spark.job.read_boundaries", while_it_reads)
    monkeypatch.setattr("millpond_spark.build.FOLLOWED", 100)
    monkeypatch.setattr(MovingCut, "find", before_the_driver_reads)
    monkeypatch.setattr(MovingCut, "_is_compacted", lambda *_: True)  # the topics keep all records to compare with
    made = snapshot(application, catalog=str(tmp_path / "tables"))
    for builder in builders.values():
        expected: list[Any] = []
        for number, records in application.committed(builder.name).items():
            expected += newest_rows(layout_of(builder), number, records)[0]
        batch = columns_of(builder, None).batch(expected).columns
        found = table(tmp_path / "tables", app_id, made.manifest.version, builder.name)
        assert sorted(map(repr, found)) == sorted(map(repr, batch.to_pylist())), builder.name
        ends = kafka.end_offsets(broker.bootstrap_servers, application.changelog(builder.name))
        assert {part.partition: part.offset for part in made.manifest.store(builder.name).parts} == ends
        assert made.records[builder.name] == application.keyed(builder.name, {})


@pytest.mark.long
def test_what_was_read_is_not_read_again(
    broker: Broker,
    app_id: str,
    create_topic: CreateTopic,
    snapshot: Make,
    spark: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A version whose records an executor has lost is not published: compaction may have removed some since."""
    application = Application(
        broker.bootstrap_servers, app_id, create_topic("input", PARTITIONS), {"key_value": BUILDERS["key_value"]}
    )
    application.write(random.Random(1), 1)

    def losing(cut: MovingCut, read: Any) -> Any:
        for each in spark.sparkContext._jsc.getPersistentRDDs().values():
            each.unpersist(True)
        return find(cut, read)

    find = MovingCut.find
    monkeypatch.setattr(MovingCut, "find", losing)
    monkeypatch.setattr(MovingCut, "_is_compacted", lambda *_: True)
    with pytest.raises(SnapshotError, match="an executor of Spark ended with records that it had read"):
        snapshot(application, catalog=str(tmp_path / "tables"))
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


@pytest.fixture(scope="module")
def cleaning_broker(own_brokers: type[OwnBroker]) -> Iterator[str]:
    """A broker that looks for logs to compact all the time."""
    with own_brokers(properties={"log.cleaner.backoff.ms": "100", "log.initial.task.delay.ms": "100"}) as broker:
        yield broker.bootstrap_servers


def values(servers: str, topic: str, key: str) -> list[bytes | None]:
    """Return the values of a key that a topic has."""
    return [row.value for row in kafka.read(servers, topic) if row.key == key.encode()]


def overwrite(servers: str, topics: Mapping[str, int], key: str, value: str) -> None:
    """Replace the value of a key in topics, by records with the given times, and wait until the one before is gone."""
    for topic, time_ms in topics.items():
        # Brokers compact what is before the newest segment.
        kafka.produce(servers, topic, [(key, value, time_ms, 0), *[("filler", FILLER, time_ms, 0)] * 8])
    for topic in topics:
        kafka.eventually(lambda: values(servers, topic, key) == [value.encode()], f"{topic} is compacted")  # noqa: B023


def rows(tables: Path, application: str, version: str, store: str) -> dict[str, str]:
    """Return the rows of a table by key, without the filler."""
    found = table(tables, application, version, store)
    return {row["key"]: row["value"] for row in found if row["key"] != "filler"}


def strings(name: str, **options: Any) -> StoreBuilder[Any, Any]:
    """Return a store of text."""
    return KeyValueStoreBuilder(name=name, key=serdes.String, value=serdes.String, timestamped=True, **options)


def test_keys_whose_records_are_removed_while_they_are_read_are_in_the_tables(
    cleaning_broker: str, app_id: str, snapshot: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether their time is now, a year ago or a year ahead, and where a user has set a lag, which is kept."""
    pytest.importorskip("pyiceberg")
    now_ms = int(time.time() * 1000)
    times = {"now": now_ms, "ahead": now_ms + YEAR_MS, "past": now_ms - YEAR_MS, "lagging": now_ms - YEAR_MS}
    kafka.create_topic(cleaning_broker, f"{app_id}-in", PARTITIONS)
    application = Application(cleaning_broker, app_id, f"{app_id}-in", {name: strings(name) for name in times})
    builder = mp.StreamsBuilder()
    builder.global_table(f"{app_id}-rates", key=mp.String, value=mp.String, store="rates")
    application.topology = with_stores(builder.build(), f"{app_id}-in", application.builders)
    kafka.create_topic(cleaning_broker, f"{app_id}-rates")
    times["rates"] = now_ms
    topics = {name: f"{app_id}-rates" if name == "rates" else application.changelog(name) for name in times}
    for name, time_ms in times.items():
        lag = {"min.compaction.lag.ms": str(HOUR_MS)} if name == "lagging" else {}
        kafka.alter_topic(cleaning_broker, topics[name], **(AGGRESSIVE | lag))
        kafka.produce(cleaning_broker, topics[name], [("k", "old", time_ms, 0), ("l", "x", time_ms, 0)])

    def while_it_reads(*args: Any) -> Any:
        found = read_boundaries(*args)
        overwrite(cleaning_broker, {topics[name]: time_ms for name, time_ms in times.items()}, "k", "new")
        return found

    monkeypatch.setattr("millpond_spark.job.read_boundaries", while_it_reads)
    version = snapshot(application, catalog=str(tmp_path / "tables")).manifest.version
    found = {name: rows(tmp_path / "tables", app_id, version, name) for name in times}
    assert found == {name: {"k": "new", "l": "x"} for name in times}
    kept = topic_configs(kafka.admin(cleaning_broker), [topics["lagging"]], 30)[topics["lagging"]]
    assert kept["min.compaction.lag.ms"] == str(HOUR_MS)


def test_version_that_may_lack_keys_is_refused_and_nothing_of_it_is_published(
    cleaning_broker: str, app_id: str, snapshot: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The changelog is an input that the application is behind in: the table of its offset is nowhere any more."""
    pytest.importorskip("pyiceberg")
    monkeypatch.setattr("millpond_spark.cuts.moving_cut._PROOF_TIMEOUT_S", 1.0)
    source, now_ms = f"{app_id}-in", int(time.time() * 1000)
    kafka.create_topic(cleaning_broker, source, PARTITIONS, AGGRESSIVE)
    kafka.produce(cleaning_broker, source, [("k", "old", now_ms, 0), ("l", "x", now_ms, 0)])
    application = Application(cleaning_broker, app_id, source, {"t": strings("t", source_topic=source)})
    kafka.commit_offsets(cleaning_broker, app_id, [TopicPartition(source, 0, 2)])
    overwrite(cleaning_broker, {source: now_ms}, "k", "new")
    tables, snapshots = tmp_path / "tables", tmp_path / "snapshots"
    refused = rf"the application is behind in topic '{source}', partition 0 \(its offset is 2\), and compaction"
    with pytest.raises(SnapshotError, match=refused):
        snapshot(application, catalog=str(tables))
    assert catalog.versions(open_location(str(tables)), app_id) == []
    assert versions.newest(open_location(str(snapshots)), app_id, now_ms) is None
    assert [path for path in [*tables.rglob("*"), *snapshots.rglob("*")] if path.is_file()] == []

    end = kafka.end_offsets(cleaning_broker, source)[0]
    kafka.commit_offsets(cleaning_broker, app_id, [TopicPartition(source, 0, end)])
    version = snapshot(application, catalog=str(tables)).manifest.version
    assert rows(tables, app_id, version, "t") == {"k": "new", "l": "x"}
