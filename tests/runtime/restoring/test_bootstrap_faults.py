"""Locations that hang, stall or fail, and malicious manifests: no task waits for ever, and nothing else is affected."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from millpond.errors import SnapshotError
from millpond.runtime.kafka.consumer_threads import ConsumerThreads
from millpond.runtime.restoring import snapshot_choice
from millpond.runtime.restoring import snapshot_restorer as bootstrap_module
from millpond.runtime.restoring.reusable_state import ChangelogFacts
from millpond.runtime.restoring.snapshot_choice import WantedStore
from millpond.runtime.restoring.snapshot_files import SnapshotFiles
from millpond.runtime.restoring.snapshot_restorer import SnapshotRestorer
from millpond.runtime.topics.identity import TopicIdentity
from millpond.snapshots import versions
from millpond.snapshots.layouts import StoreKind, StoreLayout
from millpond.snapshots.locations import LocalDirectory
from millpond.snapshots.manifest import Manifest, decode, encode
from millpond.state import StateFile
from millpond.topology import TaskId
from tests.snapshots.reference import write_snapshot

LAYOUT = StoreLayout(StoreKind.KEY_VALUE)
VERSION = "20261122T000000Z-abcdef"
RECORDS: list[Any] = [(b"%06d" % each, b"v" * 20, 0, None) for each in range(1_000)]
NOW_MS = 1_790_000_000_000


class Lame(LocalDirectory):
    """A location whose calls wait or fail, as a test sets."""

    def __init__(self, root: Path) -> None:
        super().__init__("lame", root)
        self.on_list: Callable[[], object] = lambda: None
        self.on_fetch: Callable[[str], object] = lambda path: None

    def folders(self, prefix: str) -> list[str]:
        self.on_list()
        return super().folders(prefix)

    def fetch(self, path: str, local: Path, on_bytes: Any = None) -> None:
        self.on_fetch(path)
        super().fetch(path, local, on_bytes)


class Place:
    """A state file, a location and real threads."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.location = Lame(root / "location")
        self.state_file = StateFile(root / "state")
        self.released = threading.Event()
        none: Any = None
        self.files = SnapshotFiles(self.location, root / "state/snapshots", ConsumerThreads("f", 4, none))
        self.bootstrap = SnapshotRestorer(
            self.location, "app", lambda _: self.state_file, ConsumerThreads("p", 2, none), self.files, lambda: NOW_MS
        )

    def snapshot(self, partitions: int, rows_per_file: int = 100) -> Manifest:
        """Write a snapshot of some partitions with the same content."""
        logs = {each: (RECORDS, len(RECORDS)) for each in range(partitions)}
        return write_snapshot(
            self.location,
            "app",
            VERSION,
            {"s": (LAYOUT, "log", "id", logs)},
            as_of_ms=NOW_MS,
            rows_per_file=rows_per_file,
        )

    def awaits(self, partition: int, partitions: int, end: int = len(RECORDS)) -> bool:
        """Request a snapshot for one task."""
        log = ChangelogFacts(0, end, TopicIdentity("id", None))
        wanted = [WantedStore("s", LAYOUT, "log", partition, partitions, log, None)]
        return self.bootstrap.awaits(TaskId(0, partition), lambda: wanted)

    def turn(self, seconds: float, enough: int) -> list[TaskId]:
        """Run turns for some time, or until a number of tasks is decided."""
        found: list[TaskId] = []
        until = time.monotonic() + seconds
        while time.monotonic() < until and len(found) < enough:
            found += self.bootstrap.turn()
            time.sleep(0.002)
        return found


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    """With shorter timeouts."""
    monkeypatch.setattr(snapshot_choice, "OVERHEAD_S", -1.0)
    monkeypatch.setattr(bootstrap_module, "_MANIFEST_TIMEOUT_S", 0.3)
    monkeypatch.setattr(bootstrap_module, "_PAUSE_S", 0.3)
    monkeypatch.setattr(bootstrap_module, "_FETCH_TIMEOUT_S", 0.3)
    made = Place(tmp_path)
    yield made
    made.released.set()
    made.bootstrap.close()
    made.state_file.close()


def test_location_that_hangs_for_ever_blocks_no_later_task(place: Place) -> None:
    """All threads hang in it, so requests after the pause are not started."""
    place.snapshot(6)
    place.location.on_list = place.released.wait
    assert all(place.awaits(each, 6) for each in range(3))
    assert len(place.turn(30.0, 3)) == 3
    time.sleep(0.4)  # the pause
    place.bootstrap.turn()
    waits = place.awaits(4, 6)
    assert not waits or place.turn(30.0, 1) == [TaskId(0, 4)]


def test_files_that_hang_for_ever_block_no_later_task(place: Place) -> None:
    """Each task that is given up leaves a thread that waits for its files."""
    place.snapshot(6)
    place.location.on_fetch = lambda path: place.released.wait()
    for each in range(4):
        waits = place.awaits(each, 6)
        assert not waits or place.turn(30.0, 1) == [TaskId(0, each)]


def test_fetching_that_stalls_in_its_last_quarter_is_given_up(place: Place) -> None:
    """Else a task would wait for it for ever."""
    manifest = place.snapshot(1)
    last = manifest.files[-1].path

    def stall(path: str) -> None:
        if path.endswith(last):
            place.released.wait()

    place.location.on_fetch = stall
    assert place.awaits(0, 1)
    assert place.turn(30.0, 1) == [TaskId(0, 0)]


def test_location_that_fails_slowly_is_not_asked_for_each_task(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the last of many tasks would wait for all of them."""
    monkeypatch.setattr(bootstrap_module, "_PAUSE_S", 60.0)
    asked = []

    def fail() -> None:
        asked.append(1)
        time.sleep(0.1)  # all threads ask before the first has its answer
        raise SnapshotError("cannot list.")

    place.location.on_list = fail
    assert all(place.awaits(each, 20) for each in range(20))
    assert len(place.turn(30.0, 20)) == 20
    assert len(asked) < 4


def tampered(place: Place, **changed: Any) -> None:
    """Change the first file or the first part in the manifest."""
    manifest = place.snapshot(1)
    [store] = manifest.stores
    [part] = store.parts
    of_part = {name: value for name, value in changed.items() if name in ("as_of_ms", "offset")}
    of_file = {name: value for name, value in changed.items() if name not in of_part}
    file = msgspec.structs.replace(part.files[0], **of_file)
    part = msgspec.structs.replace(part, files=(file, *part.files[1:]), **of_part)
    store = msgspec.structs.replace(store, parts=(part,))
    place.location.put(
        versions.file_path("app", VERSION, versions.MANIFEST),
        encode(msgspec.structs.replace(manifest, stores=(store,))),
    )


def test_sha256_is_not_used_as_a_path(place: Place) -> None:
    """Files are named by it: else other files of the machine could be overwritten and deleted."""
    victim = place.root / "state/db/000999.sst"
    victim.write_bytes(b"x" * 77)
    tampered(place, sha256="../db/000999", bytes=77)
    assert place.awaits(0, 1)
    assert place.turn(30.0, 1) == [TaskId(0, 0)]
    assert victim.exists()


@pytest.mark.parametrize(
    "changed",
    [
        {"as_of_ms": 10**20},
        {"as_of_ms": -(10**20)},
        {"offset": -1},
        {"bytes": -1},
        {"sha256": "A" * 64},
        {"path": "a\0b"},
    ],
)
def test_impossible_numbers_and_names_are_rejected(place: Place, changed: dict[str, Any]) -> None:
    """In one sentence, and the loop continues."""
    tampered(place, **changed)
    assert place.awaits(0, 1)
    assert place.turn(30.0, 1) == [TaskId(0, 0)]
    with pytest.raises(SnapshotError, match="make a new snapshot"):
        decode(place.location.get(versions.file_path("app", VERSION, versions.MANIFEST)))


def test_manifest_that_is_nested_too_deep_is_rejected() -> None:
    """In one sentence."""
    deep = b'{"format": 1, "x": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"
    with pytest.raises(SnapshotError, match="make a new snapshot"):
        decode(deep)


def test_snapshot_that_does_not_fit_the_disk_is_not_fetched(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk would stop the worker, whose other tasks write to it."""
    place.snapshot(1)
    usage = shutil.disk_usage(place.root)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=100))
    fetched: list[str] = []
    place.location.on_fetch = fetched.append
    assert place.awaits(0, 1)
    assert place.turn(30.0, 1) == [TaskId(0, 0)]
    assert fetched == []
