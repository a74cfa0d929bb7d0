"""Fetches of a snapshot's files: in parallel, verified, and continued after a kill."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import msgspec
import pytest

from millpond.errors import SnapshotError
from millpond.runtime.kafka.consumer_threads import ConsumerThreads
from millpond.runtime.restoring.snapshot_files import Cancelled, FetchProgress, SnapshotFiles
from millpond.snapshots.locations import LocalDirectory
from millpond.snapshots.manifest import File

ROOT = Path(__file__).parents[3]
SIZE = 6 << 20
WAIT_S = 60


def no_consumer():
    raise AssertionError


class Counting(LocalDirectory):
    """A location that counts fetched bytes, and may wait at each megabyte."""

    def __init__(self, root):
        super().__init__(str(root), root)
        self.bytes = 0
        self.at_chunk = lambda: None

    def fetch(self, path, local, on_bytes=None):
        def told(count):
            self.bytes += count
            on_bytes(count)
            self.at_chunk()

        super().fetch(path, local, told)


@pytest.fixture
def location(tmp_path):
    return Counting(tmp_path / "location")


@pytest.fixture
def files(location):
    """Create four files of random bytes."""
    made = []
    for number in range(4):
        data = os.urandom(SIZE)
        location.put(f"v/{number}", data)
        made.append(File(str(number), hashlib.sha256(data).hexdigest(), SIZE, 1))
    return made


@pytest.fixture
def fetchers():
    made = ConsumerThreads("test-fetch", 4, no_consumer)
    yield made
    made.close()


@pytest.fixture
def fetching(location, tmp_path, fetchers):
    return SnapshotFiles(location, tmp_path / "state" / "snapshots", fetchers)


def contents(location, files):
    return [location.get(f"v/{file.path}") for file in files]


def test_files_are_complete_and_in_order(location, files, fetching):
    """Bytes are counted."""
    progress = FetchProgress()
    paths = fetching.fetch("v", files, progress)
    assert [path.read_bytes() for path in paths] == contents(location, files)
    assert progress.done == 4 * SIZE
    assert fetching.fetch("v", files, FetchProgress()) == paths
    assert location.bytes == 4 * SIZE


def test_files_are_fetched_at_the_same_time(location, files, fetching):
    """All four are started before any is complete."""
    together = threading.Barrier(4)
    once = threading.local()

    def meet():
        if not getattr(once, "met", False):
            once.met = True
            together.wait(WAIT_S)

    location.at_chunk = meet
    assert len(fetching.fetch("v", files, FetchProgress())) == 4


def test_damaged_file_is_not_kept(location, files, fetching, tmp_path):
    """It is fetched again when the location has the correct one."""
    right = location.get("v/2")
    location.put("v/2", right[:-1] + bytes([right[-1] ^ 1]))
    with pytest.raises(SnapshotError, match="its file '2' is damaged: it has another SHA-256"):
        fetching.fetch("v", files, FetchProgress())
    location.put("v/2", right)
    assert [path.read_bytes() for path in fetching.fetch("v", files, FetchProgress())] == contents(location, files)


def test_fetch_ends_soon_after_its_cancellation(location, files, fetching):
    """At the next megabyte; a later fetch continues from there."""
    progress = FetchProgress()

    def cancel():
        progress.cancelled = True

    location.at_chunk = cancel
    with pytest.raises(Cancelled):
        fetching.fetch("v", files, progress)
    assert progress.done < 4 * SIZE
    location.at_chunk = lambda: None
    paths = fetching.fetch("v", files, FetchProgress())
    assert [path.read_bytes() for path in paths] == contents(location, files)


def test_two_fetches_of_the_same_file_do_not_interfere(location, files, fetching):
    """A cancelled fetch may still be writing it."""
    location.at_chunk = lambda: time.sleep(0.005)
    answers = []
    threads = [
        threading.Thread(target=lambda: answers.append(fetching.fetch("v", files, FetchProgress()))) for _ in range(2)
    ]
    for each in threads:
        each.start()
    for each in threads:
        each.join(WAIT_S)
    assert len(answers) == 2
    assert answers[0] == answers[1]
    assert [path.read_bytes() for path in answers[0]] == contents(location, files)
    assert location.bytes == 4 * SIZE


KILLED = """
import os, sys, time
from pathlib import Path
import msgspec
from millpond.runtime.kafka.consumer_threads import ConsumerThreads
from millpond.runtime.restoring.snapshot_files import FetchProgress, SnapshotFiles
from millpond.snapshots.manifest import File
from tests.runtime.restoring.test_snapshot_files import Counting, no_consumer

location = Counting(Path(sys.argv[1]))
chunks = 0
def slowly():
    global chunks
    chunks += 1
    if chunks > 6:
        os.write(1, b"fetching\\n")
        time.sleep(600)
location.at_chunk = slowly
files = msgspec.json.decode(sys.argv[3], type=list[File])
SnapshotFiles(location, Path(sys.argv[2]), ConsumerThreads("fetch", 2, no_consumer)).fetch("v", files, FetchProgress())
"""


def test_fetch_continues_after_a_kill(location, files, fetching, tmp_path, processes):
    """SIGKILL in the middle of files."""
    folder = tmp_path / "state" / "snapshots"
    paths = os.pathsep.join([str(ROOT / "worker"), str(ROOT)])
    child = subprocess.Popen(
        [sys.executable, "-c", KILLED, str(tmp_path / "location"), str(folder), msgspec.json.encode(files).decode()],
        stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": paths},
    )  # fmt: skip
    with child:
        assert child.stdout is not None
        first = child.stdout.readline()
        child.kill()
    assert first == b"fetching\n"
    left = sum(each.stat().st_size for each in folder.iterdir())
    assert left >= 1 << 20
    found = fetching.fetch("v", files, FetchProgress())
    assert [path.read_bytes() for path in found] == contents(location, files)
    assert location.bytes == 4 * SIZE - left


def test_folder_that_cannot_be_created_is_one_sentence(location, files, fetchers, tmp_path):
    """A file has its name."""
    (tmp_path / "state").write_text("")
    with pytest.raises(SnapshotError, match="cannot create the folder"):
        SnapshotFiles(location, tmp_path / "state" / "snapshots", fetchers).fetch("v", files, FetchProgress())


def test_old_files_are_set_aside_at_once_and_deleted_later(files, fetching, tmp_path):
    """So that deletion and fetches do not interfere."""
    assert not fetching.set_aside()
    fetching.fetch("v", files[:1], FetchProgress())
    assert fetching.set_aside()
    fetching.fetch("v", files[1:2], FetchProgress())
    fetching.delete_aside()
    assert [each.name for each in (tmp_path / "state").iterdir()] == ["snapshots"]
    assert [each.stem for each in (tmp_path / "state" / "snapshots").iterdir()] == [files[1].sha256]
