"""Backends for tests of stores, and the ways in which a worker may end."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import msgspec

from millpond import serdes
from millpond.serdes import Serde
from millpond.state import MemoryBackend, StateFile, StateFileOptions
from millpond.state.stores.staged_store import StagedStore

SMALL = StateFileOptions(cache_bytes=1 << 20, write_buffer_bytes=256 << 10)

# The same values as objects that can be shared, and as objects that user code may change.
FROZEN: Serde[int] = serdes.Long
MUTABLE: Serde[dict[str, int]] = Serde("Mutable", msgspec.json.encode, msgspec.json.decode, immutable=False)

WriteGroup = tuple[str, int, list[tuple[bytes, bytes | None]]]


class Memory:
    """A backend that cannot be reopened."""

    durable = False

    def __init__(self) -> None:
        self.backend: Any = MemoryBackend()

    def end(self) -> None:
        """Throw it away."""
        self.backend.close()


class Disk:
    """A state file that can be closed and opened, or abandoned as by a kill."""

    durable = True

    def __init__(self) -> None:
        # Hundreds of databases, each synced at creation: in memory where the system has room for that.
        fast = Path("/dev/shm")
        self._root = Path(tempfile.mkdtemp(prefix="millpond-state-", dir=fast if os.access(fast, os.W_OK) else None))
        self._count = 0
        self.backend = StateFile.open(self._root / "0", SMALL)

    def reopen(self) -> None:
        """Close properly and open again."""
        path = self.backend.path
        self.backend.close()
        self.backend = StateFile.open(path, SMALL)

    def crash(self) -> None:
        """Open again from the files as they are at this moment, without closing."""
        self._count += 1
        copy = self._root / str(self._count)
        _copy(Path(self.backend.path), copy)
        abandoned, self.backend = self.backend, StateFile.open(copy, SMALL)
        abandoned.close()
        assert self.backend.set_aside is None

    def end(self) -> None:
        """Throw it away."""
        self.backend.close()
        shutil.rmtree(self._root)


def _copy(directory: Path, to: Path) -> None:
    """Copy a directory as of one moment, although RocksDB's own threads write and remove files."""
    before = None
    while before is None or _files(directory) != before:
        shutil.rmtree(to, ignore_errors=True)
        before = _files(directory)
        with contextlib.suppress(shutil.Error):  # a file that is gone: it is another moment
            shutil.copytree(directory, to)


def _files(directory: Path) -> dict[Path, tuple[int, int]]:
    """Return the files with size and time of each."""
    found = {}
    for path in directory.rglob("*"):
        with contextlib.suppress(FileNotFoundError):
            now = path.stat()
            found[path] = (now.st_size, now.st_mtime_ns)
    return found


BACKENDS = {"memory": Memory, "rocksdb": Disk}


def commit(store: StagedStore, backend: Any, offset: int | None = 1) -> list:
    """Commit a store; return the changelog records that the commit produced."""
    out: list = []
    store.flush(out)
    rows = store.seal()
    backend.write([(store.name, store.partition, rows)], {(store.name, store.partition): (offset, store.metadata())})
    store.committed()
    return out


def changelog_record(row: tuple) -> tuple:
    """Return key, value, timestamp and headers of a record that `flush` produced, as `restore` takes them."""
    _, value, key, _, _, _, timestamp, *headers = row
    return key, value, timestamp, headers[0] if headers else None
