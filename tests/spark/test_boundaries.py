"""The stores and the end offsets of a snapshot: everything committed at one moment, and no unprocessed input."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from confluent_kafka import Producer, TopicPartition

import millpond as mp
from millpond import serdes
from millpond.errors import BrokerError, SnapshotError, TopicError
from millpond.runtime.config.model import Config
from millpond.runtime.kafka.admin import KafkaAdmin
from millpond.runtime.offsets.metadata import Partition
from millpond.snapshots.layouts import StoreKind, StoreLayout, layout_of
from millpond.state import KeyValueStoreBuilder, StoreBuilder, WindowStoreBuilder
from millpond.topology import Topology
from millpond.topology.processor import Processor
from millpond_spark.cuts.boundaries import Range, check_topics_unchanged, read_boundaries
from millpond_spark.stores import stores_of
from tests.conftest import CreateTopic
from tests.snapshots.changelogs import BUILDERS
from tests.support import kafka
from tests.support.broker import Broker


class _Idle(Processor):
    def process(self, record) -> None: ...


def store(name: str, **options) -> KeyValueStoreBuilder:
    """A key-value store."""
    return KeyValueStoreBuilder(name=name, key=serdes.Bytes, value=serdes.Bytes, **options)


def topology(*builders: StoreBuilder, source: str = "in") -> Topology:
    """A topology with one task per partition of `in`, with these stores."""
    made = Topology().add_source("source", source).add_processor("idle", _Idle, "source")
    for builder in builders:
        made.add_state_store(builder, "idle")
    return made


def config(app_id: str = "app", bootstrap_servers: str = "127.0.0.1:1") -> Config:
    """The configuration of an application."""
    return Config.load(None, flags={"application.id": app_id, "bootstrap.servers": bootstrap_servers})


def test_stores_without_a_changelog_are_left_out() -> None:
    """They are reported with the reason. The others, in-memory stores too, have the partitions that tasks restore."""
    window = WindowStoreBuilder(
        name="w", key=serdes.Bytes, value=serdes.Bytes, retention_ms=2000, window_size_ms=1000, persistent=False
    )
    made = topology(store("b"), store("a"), store("unlogged", logging=False), window, store("t", source_topic="in"))
    existing = {"in": 3, "app-a-changelog": 3, "app-b-changelog": 3, "app-w-changelog": 3}
    found = stores_of(made, existing, config())
    assert [(each.name, each.topic, each.partitions, each.is_input) for each in found.logged] == [
        ("a", "app-a-changelog", 3, False),
        ("b", "app-b-changelog", 3, False),
        ("t", "in", 3, True),
        ("w", "app-w-changelog", 3, False),
    ]
    assert found.skipped == {"unlogged": "has no changelog"}


class _Keep(Processor[Any, Any, None, None]):
    def process(self, record: Any) -> None:
        self.context.get_state_store("versions").put(record.key, record.value, record.timestamp)


def test_lru_stores_and_global_versioned_stores_are_left_out() -> None:
    """Also an LRU store that is global. The changelog of a store that is left out need not exist."""
    lru, versions = _global_table(max_entries=5), mp.StreamsBuilder()
    kept = mp.VersionedKeyValueStoreBuilder(
        name="versions", key=mp.String, value=mp.String, history_retention_ms=1, logging=False
    )
    versions.stream("in", key=mp.String, value=mp.String).group_by_key().count(store="counts")
    versions.add_global_store(kept, "rates", _Keep, key=mp.String, value=mp.String)
    existing = {"in": 3, "rates": 1, "app-counts-changelog": 3, "app-a-changelog": 3}
    found = stores_of(versions.build(), existing, config())
    assert [each.name for each in found.logged] == ["counts"]
    assert found.skipped == {"versions": "is a global store that a processor fills: every worker reads its topic"}
    recent = KeyValueStoreBuilder(name="recent", key=serdes.Bytes, value=serdes.Bytes, max_entries=5)
    assert stores_of(topology(store("a"), recent), existing, config()).skipped == {
        "recent": "is of a kind that snapshots do not cover"
    }
    with pytest.raises(SnapshotError, match="'rates' is a global store of a kind that snapshots do not cover"):
        stores_of(lru, existing, config())


@pytest.mark.parametrize("persistent", [True, False])
@pytest.mark.parametrize("kind", BUILDERS)
def test_every_kind_of_store_is_covered_wherever_it_is_kept(kind: str, persistent: bool) -> None:
    """Snapshots must cover each new kind of store."""
    builder = replace(BUILDERS[kind], persistent=persistent)
    found = stores_of(topology(builder), {"in": 3, f"app-{builder.name}-changelog": 3}, config())
    assert [(each.name, each.layout) for each in found.logged] == [(builder.name, layout_of(builder))]
    assert found.skipped == {}


def _global_table(**options: Any) -> Topology:
    builder = mp.StreamsBuilder()
    builder.stream("in", key=mp.String, value=mp.String).foreach(lambda key, value: None)
    builder.global_table("rates", store="rates", **({"key": mp.String, "value": mp.String} | options))
    return builder.build()


@pytest.mark.parametrize("persistent", [True, False])
def test_global_tables_are_covered_with_all_partitions_of_their_topic(persistent: bool) -> None:
    """The number of tasks does not matter."""
    pytest.importorskip("pyspark")
    found = stores_of(_global_table(persistent=persistent), {"in": 1, "rates": 5}, config())
    (store,) = found.logged
    assert (store.name, store.topic, store.partitions, store.is_input) == ("rates", "rates", 5, False)
    assert store.layout == StoreLayout(StoreKind.TIMESTAMPED_KEY_VALUE, is_global=True, serdes="String, String")
    assert store.serdes is not None
    assert found.skipped == {}


def test_global_tables_take_the_default_serdes() -> None:
    """They use the default serdes, as workers do."""
    pytest.importorskip("pyspark")
    flags: dict[str, object] = {"application.id": "app", "bootstrap.servers": "127.0.0.1:1"}
    given = Config.of({**flags, "default.key.serde": mp.String, "default.value.serde": mp.Long})
    explicit, defaults = (
        stores_of(_global_table(key=key, value=value), {"in": 1, "rates": 5}, given).logged[0].serdes
        for key, value in ((mp.String, mp.Long), (None, None))
    )
    assert explicit == defaults


def _connected() -> mp.Serde[str]:
    """A serde with a connection of its own."""
    connection = threading.Lock()
    return mp.Serde("Connected", lambda text: connection and text.encode(), bytes.decode)


@pytest.mark.parametrize(
    ("options", "settings", "reason"),
    [
        ({"timestamp": lambda value: 5}, {}, "is a global store with a timestamp extractor"),
        (
            {},
            {"default.timestamp.extractor": mp.WallclockTimestampExtractor()},
            "is a global store with a timestamp extractor",
        ),
        ({"value": _connected()}, {}, "is a global store whose serdes cannot be sent to Spark's executors"),
    ],
)
def test_global_tables_whose_rows_spark_cannot_compute_are_left_out(
    options: dict[str, Any], settings: dict[str, object], reason: str
) -> None:
    """They are reported with the reason."""
    pytest.importorskip("pyspark")
    given = Config.of({"application.id": "app", "bootstrap.servers": "127.0.0.1:1"} | settings)
    made = _global_table(**options)
    with pytest.raises(SnapshotError, match=f"store 'rates' {reason}: every worker reads its topic"):
        stores_of(made, {"in": 1, "rates": 5}, given)


@pytest.mark.parametrize(
    ("existing", "error", "told"),
    [
        ({}, TopicError, "source topic 'in' does not exist"),
        ({"in": 3}, TopicError, "changelog 'app-a-changelog' of store 'a' does not exist: check 'application.id'"),
        ({"in": 3, "app-a-changelog": 5}, TopicError, None),
    ],
)
def test_an_application_that_is_not_there_is_rejected(existing: dict, error: type, told: str | None) -> None:
    """One sentence that names what is missing."""
    if told is None:  # the tasks follow the changelog that exists, as workers do
        assert stores_of(topology(store("a")), existing | {"in": 7}, config()).logged[0].partitions == 5
        return
    with pytest.raises(error, match=told):
        stores_of(topology(store("a")), existing, config())


def test_an_application_without_state_is_rejected() -> None:
    """Its snapshot would be empty."""
    with pytest.raises(SnapshotError, match=r"no store that a snapshot could include; store 'x' has no changelog\.$"):
        stores_of(topology(store("x", logging=False)), {"in": 1}, config())


@pytest.fixture
def cluster(broker: Broker) -> Iterator[KafkaAdmin]:
    """An admin client of the broker."""
    yield KafkaAdmin(
        {"bootstrap.servers": broker.bootstrap_servers}, patience=timedelta(seconds=30), stopping=lambda: False
    )


def test_boundaries_are_what_is_committed(
    broker: Broker, cluster: KafkaAdmin, app_id: str, create_topic: CreateTopic, caplog: pytest.LogCaptureFixture
) -> None:
    """An open transaction is excluded; of an input that serves as the changelog, unprocessed records are excluded."""
    servers = broker.bootstrap_servers
    source = create_topic("input", partitions=3)
    changelog = f"{app_id}-a-changelog"
    kafka.create_topic(servers, changelog, 3)
    for topic in (source, changelog):
        kafka.produce(servers, topic, [(b"k", b"v", 1, number % 2) for number in range(10)])
    admin = kafka.admin(servers)  # kept: its futures are never answered once it is collected
    admin.delete_records([TopicPartition(changelog, 1, 2)])[TopicPartition(changelog, 1)].result(30)
    producer = Producer({"bootstrap.servers": servers, "transactional.id": app_id}, logger=kafka.log)
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(changelog, b"v", b"k", 0)
    producer.flush(30)
    kafka.commit_offsets(servers, app_id, [TopicPartition(source, 0, 3)])

    configuration = config(app_id, servers)
    made = topology(store("a"), store("t", source_topic=source), source=source)
    stores = stores_of(made, cluster.topics(), configuration)
    times = iter([1_000, 2_000])
    found = read_boundaries(cluster, configuration, stores.logged, lambda: next(times), cut_timeout_s=0.1)
    producer.abort_transaction(30)
    assert "tasks 0_0: no pause of some milliseconds between commits" in caplog.text
    assert found.as_of_ms == 1_000
    assert found.ranges == {
        Partition(changelog, 0): Range(0, 5), Partition(changelog, 1): Range(2, 5),
        Partition(changelog, 2): Range(0, 0),
        Partition(source, 0): Range(0, 3), Partition(source, 1): Range(0, 0), Partition(source, 2): Range(0, 0),
    }  # fmt: skip
    assert all(facts.id for facts in found.facts.values())


def test_global_tables_end_where_no_transaction_is_open_and_hold_nobody_up(
    broker: Broker, cluster: KafkaAdmin, app_id: str, create_topic: CreateTopic, caplog: pytest.LogCaptureFixture
) -> None:
    """Others write global topics at any time, so the job does not wait for a moment without a transaction."""
    pytest.importorskip("pyspark")
    servers = broker.bootstrap_servers
    source, rates = create_topic("input"), create_topic("rates", partitions=2)
    kafka.produce(servers, rates, [(b"k", b"v", 1, number % 2) for number in range(10)])
    producer = Producer({"bootstrap.servers": servers, "transactional.id": app_id}, logger=kafka.log)
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(rates, b"v", b"k", 0)
    producer.flush(30)
    builder = mp.StreamsBuilder()
    builder.stream(source, key=mp.String, value=mp.String).foreach(lambda key, value: None)
    builder.global_table(rates, key=mp.String, value=mp.String, store="rates")
    configuration = config(app_id, servers)
    stores = stores_of(builder.build(), cluster.topics(), configuration)
    found = read_boundaries(cluster, configuration, stores.logged, lambda: 1_000, cut_timeout_s=600)
    producer.abort_transaction(30)
    assert found.ranges == {Partition(rates, 0): Range(0, 5), Partition(rates, 1): Range(0, 5)}
    assert "without a pause" not in caplog.text


def test_a_changelog_that_is_made_again_meanwhile_spoils_the_snapshot(
    broker: Broker, cluster: KafkaAdmin, app_id: str, create_topic: CreateTopic
) -> None:
    """A snapshot is also dropped when reading takes longer than the changelog keeps deletions."""
    servers, changelog = broker.bootstrap_servers, f"{app_id}-a-changelog"
    source = create_topic("input")
    settings = {"cleanup.policy": "compact", "delete.retention.ms": "60000"}
    kafka.create_topic(servers, changelog, 1, settings)
    configuration = config(app_id, servers)
    stores = stores_of(topology(store("a"), source=source), cluster.topics(), configuration)
    found = read_boundaries(cluster, configuration, stores.logged, lambda: 1_000)
    check_topics_unchanged(cluster, found, 60_000)
    with pytest.raises(SnapshotError, match="keeps deletions for 60 s only"):
        check_topics_unchanged(cluster, found, 62_000)
    # Rows of a previous version need all deletions since then, and not only those while it was read.
    check_topics_unchanged(cluster, found, 60_000, {changelog: 500})
    with pytest.raises(SnapshotError, match=r"the previous snapshot is 61 s old now, .* deletions for 60 s only"):
        check_topics_unchanged(cluster, found, 60_000, {changelog: -1_000})
    kafka.delete_topics(servers, [changelog])
    kafka.eventually(lambda: changelog not in kafka.topic_names(servers, changelog), "the changelog is gone")
    kafka.create_topic(servers, changelog, 1, settings)
    with pytest.raises(SnapshotError, match="was deleted and created again"):
        check_topics_unchanged(cluster, found, 2_000)


def test_brokers_that_do_not_answer_are_an_error() -> None:
    """The error is raised within the timeout."""
    nobody = KafkaAdmin({"bootstrap.servers": "127.0.0.1:1"}, patience=timedelta(seconds=0.1), stopping=lambda: False)
    with pytest.raises(BrokerError, match=r"no answer from Kafka at '127\.0\.0\.1:1'"):
        nobody.topics()
