"""Changelogs of windows: brokers delete nothing from them by the wall clock, and workers delete what has expired."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import Future
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from confluent_kafka import Consumer, TopicPartition

import millpond as mp
from millpond.runtime.offsets.metadata import OffsetMetadata, Partition
from millpond.runtime.topics import window_changelogs
from millpond.runtime.topics.identity import topic_configs
from millpond.runtime.topics.plan import Plan, make_plan
from millpond.runtime.topics.window_changelogs import (
    ExpiredRecords,
    keep_records,
    missing_windows,
    without_limit,
)
from millpond.topology import TaskId
from tests.runtime.memory_kafka import Kafka
from tests.runtime.running import Running
from tests.runtime.worker_parts import Parts
from tests.support import kafka
from tests.support.broker import OwnBroker

HOUR_MS, DAY_MS = 3_600_000, 86_400_000
NOW_MS = 400 * DAY_MS
LOG = "app-counts-changelog"


def _counting(source: str = "in", **options: Any) -> mp.Topology:
    builder = mp.StreamsBuilder()
    stream = builder.stream(source, key=mp.String, value=mp.String).group_by_key()
    windows = mp.TimeWindows(timedelta(hours=1))
    counts = stream.windowed_by(windows).count(store="counts", retention=timedelta(hours=2), **options)
    counts.to_stream().map(lambda key, count: (key.key, count)).to("out", key=mp.String, value=mp.Long)
    stream.count(store="totals")
    return builder.build()


def _plan(**options: Any) -> Plan:
    return make_plan(_counting(**options), {"in": 1, "out": 1}, "app")


class _Cluster:
    """A cluster with one topic, whose records have the given timestamps."""

    def __init__(self, retention_ms: int = 26 * HOUR_MS, timestamps: Collection[int] = ()) -> None:
        self.config = {"cleanup.policy": "compact,delete", "retention.ms": str(retention_ms)}
        self.timestamps = list(timestamps)
        self.error = ""
        self.deleted = 0

    def configs(self, topics: Collection[str]) -> Mapping[str, Mapping[str, str]]:
        return {each: dict(self.config) for each in topics}

    def set_configs(self, values: Mapping[str, Mapping[str, str]]) -> Mapping[str, str]:
        if self.error:
            return dict.fromkeys(values, self.error)
        for changes in values.values():
            self.config.update(changes)
        return {}

    def offsets_at(self, times: Mapping[Partition, int]) -> Mapping[Partition, int | None]:
        return {
            each: next((offset for offset, found in enumerate(self.timestamps) if found >= time), None)
            for each, time in times.items()
        }

    def delete_before(self, offsets: Mapping[Partition, int]) -> Mapping[Partition, str]:
        if self.error:
            return dict.fromkeys(offsets, self.error)
        self.deleted = offsets.get(Partition(LOG, 0), self.deleted)
        return {}


def test_new_changelogs_of_windows_have_no_time_limit() -> None:
    """A retention that the store has for its topic is kept, and other topics stay as they are."""
    plan = _plan()
    made = {each.name: each.config for each in without_limit(plan.internal, window_changelogs.window_changelogs(plan))}
    assert made[LOG]["retention.ms"] == "-1"
    assert "retention.ms" not in made["app-totals-changelog"]
    own = _plan(logging={"retention.ms": "5"})
    made = {each.name: each.config for each in without_limit(own.internal, window_changelogs.window_changelogs(own))}
    assert made[LOG]["retention.ms"] == "5"


def test_changelogs_of_older_versions_lose_their_limit(caplog: pytest.LogCaptureFixture) -> None:
    """The former limit is returned, since brokers may have applied it."""
    caplog.set_level(logging.INFO)
    found = window_changelogs.window_changelogs(_plan())
    cluster = _Cluster()
    assert keep_records(found, {"in"}, cluster) == {}
    assert keep_records(found, {LOG}, cluster) == {LOG: 26 * HOUR_MS}
    assert cluster.config["retention.ms"] == "-1"
    assert [each.levelname for each in caplog.records] == ["INFO"]
    assert keep_records(found, {LOG}, cluster) == {}


def test_limit_that_cannot_be_removed_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    """The worker goes on, and says which right it needs."""
    cluster = _Cluster()
    cluster.error = "Topic authorization failed"
    assert keep_records(window_changelogs.window_changelogs(_plan()), {LOG}, cluster) == {LOG: 26 * HOUR_MS}
    assert "(Topic authorization failed)" in caplog.text
    assert "Grant 'AlterConfigs'" in caplog.text


def test_limit_is_removed_when_a_broker_answers_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """One request without an answer is no reason to go on with the limit."""
    cluster = _Cluster()
    answers = iter([{LOG: "Timed out"}])
    given = cluster.set_configs
    monkeypatch.setattr(cluster, "set_configs", lambda values: next(answers, None) or given(values))
    keep_records(window_changelogs.window_changelogs(_plan()), {LOG}, cluster)
    assert cluster.config["retention.ms"] == "-1"


def test_limit_of_the_store_itself_is_kept() -> None:
    """It is the application's own decision, so it is known to the restore only."""
    cluster = _Cluster(retention_ms=5)
    assert keep_records(window_changelogs.window_changelogs(_plan(logging={"retention.ms": "5"})), {LOG}, cluster) == {
        LOG: 5
    }
    assert cluster.config["retention.ms"] == "5"


@pytest.mark.parametrize(
    ("changes", "missing"),
    [
        ({}, (NOW_MS - 102 * HOUR_MS, NOW_MS - 100 * HOUR_MS)),
        ({"stream_time": NOW_MS - 24 * HOUR_MS}, None),
        ({"stream_time": NOW_MS - 25 * HOUR_MS}, (NOW_MS - 27 * HOUR_MS, NOW_MS - 26 * HOUR_MS)),
        ({"stream_time": -1}, None),
        ({"limit_ms": None}, None),
        ({"first": 0}, None),
        ({"whole": False}, None),
    ],
)
def test_windows_are_missing_only_where_brokers_deleted_them(
    changes: dict[str, Any], missing: tuple[int, int] | None
) -> None:
    """Brokers have deleted what is older than the limit; the store needs what its retention covers."""
    facts = {
        "stream_time": NOW_MS - 100 * HOUR_MS,
        "retention_ms": 2 * HOUR_MS,
        "limit_ms": 26 * HOUR_MS,
        "first": 7,
        "whole": True,
        "now_ms": NOW_MS,
    }
    assert missing_windows(**{**facts, **changes}) == missing


@pytest.fixture
def passes(monkeypatch: pytest.MonkeyPatch) -> Callable[[_Cluster], Callable[..., None]]:
    """Makes a function that completes a commit at a stream time, with a pass after each commit."""
    monkeypatch.setattr(window_changelogs, "INTERVAL_S", 0.0)
    plan = _plan()

    def made(cluster: _Cluster) -> Callable[..., None]:
        def run(job: Callable[[], None]) -> Future[None]:
            job()
            done: Future[None] = Future()
            done.set_result(None)
            return done

        expired = ExpiredRecords(plan, window_changelogs.window_changelogs(plan), cluster, run)

        def commit(stream_time: int, observed: int | None = None) -> None:
            metadata = msgspec.msgpack.encode({"observed_stream_time": stream_time if observed is None else observed})
            rows = [(SimpleNamespace(name="counts", partition=0), None, metadata)]
            expired.completed(rows, {Partition("in", 0): (1, OffsetMetadata(partition_time=stream_time))})

        return commit

    return made


def test_expired_records_are_deleted_by_stream_time(passes: Any) -> None:
    """A pass deletes what had expired at the pass before; the wall clock has no part in it."""
    cluster = _Cluster(timestamps=[HOUR_MS, 2 * HOUR_MS, 30 * HOUR_MS])
    commit = passes(cluster)
    commit(27 * HOUR_MS)
    assert cluster.deleted == 0
    commit(28 * HOUR_MS)
    assert cluster.deleted == 0  # the first record is as old as the limit
    commit(28 * HOUR_MS)
    assert cluster.deleted == 1
    commit(400 * HOUR_MS)
    commit(400 * HOUR_MS)
    assert cluster.deleted == 1  # no record is as young as that: the newest ones stay


def test_store_behind_or_ahead_of_its_task_keeps_its_records(passes: Any) -> None:
    """Records may pass by a store, and a processor may put windows of the future."""
    cluster = _Cluster(timestamps=[HOUR_MS, 30 * HOUR_MS])
    commit = passes(cluster)
    for stream_time, observed in ((28 * HOUR_MS, 3 * HOUR_MS), (3 * HOUR_MS, 28 * HOUR_MS), (3, 3)):
        commit(stream_time, observed)
    assert cluster.deleted == 0


def test_deletion_without_the_right_is_reported_once(passes: Any, caplog: pytest.LogCaptureFixture) -> None:
    """The rows stay, so nothing is lost but space."""
    cluster = _Cluster(timestamps=[HOUR_MS, 30 * HOUR_MS])
    cluster.error = "Topic authorization failed"
    commit = passes(cluster)
    for _ in range(4):
        commit(29 * HOUR_MS)
    assert [each.levelname for each in caplog.records] == ["WARNING"]
    assert "Grant 'Delete'" in caplog.text


@pytest.mark.parametrize("limit_ms", [26 * HOUR_MS, None])
def test_restored_store_that_lacks_windows_is_reported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, limit_ms: int | None
) -> None:
    """The log names the store, the times and the cure, and a metric is 1."""
    log, brokers, topics = Partition(LOG, 0), Kafka(), {"in": 1, "out": 1}
    for timestamp in range(3):
        brokers.append("in", str(timestamp), "x", DAY_MS + timestamp)
    worker = Parts(brokers, _counting(), tmp_path / "one", topics)
    worker.own(TaskId(0, 0))
    worker.process()
    worker.commit()
    worker.close()
    brokers.starts[log] = 2
    worker = Parts(brokers, _counting(), tmp_path / "two", topics)
    worker.executor.stores.time_limits = {} if limit_ms is None else {LOG: limit_ms}
    worker.own(TaskId(0, 0))
    assert worker.executor.held[TaskId(0, 0)].stores["counts"].restored_incomplete == (limit_ms is not None)
    said = "store counts partition 0: the restored store may lack windows from 1970-01-01T22:00:00.002Z to 1970"
    assert (said in caplog.text) is (limit_ms is not None)
    worker.close()


@pytest.mark.parametrize("sessions", [False, True])
def test_incomplete_store_is_known_until_its_windows_expire(tmp_path: Path, sessions: bool) -> None:
    """A restart with the rows on disk keeps it; it ends when the missing windows are older than the retention."""
    builder = mp.StreamsBuilder()
    stream = builder.stream("in", key=mp.String, value=mp.String).group_by_key()
    hour = timedelta(hours=1)
    retention = timedelta(hours=2)
    windowed: Any = (
        stream.windowed_by(mp.SessionWindows(hour)) if sessions else stream.windowed_by(mp.TimeWindows(hour))
    )
    windowed.count(store="counts", retention=retention)
    application, topics, task = builder.build(), {"in": 1}, TaskId(0, 0)
    log, brokers = Partition(LOG, 0), Kafka()

    def worker(directory: str, limits: dict[str, int]) -> tuple[Parts, Any]:
        made = Parts(brokers, application, tmp_path / directory, topics)
        made.executor.stores.time_limits = limits
        made.own(task)
        return made, made.executor.held[task].stores["counts"]

    def process(made: Parts, timestamp: int) -> None:
        brokers.append("in", str(timestamp), "x", timestamp)
        made.process()
        made.commit()

    first, store = worker("one", {})
    for hours in (0, 1, 2):
        process(first, DAY_MS + hours * HOUR_MS)
    assert not store.restored_incomplete
    first.close()
    brokers.starts[log] = 1
    second, store = worker("two", {LOG: 26 * HOUR_MS})
    assert store.restored_incomplete
    process(second, DAY_MS + 3 * HOUR_MS)
    second.close()
    third, store = worker("two", {})
    assert store.restored_incomplete
    store.revert()
    assert store.restored_incomplete
    process(third, DAY_MS + 10 * HOUR_MS)
    assert not store.restored_incomplete
    third.close()


@pytest.fixture
def deleting_broker(own_brokers: type[OwnBroker]) -> Iterator[str]:
    """A broker that checks the retention of topics all the time."""
    # The thread that compacts is also the one that deletes from topics with both policies.
    properties = {"log.initial.task.delay.ms": "100", "log.cleaner.backoff.ms": "100"}
    with own_brokers(properties=properties) as broker:
        yield broker.bootstrap_servers


def _first_offset(servers: str, topic: str) -> int:
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "unused"}, logger=kafka.log)
    try:
        return int(consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=60)[0])
    finally:
        consumer.close()


def test_windows_of_the_past_survive_the_loss_of_a_disk(
    deleting_broker: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Brokers delete by the wall clock, and the data is of last spring."""
    servers, march = deleting_broker, int(datetime(2025, 3, 1, tzinfo=UTC).timestamp() * 1000)
    monkeypatch.setattr(window_changelogs, "INTERVAL_S", 0.0)
    for topic, settings in (
        ("in", {}),
        ("out", {}),
        ("short", {"cleanup.policy": "compact,delete", "retention.ms": "1000"}),
    ):
        kafka.create_topic(servers, topic, 1, settings)

    def send(topic: str, keys: str, timestamp: int) -> None:
        kafka.produce(servers, topic, [(key, "x", timestamp) for key in keys])

    def results() -> dict[str, int]:
        return {row.key.decode(): int.from_bytes(row.value, "big") for row in kafka.read(servers, "out")}

    def deleted() -> int:
        return _first_offset(servers, LOG)

    def run(directory: str, work: Callable[[Running], None]) -> None:
        with Running(_counting(), servers, "app", tmp_path / directory) as running:
            running.wait_running()
            work(running)

    def first(running: Running) -> None:
        send("in", "abc", march)
        running.wait(lambda: results() == {"a": 1, "b": 1, "c": 1}, "the first results")

    def second(running: Running) -> None:
        send("in", "abc", march + 1)
        running.wait(lambda: results() == {"a": 2, "b": 2, "c": 2}, "the windows are still there")
        for hour in range(26, 31):  # the first windows expire
            send("in", "d", march + hour * HOUR_MS)
            running.wait(lambda: len(kafka.read(servers, "out")) == 6 + hour - 25, "a result")  # noqa: B023
        running.wait(deleted, "the worker has deleted what has expired")

    def third(running: Running) -> None:
        send("in", "d", march + 30 * HOUR_MS)
        running.wait(lambda: results()["d"] == 2, "the newest window is still there")

    run("one", first)
    send("short", "a", march)
    kafka.eventually(lambda: _first_offset(servers, "short") == 1, "the broker has deleted by time")
    assert not deleted()
    run("two", second)
    assert deleted() == 6
    kafka.alter_topic(servers, LOG, **{"retention.ms": str(10_000 * DAY_MS)})  # as an older version made it
    run("three", third)
    settings = topic_configs(kafka.admin(servers), [LOG], 10)[LOG]
    assert settings["retention.ms"] == "-1"
