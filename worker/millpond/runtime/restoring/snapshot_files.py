"""Fetches a snapshot's files into the state directory and verifies them, in threads beside the worker's loop."""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path

from millpond.errors import SnapshotError
from millpond.runtime.kafka.consumer_threads import ConsumerThreads
from millpond.snapshots.local_copy import PARTIAL
from millpond.snapshots.locations import Location
from millpond.snapshots.manifest import File
from millpond.snapshots.sst import file_sha256

__all__ = ("Cancelled", "FetchProgress", "SnapshotFiles")


#: Between the folder's name and a number, of what is to be deleted.
_ASIDE = ".old-"


#: Bytes that fetching leaves free on the disk.
_RESERVE = 256 << 20


class Cancelled(Exception):
    """Nobody wants the files any more."""


class FetchProgress:
    """How far fetching for one task is. Written by several threads, read by the loop.

    Attributes:
        total: bytes to fetch; 0 until that is known.
        fetched: bytes that came from the location.
        cancelled: set it to end the fetching.
    """

    def __init__(self) -> None:
        self.total = 0
        self.cancelled = False
        self.fetched = 0
        self._done = 0
        self._lock = threading.Lock()

    @property
    def done(self) -> int:
        """Bytes that are there so far."""
        return self._done

    def arrived(self, count: int, *, before: bool = False) -> None:
        """More bytes have arrived, or did so `before`, for an earlier process.

        Raises:
            Cancelled: no more are wanted.
        """
        with self._lock:
            self._done += count
            self.fetched += 0 if before else count
        if self.cancelled:
            raise Cancelled


class SnapshotFiles:
    """The folder for files on their way into the state file. They are named by their content, so a restart goes on with them."""

    def __init__(self, location: Location, folder: Path, fetchers: ConsumerThreads) -> None:
        """Args:
        location: where the snapshots are.
        folder: in the state directory, on the same file system as the database.
        fetchers: threads that fetch a file each.
        """
        self._location = location
        self._folder = folder
        self._fetchers = fetchers
        self._locks: dict[str, threading.Lock] = {}
        self._aside = 0

    def fetch(self, prefix: str, files: Sequence[File], progress: FetchProgress) -> list[Path]:
        """Fetch and verify files in parallel; return their local paths in the same order.

        Args:
            prefix: the version's folder in the location.
            files: what to fetch.
            progress: told about bytes, and asked whether to go on.

        Raises:
            SnapshotError: a file is missing or damaged, or the disk is full.
            Cancelled: see `FetchProgress`.
        """
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise SnapshotError(
                f"the folder '{self._folder}' for snapshots cannot be made: {error.strerror}"
            ) from error
        self._check_room(files)
        answers: list[Future[Path]] = [
            self._fetchers.run(lambda file=file: self._fetched(prefix, file, progress))  # type: ignore[misc]
            for file in files
        ]
        try:
            return [each.result() for each in answers]
        except BaseException:
            progress.cancelled = True  # the others need not be fetched
            raise

    def set_aside(self) -> bool:
        """Put what is left of earlier fetching aside, for `delete_aside`; return whether there is something. Quick."""
        if self._folder.exists():
            self._aside += 1
            with suppress(OSError):
                self._folder.rename(
                    self._folder.with_name(f"{self._folder.name}{_ASIDE}{time.time_ns()}-{self._aside}")
                )
        return any(self._left_aside())

    def delete_aside(self) -> None:
        """Delete what was put aside, also by an earlier process."""
        for each in self._left_aside():
            shutil.rmtree(each, ignore_errors=True)

    def _left_aside(self) -> Iterator[Path]:
        return self._folder.parent.glob(f"{self._folder.name}{_ASIDE}*")

    def close(self) -> None:
        """Begin with nothing more."""
        self._fetchers.close()

    def _check_room(self, files: Sequence[File]) -> None:
        """A disk that fetching fills would end the worker: its other tasks write to it.

        Raises:
            SnapshotError: the files do not fit.
        """
        needed = sum(each.bytes for each in files if not (self._folder / f"{each.sha256}.sst").exists())
        free = shutil.disk_usage(self._folder).free
        if needed + _RESERVE > free:
            raise SnapshotError(
                f"its files need {needed} bytes, and the disk of '{self._folder}' has {free}: give the volume more"
            )

    def _fetched(self, prefix: str, file: File, progress: FetchProgress) -> Path:
        # Whoever wanted the same file before, and does not any more, may still be writing it.
        with self._locks.setdefault(file.sha256, threading.Lock()):
            return self._fetched_alone(prefix, file, progress)

    def _fetched_alone(self, prefix: str, file: File, progress: FetchProgress) -> Path:
        local = self._folder / f"{file.sha256}.sst"
        if local.exists() and local.stat().st_size == file.bytes:
            progress.arrived(file.bytes, before=True)
        else:
            partial = local.with_name(local.name + PARTIAL)
            progress.arrived(partial.stat().st_size if partial.exists() else 0, before=True)
            self._location.fetch(f"{prefix}/{file.path}", local, progress.arrived)
        size = local.stat().st_size
        if size != file.bytes or file_sha256(local) != file.sha256:
            local.unlink(missing_ok=True)
            what = f"{size} bytes instead of {file.bytes}" if size != file.bytes else "another SHA-256"
            raise SnapshotError(f"its file '{file.path}' is damaged: it has {what}")
        # RocksDB syncs a file that it ingests, with the interpreter's lock held: there is nothing left to sync then.
        with local.open("rb") as opened:
            os.fsync(opened.fileno())
        return local
