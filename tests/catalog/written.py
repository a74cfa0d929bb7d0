"""Versions of tables as the snapshot job leaves them, written by pyiceberg without Spark."""

from __future__ import annotations

import uuid
from typing import Any

import msgspec
import pyarrow as pa
from pyiceberg.catalog.noop import NoopCatalog
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.table import CommitTableResponse, Table
from pyiceberg.table.metadata import new_table_metadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.table.update import update_table_metadata

from millpond.catalog import indexes
from millpond.catalog.indexes import CatalogVersion, StoreTable
from millpond.catalog.metadata import completed
from millpond.snapshots.locations import Location

__all__ = ("write_version",)


class _Catalog(NoopCatalog):
    """Keeps the metadata of a commit in memory."""

    def commit_table(self, table: Table, requirements: Any, updates: Any) -> CommitTableResponse:
        return CommitTableResponse(
            metadata=update_table_metadata(table.metadata, updates), metadata_location=table.metadata_location
        )


def write_version(
    location: Location,
    application: str,
    version: str,
    stores: dict[str, tuple[pa.Table, dict[int, int]]],
    as_of_ms: int,
    **counts: int,
) -> CatalogVersion:
    """Write a complete version.

    Args:
        location: where.
        application: application id.
        version: its name.
        stores: rows and offsets of each store.
        as_of_ms: its moment, in epoch ms.
        counts: `undecoded_keys` and `undecoded_values` of each store.
    """
    tables, written = [], []
    for store, (rows, offsets) in stores.items():
        uri = indexes.table_uri(location, application, version, store)
        io = PyArrowFileIO()
        metadata = new_table_metadata(
            _Catalog._convert_schema_if_needed(rows.schema), UNPARTITIONED_PARTITION_SPEC, UNSORTED_SORT_ORDER, uri,
            {}, uuid.uuid4(),
        )  # fmt: skip
        table = Table(("stores", store), metadata, f"{uri}/metadata/v0.metadata.json", io, _Catalog("test"))
        table.append(rows)
        snapshot = table.metadata.current_snapshot_id
        entry = StoreTable(
            store=store, snapshot_id=snapshot, changelog=f"{application}-{store}-changelog", offsets=offsets,
            rows=len(rows), bytes=rows.nbytes, **counts,
        )  # fmt: skip
        tables.append(entry)
        written.append(table)
    index = CatalogVersion(application=application, version=version, as_of_ms=as_of_ms, tables=tuple(tables))
    for entry, table in zip(index.tables, written, strict=True):
        whole = completed(msgspec.json.decode(table.metadata.model_dump_json()), index, entry, ())
        folder = indexes.table_path(application, version, entry.store)
        location.put(f"{folder}/metadata/v1.metadata.json", msgspec.json.encode(whole))
    indexes.publish(location, index)
    return index
