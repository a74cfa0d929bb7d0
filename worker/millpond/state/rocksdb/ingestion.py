"""Ingestion into the state file.

    begin: rows and checkpoint are deleted, a marker is written ──> one file after another
    ──> finish: the checkpoint is written, the marker is deleted

A process that is killed in between leaves the marker. The next process that opens the state file deletes these rows:
without its offset, part of a snapshot could have keys whose deletion the changelog has forgotten.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path

from rocksdict import IngestExternalFileOptions, WriteBatch

from millpond.errors import StateError
from millpond.state.formats import partition_prefix
from millpond.state.ingestion import Checkpoint

from .checkpoints import delete_checkpoints, delete_marker, put_marker, put_offsets, put_provenances
from .database import Database

__all__ = ("StateFileIngestion",)


class StateFileIngestion:
    """An `Ingestion` into the database; made by `StateFile.ingestion`."""

    def __init__(self, database: Database, store: str, partition: int, beside: Collection[int]) -> None:
        """Delete the rows and the checkpoints; see `StateFile.ingestion`."""
        self.store = store
        self.partition = partition
        self._database = database
        places = [(store, each) for each in {partition, *beside}]
        low, high = partition_prefix(partition), partition_prefix(partition + 1)
        has_rows = next(database.scan(store, low, high, reverse=False), None) is not None

        def fill(batch: WriteBatch) -> None:
            if has_rows:
                batch.delete_range(low, high, database.family(store).handle)
            delete_checkpoints(batch, places)
            put_marker(batch, store, partition)

        database.write(fill)
        for each in places:
            database.checkpoints.forget(each)
        database.checkpoints.unfinished.add((store, partition))
        database.sync()
        if has_rows:
            database.flush(store)
        self._generation = database.generation

    def add(self, path: Path) -> bool:
        """Move one whole SST file into the database; return True. A row of a later file replaces an earlier one.

        The file must be on the file system of the state directory, and synced to the disk: the call holds the
        interpreter's lock until RocksDB has synced it.

        Raises:
            StateError: the file cannot be read.
        """
        self._check()
        try:
            options = IngestExternalFileOptions()
            options.set_move_files(True)
            rows = self._database.family(self.store).rows
            if rows is None:
                raise StateError("the state file is closed")
            rows.ingest_external_file([str(path)], options)
            return True
        except Exception as error:  # noqa: BLE001  # RocksDB raises plain exceptions
            self._database.fail(error, self.store)
        finally:
            rows = None

    def finish(self, checkpoints: Mapping[int, Checkpoint]) -> None:
        """Write the checkpoints, all at once; see `Ingestion`."""
        self._check()
        written = {(self.store, number): (each.offset, each.metadata) for number, each in checkpoints.items()}
        provenances = {(self.store, number): each.provenance for number, each in checkpoints.items()}

        def fill(batch: WriteBatch) -> None:
            put_offsets(batch, written)
            put_provenances(batch, provenances)
            delete_marker(batch, self.store, self.partition)

        self._database.write(fill)
        known = self._database.checkpoints
        known.unfinished.discard((self.store, self.partition))
        known.written.update(written)
        known.provenances.update(provenances)

    def abandon(self) -> None:
        """Delete the rows ingested so far, unless they were deleted when the database was opened again."""
        if self._generation == self._database.generation:
            self._database.drop(self.store, self.partition)

    def _check(self) -> None:
        if self._generation != self._database.generation:
            raise StateError(
                f"store '{self.store}' cannot be ingested: the state file was closed or opened again meanwhile"
            )
