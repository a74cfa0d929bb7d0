"""A running application, a snapshot of it, and the command line."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import _here, application, millpond  # noqa: F401  (fixtures)
from tests.conftest import CreateTopic
from tests.inspection import applications
from tests.inspection.applications import PARTITIONS, records, topology
from tests.runtime.running import Running, config
from tests.support import kafka
from tests.support.broker import Broker

VERSION = "20260101T000000Z-00000a"
LATER = "20260102T000000Z-00000b"
APP = "tests.inspection.applications:application"


class Stage:
    """One application: its topics, its worker, its snapshots."""

    def __init__(self, servers: str, app_id: str, source: str, directory: Path) -> None:
        self.servers, self.app_id, self.source = servers, app_id, source
        self.directory = directory
        self.location = directory / "snapshots"
        self.state = directory / "state"
        self.topology = topology(source)
        self.produced = 0

    def produce(self, count: int) -> None:
        """Send more records."""
        kafka.produce(self.servers, self.source, records(count, self.produced))
        self.produced += count

    def running(self, **settings: Any) -> Running:
        """Return a worker to start."""
        return Running(
            self.topology,
            self.servers,
            self.app_id,
            self.state,
            {"http.port": 0, "processing.guarantee": "exactly_once", **settings},
        )

    def await_committed(self, running: Running) -> None:
        """Wait until all records are committed."""
        running.wait_running()
        ends = kafka.end_offsets(self.servers, self.source)

        def committed() -> bool:
            found = kafka.committed_offsets(self.servers, self.app_id, self.source)
            return all(found[each][0] >= end for each, end in ends.items())

        running.wait(committed, "all records are committed")

    def snapshot(self, version: str = VERSION, as_of_ms: int | None = None) -> None:
        """Take a snapshot of the committed state."""
        settings = config(self.servers, self.app_id, self.state)
        when = int(time.time() * 1000) if as_of_ms is None else as_of_ms
        applications.make_snapshot(self.topology, settings, self.servers, self.location, version, when)

    @property
    def options(self) -> tuple[object, ...]:
        """Options of every command."""
        return ("--location", self.location, "--application-id", self.app_id, "--bootstrap-servers", self.servers)


@pytest.fixture
def stage(
    broker: Broker, create_topic: CreateTopic, app_id: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Stage:
    """Return an application that has not run yet."""
    source = create_topic("in", PARTITIONS)
    kafka.create_topic(broker.bootstrap_servers, f"{source}-out", PARTITIONS)
    monkeypatch.setenv(applications.SOURCE, source)
    return Stage(broker.bootstrap_servers, app_id, source, tmp_path)


@pytest.fixture
def stopped(stage: Stage) -> Iterator[Callable[[int], Stage]]:
    """Run a worker until some records are committed, and stop it."""

    def run(count: int) -> Stage:
        stage.produce(count)
        with stage.running() as running:
            stage.await_committed(running)
        return stage

    return run
