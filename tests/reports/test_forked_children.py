"""Reports about children that user code forks: they outlive a worker that is killed, and must hold nothing of it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.support import kafka

_WORKER = """
import concurrent.futures, multiprocessing, os, sys, time
from pathlib import Path
from millpond.runtime.http.server import HttpServer
from millpond.state import StateFile

def child():
    print(os.getpid(), flush=True)
    time.sleep(600)

def forked():
    if os.fork() == 0:
        child()

def forked_by_multiprocessing():
    multiprocessing.get_context("fork").Process(target=child).start()

def forked_by_a_pool():
    concurrent.futures.ProcessPoolExecutor(1, multiprocessing.get_context("fork")).submit(child)

_, kind, directory, port = sys.argv
state = StateFile.open(Path(directory))
server = HttpServer("127.0.0.1", int(port))
server.start()
print(server.main.port, flush=True)
globals()[kind]()
time.sleep(600)
"""

_REPLACEMENT = """
import sys
from pathlib import Path
from millpond.errors import StateDirectoryLocked
from millpond.runtime.http.server import HttpServer
from millpond.state import StateFile
try:
    state = StateFile.open(Path(sys.argv[1]))
except StateDirectoryLocked:
    print("locked", flush=True)
else:
    server = HttpServer("127.0.0.1", int(sys.argv[2]))
    server.start()
    print("open", flush=True)
sys.stdin.read()
"""


class Started:
    """The processes of a test, which end with it.

    Attributes:
        orphans: the ids of processes that the others have forked.
    """

    def __init__(self) -> None:
        self.orphans: list[int] = []
        self._processes: list[subprocess.Popen[str]] = []

    def start(self, script: str, *arguments: object) -> subprocess.Popen[str]:
        """Run a script."""
        command = [sys.executable, "-c", script, *map(str, arguments)]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._processes.append(process)
        return process

    def end(self) -> None:
        """Kill all processes."""
        for pid in self.orphans:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for each in self._processes:
            each.kill()
            each.communicate()


@pytest.fixture
def started() -> Iterator[Started]:
    """The processes of the test."""
    made = Started()
    yield made
    made.end()


def _line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def _is_free(directory: Path) -> bool:
    from millpond.errors import StateDirectoryLocked
    from millpond.state.rocksdb.directory_lock import DirectoryLock

    try:
        DirectoryLock(directory).release()
    except StateDirectoryLocked:
        return False
    return True


@pytest.mark.usefixtures("processes")
@pytest.mark.parametrize("kind", ["forked", "forked_by_multiprocessing", "forked_by_a_pool"])
def test_a_killed_worker_leaves_its_directory_and_address_free(kind: str, tmp_path: Path, started: Started) -> None:
    """Its children live on. Of two replacements that start at once, one has the directory and the address."""
    worker = started.start(_WORKER, kind, tmp_path, 0)
    port = _line(worker)
    child = int(_line(worker))
    started.orphans.append(child)
    worker.kill()
    worker.wait()
    os.kill(child, 0)  # it lives
    kafka.eventually(lambda: _is_free(tmp_path), "the lock is free")  # the kernel takes its time
    replacements = [started.start(_REPLACEMENT, tmp_path, port) for _ in range(2)]
    assert sorted(map(_line, replacements)) == ["locked", "open"]


def test_a_child_that_closes_the_state_of_its_parent_releases_nothing(tmp_path: Path) -> None:
    """Such as one that leaves a `with` block of its parent."""
    from millpond.errors import StateDirectoryLocked
    from millpond.state.rocksdb.directory_lock import DirectoryLock

    lock = DirectoryLock(tmp_path)
    pid = os.fork()
    if pid == 0:
        lock.release()
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
    with pytest.raises(StateDirectoryLocked, match="this very process"):
        DirectoryLock(tmp_path)
    lock.release()
    DirectoryLock(tmp_path).release()
