"""A global table on brokers in memory, with snapshots of it: workers that restore it."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import millpond as mp
from millpond.runtime.config.model import Config
from millpond.runtime.offsets.metadata import Partition
from millpond.runtime.restoring.global_stores import GlobalStores
from millpond.runtime.restoring.snapshot_files import SnapshotFiles
from millpond.runtime.restoring.snapshot_restorer import SnapshotRestorer
from millpond.runtime.worker.assembly import _environment
from millpond.snapshots import versions
from millpond.snapshots.layouts import StoreKind, StoreLayout
from millpond.snapshots.locations import LocalDirectory
from millpond.snapshots.manifest import Manifest
from millpond.state import MemoryBackend, StateFile
from tests.runtime.memory_kafka import Consumer, Kafka
from tests.runtime.worker_parts import Errands
from tests.snapshots.reference import write_snapshot

FIRST, SECOND = Partition("rates", 0), Partition("rates", 1)
LAYOUT = StoreLayout(StoreKind.TIMESTAMPED_KEY_VALUE, is_global=True, serdes="String, String")
KEYS = 250


def plain_table(*, persistent: bool = True) -> mp.Topology:
    """Return a topology with a global table."""
    builder = mp.StreamsBuilder()
    builder.global_table("rates", key=mp.String, value=mp.String, store="rates", persistent=persistent)
    return builder.build()


class GlobalWorker:
    """The global store of one worker, on disk or in memory; the test runs the loop."""

    def __init__(self, scene: GlobalScene, directory: str, topology: mp.Topology, *, snapshots: bool) -> None:
        config = Config.of(
            {"application.id": "app", "bootstrap.servers": "memory:1", "state.dir": scene.root / directory}
        )
        cluster: Any = scene.kafka
        environment = _environment(topology, config, cluster)
        self.environment = replace(environment, now_ms=lambda: int(time.time() * 1000) + scene.ahead_ms)
        self.file = StateFile(config.directory)
        memory: Any = MemoryBackend()
        self.backend: Any = self.file if topology.global_stores[0].store.persistent else memory  # type: ignore[attr-defined]
        consumer: Any = Consumer(scene.kafka)
        self.consumer: Consumer = consumer
        self.tasks: Any = Errands(scene.kafka)
        self.bootstrap = None
        if snapshots:
            fetchers: Any = Errands(scene.kafka)
            files = SnapshotFiles(scene.location, config.directory / "snapshots", fetchers)
            self.bootstrap = SnapshotRestorer(
                scene.location, "app", lambda _: self.backend, self.tasks, files, self.environment.now_ms
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
        """Run turns of the loop."""
        for _ in range(turns):
            for id in () if self.bootstrap is None else self.bootstrap.turn():
                assert self.stores.restored(id)
            for partition, messages, end in self.consumer.read():
                if messages:
                    self.stores.apply(partition, messages)
                self.stores.reached_end(partition, end)

    def state(self) -> tuple[Any, Any]:
        """Return the committed rows and the offsets of both partitions."""
        return list(self.backend.range("rates", b"", None)), [self.backend.offset("rates", each) for each in range(2)]

    def close(self) -> None:
        self.stores.close()
        if self.bootstrap is not None:
            self.bootstrap.close()
        self.file.close()


class GlobalScene:
    """A topic with two partitions, a location of snapshots, and workers with directories of their own."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.kafka = Kafka()
        self.location: Any = LocalDirectory("snapshots", root / "snapshots")
        self.ahead_ms = 0
        self.persistent = True
        self._open: list[GlobalWorker] = []

    def feed(self, count: int, first: int = 0) -> None:
        """Write to the topic; every fifth record is followed by a deletion."""
        for number in range(first, first + count):
            key = f"key-{number % KEYS}"
            partition = number % KEYS % 2
            self.kafka.append("rates", key, f"value-{number}", timestamp=1_000 + number, partition=partition)
            if number % 5 == 0:
                self.kafka.append("rates", key, "", timestamp=2_000 + number, partition=partition)
                self.kafka.logs[Partition("rates", partition)][-1].value = None

    def snapshot(self, **changed: Any) -> Manifest:
        """Take a snapshot of the topic."""
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

    def start(self, directory: str, *, snapshots: bool = True, topology: mp.Topology | None = None) -> GlobalWorker:
        """Start a worker, after the end of the previous one."""
        self.end()
        made = GlobalWorker(self, directory, topology or plain_table(persistent=self.persistent), snapshots=snapshots)
        self._open.append(made)
        return made

    def run(self, directory: str, *, snapshots: bool = True) -> GlobalWorker:
        """Start a worker and let it read to the ends of the topic."""
        made = self.start(directory, snapshots=snapshots)
        made.stores.create()
        made.turn()
        assert not made.stores.behind
        return made

    def end(self) -> None:
        """Close the workers."""
        for each in self._open:
            each.close()
        self._open.clear()

    def check(self, worker: GlobalWorker) -> None:
        """Check that the rows are those of a replay, in the backend and through the store."""
        found, seen = worker.state(), list(worker.stores.by_name()["rates"].all())
        replayed = self.run("replayed", snapshots=False)
        assert found == replayed.state()
        assert seen == list(replayed.stores.by_name()["rates"].all())
