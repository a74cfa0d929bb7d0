"""Write the rows of a snapshot into SST files and upload them. Runs in executors."""

from __future__ import annotations

import tempfile
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, groupby
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from millpond.snapshots.layouts import StoreLayout, row_function
from millpond.snapshots.locations import open_location
from millpond.snapshots.sst import write_sst
from millpond.state.formats import BUFFER_HEADERS

__all__ = ("WRITTEN", "Target", "Writer")

WRITTEN = "store int, partition int, path string, sha256 string, bytes long, rows long, first binary"
"""The columns of the result: a row for each written file, with its first key."""

_WRITTEN = pa.schema(
    [
        ("store", pa.int32()), ("partition", pa.int32()), ("path", pa.string()), ("sha256", pa.string()),
        ("bytes", pa.int64()), ("rows", pa.int64()), ("first", pa.binary()),
    ]
)  # fmt: skip


_FORMAT = BUFFER_HEADERS[0][0]


class Target(NamedTuple):
    """The destination of a store's rows."""

    layout: StoreLayout
    folder: str
    """The folder of the store's files, within the version's folder."""


class _Run(NamedTuple):
    """Consecutive rows of one store partition."""

    place: tuple[int, int]
    """The number of the store, and the partition."""
    columns: list[list[Any]]
    """Keys, values, timestamps in ms, and headers of the rows."""


@dataclass(frozen=True)
class Writer:
    """The writer of one file for each store partition in a range of rows; a function for `DataFrame.mapInArrow`."""

    location: str
    """The URI of the location."""
    credentials_dir: str | None
    root: str
    """The version's folder in the location."""
    targets: tuple[Target, ...]
    """The targets of stores, by number."""

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Write rows in the order of the state file; yield batches with the columns of `WRITTEN`."""
        location = open_location(self.location, self.credentials_dir)
        with tempfile.TemporaryDirectory(prefix="millpond-snapshot-") as scratch:
            for (store, partition), runs in groupby(_runs(batches), itemgetter(0)):
                target = self.targets[store]
                make = row_function(target.layout, partition)
                rows: Iterator[Any] = chain.from_iterable(map(make, *run.columns) for run in runs)
                first = next(rows)
                # Unique: attempts of the same Spark task, which may run at the same time, must not write to the same
                # file.
                name = f"{target.folder}/{partition}-{uuid.uuid4().hex[:12]}.sst"
                local = Path(scratch) / "rows.sst"
                written = write_sst(chain([first], rows), local)
                location.put_file(local, f"{self.root}/{name}")
                local.unlink()
                record = (store, partition, name, written.sha256, written.bytes, written.rows, first[0])
                yield pa.record_batch([pa.array([each]) for each in record], names=_WRITTEN.names).cast(_WRITTEN)


def _runs(batches: Iterable[pa.RecordBatch]) -> Iterator[_Run]:
    """Divide batches into runs at the end of each store partition."""
    for batch in batches:
        stores, partitions = batch.column("store").to_pylist(), batch.column("partition").to_pylist()
        columns = [batch.column(name).to_pylist() for name in ("key", "value", "timestamp_ms")]
        columns.append([None if each is None else [(_FORMAT, each)] for each in batch.column("format").to_pylist()])
        begin = 0
        while begin < len(batch):
            place = stores[begin], partitions[begin]
            if place == (stores[-1], partitions[-1]):
                end = len(batch)
            else:
                end = begin + 1
                while (stores[end], partitions[end]) == place:
                    end += 1
            yield _Run(place, [column[begin:end] for column in columns])
            begin = end
