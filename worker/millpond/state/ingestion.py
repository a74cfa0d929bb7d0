"""Replaces the rows of a store partition by SST files, one file at a time, so that other work can go on between them.

    begin: rows, offset and provenance are deleted, and a marker is written ──> one file after another
    ──> finish: offset, metadata and provenance are written, and the marker is deleted

A process that is killed in between leaves the marker. Whoever opens the state file next deletes what was ingested: without
its offset, part of a snapshot could have keys that the changelog no longer says were deleted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple, NoReturn, Protocol

from rocksdict import IngestExternalFileOptions, WriteBatch

from millpond.errors import StateError

from .families import Family
from .formats import partition_prefix
from .provenance import Provenance

__all__ = ("MARKER", "End", "Hooks", "Ingestion", "StateFileIngestion")

MARKER = b"\0ingesting:"
"""Begins the key of a marker. No store's name begins so, and the value is an offset's length, as older versions expect."""
_MARKED = b"\xff" * 8


class End(NamedTuple):
    """Where the rows end in one partition of their changelog."""

    offset: int
    """To continue from."""
    metadata: bytes
    """As the store's `metadata()` would be."""
    provenance: Provenance
    """Where the rows come from."""


class Ingestion(Protocol):
    """One store partition on its way from files into a backend, which has deleted the old rows.

    Nothing else may read or write the partition until `finish` or `abandon`.
    """

    def add(self, path: Path) -> bool:
        """Take rows of an SST file; return whether it was all of them. Else call it with the same file again. Quick.

        The file is gone when all rows are taken. Its rows must be of this partition, which is not checked.

        Raises:
            StateError: the file cannot be read.
        """

    def finish(self, ends: Mapping[int, End]) -> None:
        """Write what stands beside the rows: from here on they are there.

        Args:
            ends: by partition of the changelog; of a global store all those that its topic has, else one.

        Raises:
            StateError: the disk is full or fails.
        """

    def abandon(self) -> None:
        """Delete what was ingested so far."""


class Hooks(NamedTuple):
    """What an ingestion does to the state file."""

    family: Callable[[str], Family]
    """The column family of a store, made when it is new."""
    finish: Callable[[str, int, Mapping[int, End]], None]
    """Writes what stands beside the rows of a store, and deletes the marker of the partition."""
    drop: Callable[[str, int], None]
    """Deletes the rows of a partition and all that stands beside them."""
    fail: Callable[[Exception, str], NoReturn]
    """Raises what an error of RocksDB means."""
    generation: Callable[[], int]
    """Changes when the database is closed or opened anew."""


class StateFileIngestion:
    """An `Ingestion` into the database; made by `StateFile.ingestion`."""

    def __init__(self, hooks: Hooks, store: str, partition: int) -> None:
        self.store = store
        self.partition = partition
        self._hooks = hooks
        self._generation = hooks.generation()

    def add(self, path: Path) -> bool:
        """Move one SST file into the database, as a whole: True. Of a key that an earlier file has, the new row counts.

        The file must be on the file system of the state directory, and written through to the disk: the call holds the
        interpreter's lock until RocksDB has synced it.

        Raises:
            StateError: the file cannot be read.
        """
        self._check()
        try:
            options = IngestExternalFileOptions()
            options.set_move_files(True)
            rows = self._hooks.family(self.store).rows
            if rows is None:
                raise StateError("the state file is closed")
            rows.ingest_external_file([str(path)], options)
            return True
        except Exception as error:
            self._hooks.fail(error, self.store)
        finally:
            rows = None

    def finish(self, ends: Mapping[int, End]) -> None:
        """Write what stands beside the rows, all at once; see `Ingestion`."""
        self._check()
        self._hooks.finish(self.store, self.partition, ends)

    def abandon(self) -> None:
        """Delete what was ingested so far, unless the database was opened anew, which has done that."""
        if self._generation == self._hooks.generation():
            self._hooks.drop(self.store, self.partition)

    def _check(self) -> None:
        if self._generation != self._hooks.generation():
            raise StateError(
                f"store '{self.store}' cannot be ingested: the state file was closed or opened anew meanwhile"
            )


def marker_key(store: str, partition: int) -> bytes:
    """Return the key of the marker of an unfinished ingestion."""
    return MARKER + store.encode() + partition_prefix(partition)


def mark(batch: WriteBatch, store: str, partition: int) -> None:
    """Put the marker into a batch."""
    batch.put(marker_key(store, partition), _MARKED)
