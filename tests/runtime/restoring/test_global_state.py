"""Global stores on topics that were recreated, that lost records, or that were not read for days."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import TopicPartition

import millpond as mp
from millpond.runtime.commit.pipeline import CommitFailed
from millpond.runtime.config.model import Config
from millpond.runtime.offsets import completeness
from millpond.runtime.offsets.metadata import Partition
from millpond.runtime.restoring.global_stores import GlobalStores
from millpond.runtime.worker.assembly import _environment
from millpond.state import StateFile
from tests.conftest import CreateTopic
from tests.runtime.memory_kafka import Consumer, Kafka, Record
from tests.runtime.running import Running
from tests.support import kafka as kafka_support
from tests.support.broker import Broker

FIRST, SECOND = Partition("rates", 0), Partition("rates", 1)
DAY_MS = 86_400_000


class _Globals:
    """The global store of one worker, on disk."""

    def __init__(self, kafka: Kafka, directory: Path) -> None:
        builder = mp.StreamsBuilder()
        builder.global_table("rates", key=mp.String, value=mp.String, store="rates")
        topology = builder.build()
        config = Config.of({"application.id": "app", "bootstrap.servers": "memory:1", "state.dir": directory})
        cluster: Any = kafka
        self.ahead_ms = 0
        environment = replace(
            _environment(topology, config, cluster), now_ms=lambda: int(time.time() * 1000) + self.ahead_ms
        )
        self.file = StateFile(directory)
        consumer: Any = Consumer(kafka)
        self.consumer: Consumer = consumer
        self.stores = GlobalStores(
            topology.global_stores, {"rates": 2}, environment, lambda _: self.file, consumer, cluster
        )

    def create(self) -> _Globals:
        self.stores.create()
        return self

    def read(self) -> None:
        """Apply new records and the ends of the partitions."""
        for partition, messages, end in self.consumer.read():
            if messages:
                self.stores.apply(partition, messages)
            self.stores.reached_end(partition, end)

    def rows(self) -> dict[str, str]:
        """Return the rows that tasks see."""
        store = self.stores.by_name()["rates"]
        return {key: value.value for key, value in store.all()}

    def close(self) -> None:
        self.stores.close()
        self.file.close()


Start = Callable[..., _Globals]


@pytest.fixture
def kafka() -> Kafka:
    """Two keys, in two partitions."""
    made = Kafka()
    made.append("rates", "a", "1")
    made.append("rates", "b", "1", partition=1)
    return made


@pytest.fixture
def start(kafka: Kafka, tmp_path: Path) -> Iterator[Start]:
    """Return a function that starts a worker's global store, after the end of the previous one."""
    open_now: list[_Globals] = []

    def starting(ahead_ms: int = 0) -> _Globals:
        for each in open_now:
            each.close()
        made = _Globals(kafka, tmp_path)
        made.ahead_ms = ahead_ms
        open_now[:] = [made]
        return made.create()

    yield starting
    for each in open_now:
        each.close()


def test_store_continues_from_the_state_file(kafka: Kafka, start: Start) -> None:
    """No record is read twice while the topic is the same."""
    start().read()
    kafka.append("rates", "c", "1")
    again = start()
    assert again.consumer.positions == {FIRST: 1, SECOND: 1}
    again.read()
    assert again.rows() == {"a": "1", "b": "1", "c": "1"}


@pytest.mark.parametrize("records", [0, 1, 4])
def test_recreated_topic_replaces_every_row(kafka: Kafka, start: Start, records: int) -> None:
    """However long the new topic is: a worker without local rows has no rows of the old topic either."""
    start().read()
    kafka.remake("rates", "other")
    for each in range(records):
        kafka.append("rates", f"new-{each}", "1")
    again = start()
    again.read()
    assert again.rows() == {f"new-{each}": "1" for each in range(records)}


def test_rows_older_than_delete_retention_are_rebuilt(kafka: Kafka, start: Start) -> None:
    """The topic may have lost the deletion of a key."""
    start().read()
    kafka.logs[FIRST][0].stable = False
    kafka.append("rates", "c", "1")
    assert start(ahead_ms=DAY_MS // 2).rows().keys() == {"a", "b"}
    again = start(ahead_ms=2 * DAY_MS)
    again.read()
    assert again.rows() == {"b": "1", "c": "1"}


def test_lost_position_rebuilds_the_store_that_tasks_hold(kafka: Kafka, start: Start) -> None:
    """Tasks wait until it is complete, and their store object stays open."""
    worker = start()
    worker.read()
    held = worker.stores.by_name()["rates"]
    kafka.remake("rates", "other")
    kafka.append("rates", "new", "1")
    updater = worker.stores.of_topic("rates")
    assert updater is not None
    with pytest.raises(CommitFailed, match="no longer has the position"):
        worker.stores.rebuild(updater, "no longer has the position")
    assert worker.stores.by_name()["rates"] is held
    assert held.is_open
    assert worker.stores.behind == {FIRST, SECOND}
    assert worker.consumer.positions == {FIRST: 0, SECOND: 0}
    worker.read()
    assert worker.stores.behind == set()
    assert worker.rows() == {"new": "1"}


def test_worker_frozen_past_delete_retention_rebuilds_the_store(kafka: Kafka, start: Start) -> None:
    """It held the rows but read nothing; a worker that gets answers from brokers continues."""
    worker = start()
    worker.read()
    kafka.logs[FIRST].append(Record(b"c", b"1", 1, stable=True))
    worker.ahead_ms = 2 * DAY_MS
    with pytest.raises(CommitFailed, match="not read for so long"):
        worker.read()
    worker.read()
    assert worker.rows() == {"a": "1", "b": "1", "c": "1"}


def test_records_polled_during_a_wait_for_a_commit_are_read_again(kafka: Kafka, start: Start) -> None:
    """A wait for a commit polls the consumer and drops the records; so the store reads them again."""
    worker = start()
    worker.read()
    kafka.append("rates", "c", "1")
    assert any(messages for _, messages, _ in worker.consumer.read())
    worker.stores.reread()
    worker.read()
    assert worker.rows() == {"a": "1", "b": "1", "c": "1"}


def test_idle_store_keeps_its_rows_young(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """Answers of brokers update the time on disk, although no row has changed."""
    worker = start()
    worker.read()
    before = worker.file.provenance("rates", 0)
    monkeypatch.setattr(completeness.time, "time", lambda: time.monotonic() + 2e9)
    for _ in range(2):
        worker.stores.look_at_ends()
    after = worker.file.provenance("rates", 0)
    assert before is not None
    assert after is not None
    assert after.as_of_ms > before.as_of_ms + 600_000


def test_running_tasks_join_with_the_rebuilt_store(
    broker: Broker, create_topic: CreateTopic, app_id: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """On a real broker: the position no longer exists, tasks wait until the store is complete, and use it again."""
    servers = broker.bootstrap_servers
    source, rates, target = create_topic("in"), create_topic("rates"), create_topic("out")
    builder = mp.StreamsBuilder()
    table = builder.global_table(rates, key=mp.String, value=mp.String, store="rates")
    builder.stream(source, key=mp.String, value=mp.String).join(
        table, lambda value, rate: f"{value} {rate}", on=lambda key, _: key, value=mp.String
    ).to(target, key=mp.String, value=mp.String)
    kafka_support.produce(servers, rates, [("a", "1"), ("b", "2")])
    settings = {"processing.guarantee": "exactly_once"}
    with Running(builder.build(), servers, app_id, tmp_path, settings) as running:
        kafka_support.produce(servers, source, [("a", "x")])
        running.wait(lambda: len(kafka_support.read(servers, target)) == 1, "the first is joined")
        worker = running.worker
        beyond = TopicPartition(rates, 0, 99)
        worker.call(lambda: worker._parts.assembly.consumer.seek(beyond)).result(60)
        running.wait(lambda: worker.metrics.recoveries, "the tasks go back")
        kafka_support.produce(servers, source, [("b", "y")])
        running.wait(lambda: len(kafka_support.read(servers, target)) == 2, "the second is joined")
    assert [row.value for row in kafka_support.read(servers, target)] == [b"x 1", b"y 2"]
    assert "rebuilding the store" in caplog.text
