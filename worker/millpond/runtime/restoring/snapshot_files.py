"""The local files of a snapshot: fetched into the state directory and verified, in threads beside the worker's loop."""

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

#: Between the name and a number, in the names of folders to delete.
_OLD = ".old-"
#: Bytes that fetching leaves free on the disk.
_FREE_BYTES = 256 << 20


class Cancelled(Exception):
    """The files are no longer needed."""


class FetchProgress:
    """The progress of the fetch for one task. Written by several threads, read by the loop.

    Attributes:
        total: bytes to fetch; 0 until known.
        fetched: bytes fetched from the location.
        cancelled: whether to stop the fetch; may be set by any thread.
    """

    def __init__(self) -> None:
        self.total = 0
        self.cancelled = False
        self.fetched: int = 0
        self._done = 0
        self._lock = threading.Lock()

    @property
    def done(self) -> int:
        """The number of bytes on disk so far."""
        return self._done

    def arrived(self, count: int, *, before: bool = False) -> None:
        """Count bytes that have arrived, or that were already on disk `before` this fetch.

        Raises:
            Cancelled: the files are no longer needed.
        """
        with self._lock:
            self._done += count
            self.fetched += 0 if before else count
        if self.cancelled:
            raise Cancelled


class SnapshotFiles:
    """The folder of fetched files until they are ingested. Their names are their hashes, so a restart can use them."""

    def __init__(self, location: Location, folder: Path, fetchers: ConsumerThreads) -> None:
        """Prepare the folder; it is created with the first fetch.

        Args:
            location: the location of the snapshots.
            folder: the folder in the state directory, on the same file system as the database.
            fetchers: threads that each fetch one file at a time.
        """
        self._location = location
        self._folder = folder
        self._fetchers = fetchers
        self._locks: dict[str, threading.Lock] = {}
        self._set_aside_count = 0

    def fetch(self, prefix: str, files: Sequence[File], progress: FetchProgress) -> list[Path]:
        """Fetch and verify files in parallel; return their local paths in the same order.

        Args:
            prefix: the folder of the version in the location.
            files: the files to fetch.
            progress: the progress to update; its `cancelled` stops the fetch.

        Raises:
            SnapshotError: a file is missing or damaged, or the disk is full.
            Cancelled: `progress.cancelled` was set.
        """
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise SnapshotError(f"cannot create the folder '{self._folder}' for snapshots: {error.strerror}") from error
        self._check_free_space(files)
        results: list[Future[Path]] = [
            self._fetchers.run(lambda file=file: self._fetch_once(prefix, file, progress))  # type: ignore[misc]
            for file in files
        ]
        try:
            return [each.result() for each in results]
        except BaseException:
            progress.cancelled = True  # stop fetching the others
            raise

    def set_aside(self) -> bool:
        """Rename the folder of earlier fetches, fast, for `delete_aside`; return whether any folder is to delete."""
        if self._folder.exists():
            self._set_aside_count += 1
            with suppress(OSError):
                self._folder.rename(
                    self._folder.with_name(f"{self._folder.name}{_OLD}{time.time_ns()}-{self._set_aside_count}")
                )
        return any(self._old_folders())

    def delete_aside(self) -> None:
        """Delete the folders that were set aside, also by an earlier process."""
        for each in self._old_folders():
            shutil.rmtree(each, ignore_errors=True)

    def _old_folders(self) -> Iterator[Path]:
        return self._folder.parent.glob(f"{self._folder.name}{_OLD}*")

    def close(self) -> None:
        """Stop starting fetches; running fetches end by themselves."""
        self._fetchers.close()

    def _check_free_space(self, files: Sequence[File]) -> None:
        """Check that the files fit on the disk: a full disk would stop the whole worker.

        Raises:
            SnapshotError: the files do not fit.
        """
        needed = sum(each.bytes for each in files if not (self._folder / f"{each.sha256}.sst").exists())
        free = shutil.disk_usage(self._folder).free
        if needed + _FREE_BYTES > free:
            raise SnapshotError(
                f"its files need {needed} bytes, but the disk of '{self._folder}' has {free} free: enlarge the volume"
            )

    def _fetch_once(self, prefix: str, file: File, progress: FetchProgress) -> Path:
        # A cancelled fetch of the same file may still be writing it.
        with self._locks.setdefault(file.sha256, threading.Lock()):
            return self._fetch_and_verify(prefix, file, progress)

    def _fetch_and_verify(self, prefix: str, file: File, progress: FetchProgress) -> Path:
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
            found = f"{size} bytes instead of {file.bytes}" if size != file.bytes else "another SHA-256"
            raise SnapshotError(f"its file '{file.path}' is damaged: it has {found}")
        # RocksDB syncs an ingested file while it holds the GIL: sync it here, so that nothing is left to sync then.
        with local.open("rb") as opened:
            os.fsync(opened.fileno())
        return local
