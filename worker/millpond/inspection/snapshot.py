"""The rows of a snapshot, as a source."""

from __future__ import annotations

import tempfile
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

from rocksdict import Options, Rdict

from millpond.errors import SnapshotError
from millpond.snapshots.locations import Location
from millpond.snapshots.manifest import File, Manifest, Part
from millpond.snapshots.sst import file_sha256
from millpond.snapshots.versions import file_path

from .sources import HeldStore, NotReadable, Row, StoreRows

__all__ = ("SnapshotSource",)


class SnapshotSource:
    """One version of a snapshot. Files are fetched one at a time and checked against the manifest."""

    def __init__(self, location: Location, manifest: Manifest) -> None:
        self.manifest = manifest
        self._location = location

    @property
    def name(self) -> str:
        """The version."""
        return self.manifest.version

    def held(self) -> list[HeldStore]:
        """See `Source`."""
        return [
            HeldStore(store.store, part.partition, "", part.offset)
            for store in self.manifest.stores
            for part in store.parts
        ]

    @contextmanager
    def open(self, store: str, partition: int) -> Iterator[StoreRows]:
        """See `Source`."""
        found = self.manifest.store(store)
        part = None if found is None else found.part(partition)
        if found is None or part is None:
            raise NotReadable(f"snapshot {self.name} does not have partition {partition} of store '{store}'")
        with tempfile.TemporaryDirectory(prefix="millpond-state-") as scratch:
            rows = self._rows(part, Path(scratch))
            try:
                yield StoreRows(part.offset, part.metadata, found.topic_id, part.as_of_ms, rows)
            finally:
                rows.close()

    def _rows(self, part: Part, scratch: Path) -> Generator[Row, None, None]:
        # The files are in ascending order of keys.
        for file in part.files:
            yield from self._file_rows(file, scratch)

    def _file_rows(self, file: File, scratch: Path) -> Iterator[Row]:
        local = scratch / "rows.sst"
        try:
            self._location.fetch(file_path(self.manifest.application, self.name, file.path), local)
        except SnapshotError as error:
            raise NotReadable(str(error)) from error
        if file_sha256(local) != file.sha256:
            raise NotReadable(
                f"file '{file.path}' of snapshot {self.name} is damaged: its SHA-256 is not that of the manifest; "
                "take a new snapshot"
            )
        # rocksdict cannot read an SST file directly.
        path, options = str(scratch / "db"), Options(raw_mode=True)
        database = Rdict(path, options)
        try:
            database.ingest_external_file([str(local)])
            found = iter(database.items())
            yield from found
            del found
        finally:
            database.close()
            Rdict.destroy(path, Options(raw_mode=True))
            local.unlink(missing_ok=True)
