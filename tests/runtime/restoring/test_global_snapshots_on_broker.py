"""On a real broker: tasks join with a global table that comes from a snapshot."""

from __future__ import annotations

import logging
import threading
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import millpond as mp
from millpond.runtime.kafka.admin import KafkaAdmin
from millpond.runtime.restoring import snapshot_restorer as bootstrap_module
from millpond.runtime.states import WorkerState
from millpond.snapshots import versions
from millpond.snapshots.locations import LocalDirectory
from tests.conftest import CreateTopic
from tests.runtime.restoring.global_scene import LAYOUT
from tests.runtime.running import Running
from tests.snapshots.reference import write_snapshot
from tests.support import kafka as kafka_support
from tests.support.broker import Broker

pytestmark = pytest.mark.usefixtures("no_overhead")


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
    """The worker is alive and can be stopped while the location does not answer, and joins when it answers."""
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
    monkeypatch.setattr(bootstrap_module, "_FETCH_TIMEOUT_S", 600.0)
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
