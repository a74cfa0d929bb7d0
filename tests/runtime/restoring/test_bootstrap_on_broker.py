"""On a real broker: a worker that lost its disk restores from a snapshot, and its output is correct."""

from __future__ import annotations

import logging
import shutil
import time
from collections import Counter
from datetime import timedelta

import pytest

import millpond as mp
from millpond.runtime.kafka.admin import KafkaAdmin
from millpond.runtime.restoring import snapshot_choice
from millpond.snapshots import versions
from millpond.snapshots.layouts import layout_of
from millpond.snapshots.locations import open_location
from tests.many_workers.fleet import Fleet
from tests.runtime.running import GUARANTEES, Running
from tests.snapshots.reference import write_snapshot
from tests.support import kafka

PARTITIONS = 2
KEYS = 50
WINDOW_MS = 10_000
#: Of these days: the broker deletes older records from the changelogs of windows.
BEGIN_MS = int(time.time() * 1000) // WINDOW_MS * WINDOW_MS - 600_000


def _topology(source, totals, finals, *, persistent=True):
    builder = mp.StreamsBuilder()
    grouped = builder.stream(source, key=mp.String, value=mp.String).group_by_key()
    grouped.count(store="totals", persistent=persistent).to_stream().to(totals, key=mp.String, value=mp.Long)
    windows = mp.TimeWindows(timedelta(milliseconds=WINDOW_MS), grace=timedelta(0))
    per_window = grouped.windowed_by(windows).count(store="windows")
    final = per_window.suppress(mp.until_window_closes())
    final.to_stream().map(lambda key, value: (f"{key.key}@{key.start_ms}", value)).to(
        finals, key=mp.String, value=mp.Long
    )
    return builder.build()


def _records(first, count):
    """Records 100 ms apart in event time, so that windows close and expire."""
    return [
        (f"key-{number % KEYS}", b"x", BEGIN_MS + number * 100, number % PARTITIONS)
        for number in range(first, first + count)
    ]


def _snapshot(servers, app_id, topology, location):
    """Take a snapshot of all changelogs."""
    cluster = KafkaAdmin({"bootstrap.servers": servers}, patience=timedelta(seconds=30), stopping=lambda: False)
    now_ms = int(time.time() * 1000)
    stores = {}
    for part in topology.subtopologies():
        for builder in part.stores:
            topic = f"{app_id}-{builder.name}-changelog"
            kafka.settle(servers, topic)
            ends = kafka.end_offsets(servers, topic)
            changelogs = {
                partition: (
                    [
                        (row.key, row.value, row.timestamp, list(row.headers) or None)
                        for row in kafka.read(servers, topic)
                        if row.partition == partition and row.offset < end
                    ],
                    end,
                )
                for partition, end in ends.items()
            }
            stores[builder.name] = (layout_of(builder), topic, cluster.facts([topic])[topic].id, changelogs)
    assert len(stores) == 3
    return write_snapshot(location, app_id, versions.new_version(now_ms), stores, as_of_ms=now_ms, rows_per_file=20)


def _newest(servers, topic):
    return {row.key.decode(): int.from_bytes(row.value, "big") for row in kafka.read(servers, topic)}


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_worker_that_lost_its_disk_restores_from_a_snapshot(
    broker, create_topic, app_id, tmp_path, guarantee, monkeypatch, caplog
):
    """Every store, with windows, suppressed results and a store in memory; counts continue."""
    monkeypatch.setattr(snapshot_choice, "OVERHEAD_S", 0.0)
    caplog.set_level(logging.INFO)
    servers = broker.bootstrap_servers
    source, totals, finals = create_topic("in", PARTITIONS), create_topic("totals", 1), create_topic("finals", 1)
    topology = _topology(source, totals, finals, persistent=guarantee == "exactly_once")
    settings = {
        "processing.guarantee": guarantee,
        "bootstrap.location": str(tmp_path / "snapshots"),
        "statestore.cache.max.bytes": 0,
    }
    state = tmp_path / "state"
    sent = Counter()

    def send_and_count(count):
        first = sum(sent.values())
        records = _records(first, count)
        sent.update(key for key, *_ in records)
        kafka.produce(servers, source, records)
        kafka.eventually(lambda: _newest(servers, totals) == sent, "all is counted", 40)

    with Running(topology, servers, app_id, state, settings):
        send_and_count(2_000)
    manifest = _snapshot(servers, app_id, topology, open_location(settings["bootstrap.location"]))
    assert sum(part.rows for part in manifest.store("totals").parts) == KEYS
    with Running(topology, servers, app_id, state, settings):
        send_and_count(500)
    shutil.rmtree(state)
    caplog.clear()
    with Running(topology, servers, app_id, state, settings) as running:
        running.wait_running()
        for store in ("totals", "windows"):
            for partition in range(PARTITIONS):
                assert f"store {store} partition {partition}: ingested" in caplog.text
        send_and_count(500)
    assert "cannot be used" not in caplog.text
    # One result of each window that is closed, and the right one.
    window_counts = Counter(
        f"{key}@{timestamp // WINDOW_MS * WINDOW_MS}" for key, _, timestamp, _ in _records(0, 3_000)
    )
    results = kafka.read(servers, finals, settled=True)
    found = {row.key.decode(): int.from_bytes(row.value, "big") for row in results}
    last = max(timestamp for _, _, timestamp, _ in _records(0, 3_000)) // WINDOW_MS * WINDOW_MS
    assert found == {key: count for key, count in window_counts.items() if int(key.split("@")[1]) < last}
    if guarantee == "exactly_once":
        assert len(results) == len(found)
        counts = Counter((row.key, row.value) for row in kafka.read(servers, totals, settled=True))
        assert max(counts.values()) == 1
        assert len(counts) == 3_000


def test_new_worker_warms_up_from_a_snapshot(broker, create_topic, app_id, tmp_path, monkeypatch, caplog, processes):
    """Its copies are restored from the snapshot, tasks move to it during input, and no count is lost or doubled."""
    monkeypatch.setattr(snapshot_choice, "OVERHEAD_S", 0.0)
    caplog.set_level(logging.INFO)
    servers = broker.bootstrap_servers
    source, totals, finals = create_topic("in", PARTITIONS), create_topic("totals", 1), create_topic("finals", 1)
    location = str(tmp_path / "snapshots")
    settings = {
        "processing.guarantee": "exactly_once",
        "bootstrap.location": location,
        "statestore.cache.max.bytes": 0,
        "acceptable.recovery.lag": 50,
    }
    sent = Counter()

    def send(count):
        records = _records(sum(sent.values()), count)
        sent.update(key for key, *_ in records)
        kafka.produce(servers, source, records)

    def counted():
        return _newest(servers, totals) == sent

    with Fleet(lambda: _topology(source, totals, finals), servers, app_id, tmp_path, settings) as fleet:
        fleet.start("w0")
        fleet.wait_shared(PARTITIONS)
        send(3_000)
        fleet.wait(counted, "all is counted by one")
        _snapshot(servers, app_id, _topology(source, totals, finals), open_location(location))
        send(200)
        caplog.clear()
        fleet.start("w1")
        send(200)
        fleet.wait_shared(PARTITIONS)
        send(200)
        fleet.wait(counted, "all is counted by two")
    assert len([each for each in caplog.messages if "ingested" in each]) >= 3
    counts = Counter((row.key, row.value) for row in kafka.read(servers, totals, settled=True))
    assert max(counts.values()) == 1
    assert len(counts) == sum(sent.values())
