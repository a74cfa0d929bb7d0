"""Read the files of the previous snapshot as changelog records that restore the same rows. Runs in executors."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
from rocksdict import Options, Rdict

from millpond.errors import SnapshotError
from millpond.snapshots.layouts import StoreKind, StoreLayout
from millpond.snapshots.locations import open_location
from millpond.snapshots.sst import file_sha256
from millpond.state.formats import (
    BUFFER_HEADERS,
    PARTITION_LENGTH,
    SEGMENT_LENGTH,
    TIMESTAMP_LENGTH,
    unpack_timestamp,
)
from millpond.state.stores.versioned.history import VERSION_LENGTH, version_of

__all__ = ("FILES", "PreviousFile", "Reader", "changes_of_rows")

FILES = "store int, partition int, path string, sha256 string"
"""The columns of the files to read."""

_BATCH = 10_000
_CHANGES = pa.schema(
    [
        ("store", pa.int32()), ("partition", pa.int32()), ("key", pa.binary()), ("value", pa.binary()),
        ("timestamp_ms", pa.int64()), ("format", pa.binary()), ("offset", pa.int64()),
    ]
)  # fmt: skip
#: The offset of these records: below those of the changelog.
_BEFORE_ALL = -1
_WITH_TIMESTAMP = frozenset({StoreKind.TIMESTAMPED_KEY_VALUE, StoreKind.TIMESTAMPED_WINDOW})


class PreviousFile(NamedTuple):
    """A file of the previous snapshot."""

    store: int
    """The number of the store in the new snapshot."""
    partition: int
    path: str
    """The path in the location."""
    sha256: str


def changes_of_rows(
    layout: StoreLayout, rows: list[tuple[bytes, bytes]]
) -> tuple[list[bytes], list[bytes | None], list[int]]:
    """Return the keys, values and timestamps (ms) of changelog records that restore these rows.

    For stores without timestamps the timestamps are 0.
    """
    if layout.kind is StoreKind.VERSIONED:
        keys = [key[PARTITION_LENGTH:-VERSION_LENGTH] for key, _ in rows]
        times = [unpack_timestamp(key, len(key) - VERSION_LENGTH)[0] for key, _ in rows]
        return keys, [version_of(value) for _, value in rows], times
    prefix = PARTITION_LENGTH + (SEGMENT_LENGTH if layout.windowed else 0)
    keys = [key[prefix:] for key, _ in rows]
    if layout.kind not in _WITH_TIMESTAMP:
        return keys, [value for _, value in rows], [0] * len(rows)
    return keys, [value[TIMESTAMP_LENGTH:] for _, value in rows], [unpack_timestamp(value)[0] for _, value in rows]


@dataclass(frozen=True)
class Reader:
    """The reader of the previous snapshot's files; a function for `DataFrame.mapInArrow`."""

    location: str
    """The URI of the location."""
    credentials_dir: str | None
    layouts: tuple[StoreLayout, ...]
    """The layouts of stores, by number."""

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Read the files in batches with the columns of `FILES`; yield batches with the columns of `reduce.CHANGES`."""
        for batch in batches:
            for file in batch.to_pylist():
                yield from self._read(PreviousFile(**file))

    def _read(self, file: PreviousFile) -> Iterator[pa.RecordBatch]:
        location = open_location(self.location, self.credentials_dir)
        layout = self.layouts[file.store]
        with tempfile.TemporaryDirectory(prefix="millpond-snapshot-") as scratch:
            local = Path(scratch) / "rows.sst"
            try:
                location.fetch(file.path, local)
            except SnapshotError as error:
                raise SnapshotError(
                    f"{error} (the previous snapshot, which this one builds upon, may have been deleted meanwhile, for "
                    "example by another job with --keep): make this one again"
                ) from error
            if file_sha256(local) != file.sha256:
                raise SnapshotError(
                    f"file '{file.path}' of the previous snapshot is damaged: make this one without it, with --full"
                )
            # rocksdict reads no SST file by itself.
            database = Rdict(str(Path(scratch) / "db"), Options(raw_mode=True))
            try:
                database.ingest_external_file([str(local)])
                found: Iterator[Any] = iter(database.items())
                while rows := list(islice(found, _BATCH)):
                    yield _batch(file, layout, rows)
                del found
            finally:
                database.close()


def _batch(file: PreviousFile, layout: StoreLayout, rows: list[tuple[bytes, bytes]]) -> pa.RecordBatch:
    keys, values, timestamps = changes_of_rows(layout, rows)
    count = len(rows)
    form = BUFFER_HEADERS[0][1] if layout.kind is StoreKind.BUFFER else None
    columns = [
        pa.array([file.store] * count, pa.int32()), pa.array([file.partition] * count, pa.int32()),
        pa.array(keys, pa.binary()), pa.array(values, pa.binary()), pa.array(timestamps, pa.int64()),
        pa.array([form] * count, pa.binary()), pa.array([_BEFORE_ALL] * count, pa.int64()),
    ]  # fmt: skip
    return pa.RecordBatch.from_arrays(columns, schema=_CHANGES)
