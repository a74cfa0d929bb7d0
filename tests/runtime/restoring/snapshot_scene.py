"""A counting application on brokers in memory, with snapshots of its state: workers that restore from them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

import millpond as mp
from millpond.protocol import Role
from millpond.runtime.offsets.metadata import Partition
from millpond.runtime.restoring.snapshot_files import SnapshotFiles
from millpond.runtime.restoring.snapshot_restorer import SnapshotRestorer
from millpond.snapshots import versions
from millpond.snapshots.layouts import StoreKind, StoreLayout
from millpond.snapshots.locations import LocalDirectory
from millpond.snapshots.manifest import Manifest
from millpond.topology import TaskId
from tests.runtime.memory_kafka import Kafka
from tests.runtime.worker_parts import Errands, Parts
from tests.snapshots.reference import write_snapshot

A = TaskId(0, 0)
IN, CHANGELOG = Partition("in", 0), Partition("app-counts-changelog", 0)
KEYS = 400
LAYOUT = StoreLayout(StoreKind.TIMESTAMPED_KEY_VALUE)


def topology() -> Any:
    """Return a topology that counts keys."""
    builder = mp.StreamsBuilder()
    builder.stream("in", key=mp.String, value=mp.String).group_by_key().count(store="counts").to_stream().to(
        "out", key=mp.String, value=mp.Long
    )
    return builder.build()


class SnapshotScene:
    """Brokers in memory, a location of snapshots, and one worker at a time, with a state directory of its own."""

    def __init__(self, root: Path, topology: Callable[[], Any] = topology) -> None:
        self.root = root
        self.topology = topology
        self.kafka = Kafka()
        self.location: Any = LocalDirectory("snapshots", root / "snapshots")
        self.now_ms = 1_790_000_000_000
        self.parts: Parts | None = None
        self.tasks: Errands

    def start(
        self, directory: str, *, snapshots: bool = True, fresh_location: Any = None, role: Any = Role.ACTIVE
    ) -> Parts:
        """Start a worker, after the end of the previous one."""
        self.end()
        self.parts = parts = Parts(self.kafka, self.topology(), self.root / directory, {"in": 1, "out": 1})
        self.tasks = Errands(self.kafka)
        if snapshots:
            location = fresh_location or self.location
            tasks: Any = self.tasks
            fetchers: Any = Errands(self.kafka)
            files = SnapshotFiles(location, parts.config.directory / "snapshots", fetchers)
            parts.executor.bootstrap = SnapshotRestorer(
                location, "app", parts.executor.stores.backend, tasks, files, parts.executor._environment.now_ms
            )
        if role is Role.ACTIVE:
            parts.own(A)
        else:
            parts.executor.hold([A], role)
        return parts

    def end(self) -> None:
        """Close the worker."""
        if self.parts is not None:
            self.parts.close()
            self.parts = None

    def feed(self, count: int, offset: int = 0) -> None:
        """Write input records."""
        for number in range(count):
            self.kafka.append("in", f"key-{(number + offset) % KEYS}", "x", timestamp=1_000 + number)

    def begin(self) -> None:
        """Process 1,000 records without snapshots."""
        self.feed(1_000)
        parts = self.start("first", snapshots=False)
        parts.process()
        parts.commit()

    def snapshot(self, *, end: int | None = None, **changed: Any) -> Manifest:
        """Take a snapshot of the changelog."""
        log = self.kafka.logs[CHANGELOG]
        end = len(log) if end is None else end
        records = [(each.key, each.value, each.timestamp, None) for each in log[:end]]
        given = {
            "layout": LAYOUT,
            "topic": CHANGELOG.topic,
            "topic_id": CHANGELOG.topic,
            "application": "app",
        } | changed
        version = versions.new_version(self.now_ms)
        self.now_ms += 1_000
        parts = self.parts
        assert parts is not None
        return write_snapshot(
            self.location, given["application"], version,
            {"counts": (given["layout"], given["topic"], given["topic_id"], {0: (records, given.get("offset", end))})},
            as_of_ms=given.get("as_of_ms", parts.executor._environment.now_ms()), rows_per_file=100,
        )  # fmt: skip


def run(parts: Parts, turns: int = 60) -> None:
    """Run turns of the loop, enough for the task to run."""
    for _ in range(turns):
        parts.executor.take_in_snapshots()
        parts.settle()
        parts.executor.measure_lags()


def tail(scene: SnapshotScene) -> None:
    """Process more records after the snapshot."""
    assert scene.parts is not None
    scene.feed(150, offset=300)
    scene.parts.process()
    scene.parts.commit()


def restored(scene: SnapshotScene, directory: str, **given: Any) -> Parts:
    """Start a worker and run it until its task is restored."""
    parts = scene.start(directory, **given)
    run(parts)
    return parts


def check_right(scene: SnapshotScene, parts: Parts) -> None:
    """Check that rows, offset and topic id are those of a replay."""
    found, offset = parts.rows("counts"), parts.offset_on_disk("counts")
    provenance = parts.state_file.provenance("counts", 0)
    parts = restored(scene, "replayed", snapshots=False)
    assert parts.rows("counts") == found
    assert parts.offset_on_disk("counts") == offset
    theirs = parts.state_file.provenance("counts", 0)
    assert provenance is not None
    assert theirs is not None
    assert provenance.topic_id == theirs.topic_id


def count_of(parts: Parts, key: str) -> int:
    """Return the count of a key in the store."""
    return int(parts.executor.held[A].stores["counts"].get(key).value)


def replayed_records(parts: Parts) -> int:
    """Return how many changelog records were restored."""
    return parts.executor.held[A].changelogs[0].restored


def damage_file(scene: SnapshotScene, manifest: Manifest) -> None:
    path = versions.file_path("app", manifest.version, manifest.files[1].path)
    data = bytearray(scene.location.get(path))
    data[len(data) // 2] ^= 0xFF
    scene.location.put(path, bytes(data))


def not_an_sst(scene: SnapshotScene, manifest: Manifest) -> None:
    """Replace a file by one with the right checksum that is not an SST file."""
    junk = b"junk" * 1000
    first = manifest.files[0]
    changed = msgspec.structs.replace(first, sha256=hashlib.sha256(junk).hexdigest(), bytes=len(junk))
    scene.location.put(versions.file_path("app", manifest.version, first.path), junk)
    data = msgspec.json.encode(manifest).replace(msgspec.json.encode(first), msgspec.json.encode(changed))
    scene.location.put(versions.file_path("app", manifest.version, versions.MANIFEST), data)
