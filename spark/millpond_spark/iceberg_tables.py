"""Write the rows of a snapshot as Apache Iceberg tables, one table for each store.

Spark commits a table through a catalog in the driver's memory (Iceberg's JDBC catalog on Derby), which ends with the
job. It continues the metadata of the newest complete version. Only files remain: `millpond.catalog.indexes` describes
their layout, and the index that is written last.
"""

from __future__ import annotations

import contextlib
import logging
import os
import uuid
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql
from pyspark.sql.pandas.types import from_arrow_schema

from millpond.catalog.file_io import file_properties
from millpond.catalog.indexes import CatalogVersion, StoreTable, read, table_path, table_uri, versions
from millpond.catalog.metadata import completed
from millpond.errors import SnapshotError
from millpond.snapshots.locations import Location

from .table_rows import ColumnDecoder

__all__ = ("CatalogPlace", "TableSource", "base_of", "complete_tables", "write_tables")

log = logging.getLogger(__name__)

_METADATA = "metadata/v1.metadata.json"
_HINT = "metadata/version-hint.text"
_NAMESPACE = "stores"
_SMALL_BYTES = 1024 * 1024


class CatalogPlace(NamedTuple):
    """The location that the tables of a version are written to."""

    location: Location
    credentials_dir: str | None
    application: str
    version: str


@dataclass(frozen=True)
class TableSource:
    """A store whose table is written."""

    number: int
    """The number of the store, in the column `store` of the rows."""
    changelog: str
    """The real name of the topic."""
    offsets: dict[int, int]
    """Partition -> offset after the last record in the rows."""
    bytes: int
    """The approximate size of keys and values."""
    decoder: ColumnDecoder


def base_of(place: CatalogPlace) -> CatalogVersion | None:
    """Return the newest readable version, whose tables are continued; None without one."""
    for version in versions(place.location, place.application):
        try:
            return read(place.location, place.application, version)
        except SnapshotError as error:
            log.warning("tables of %s, version %s: skipped: %s", place.application, version, error)
    return None


def write_tables(
    spark: SparkSession, place: CatalogPlace, sources: Sequence[TableSource], rows: DataFrame
) -> list[StoreTable]:
    """Write the table of each store, before `complete_tables` and the index.

    Args:
        spark: a session for this job alone; its settings are changed.
        place: the location to write to.
        sources: the stores to write.
        rows: the rows of all stores, with the columns of `reduce.live_rows`; they are computed once for each store.

    Raises:
        SnapshotError: the location cannot be used, or the application cannot be imported by executors.
    """
    base = base_of(place)
    catalog = _Catalog(spark, place)
    try:
        return [_write(catalog, base, each, rows.where(sql.col("store") == each.number)) for each in sources]
    finally:
        catalog.close()


def complete_tables(place: CatalogPlace, index: CatalogVersion, kept: Collection[str]) -> None:
    """Write the final metadata of each table into the folder of the version.

    Args:
        place: the location of the tables.
        index: the index of the version; this function does not write it.
        kept: earlier versions that retention keeps.

    Raises:
        SnapshotError: the location cannot be used.
    """
    location = place.location
    for table in index.tables:
        folder = table_path(place.application, place.version, table.store)
        written = _metadata_files(location, folder)
        metadata = msgspec.json.decode(location.get(written[-1]))
        location.put(f"{folder}/{_METADATA}", msgspec.json.encode(completed(metadata, index, table, kept)))
        location.put(f"{folder}/{_HINT}", b"1")
        # With the checksum files that Hadoop writes beside its files.
        checksums = ["{}/.{}.crc".format(*path.rsplit("/", 1)) for path in written]
        location.delete([*written, *checksums])


def _metadata_files(location: Location, folder: str) -> list[str]:
    """Return the metadata files that Spark wrote for a table, oldest first."""
    return [path for path, _ in location.list(f"{folder}/metadata") if path.endswith(".metadata.json")]


def _write(catalog: _Catalog, base: CatalogVersion | None, source: TableSource, rows: DataFrame) -> StoreTable:
    decoder, place = source.decoder, catalog.place
    if base is not None and any(each.store == decoder.store for each in base.tables):
        catalog.register(decoder.store, table_uri(place.location, place.application, base.version, decoder.store))
    if source.bytes < _SMALL_BYTES:
        rows = rows.coalesce(1)
    decoded = rows.mapInArrow(decoder, from_arrow_schema(decoder.columns().schema))
    # Replaced as a whole, with the application's current schema. Columns keep their ids by name, so older versions stay
    # comparable.
    (
        decoded.writeTo(catalog.identifier(decoder.store))
        .using("iceberg")
        .tableProperty("location", table_uri(place.location, place.application, place.version, decoder.store))
        .tableProperty("format-version", "2")
        .tableProperty("write.metadata.metrics.default", "counts")  # of all columns, however many there are
        .createOrReplace()
    )
    count, size, keys, values = catalog.totals(decoder.store, decoded="key_raw" in decoded.columns)
    return StoreTable(
        store=decoder.store,
        snapshot_id=catalog.snapshot_id(decoder.store),
        changelog=source.changelog,
        offsets=source.offsets,
        rows=count,
        bytes=size,
        undecoded_keys=keys,
        undecoded_values=values,
        undecoded_reason=decoder.reason,
    )


class _Catalog:
    """Iceberg's catalog in the driver's memory, registered in Spark under a unique name."""

    def __init__(self, spark: Any, place: CatalogPlace) -> None:  # Any: a session's access to Java has no types
        self.place = place
        self._spark = spark
        self._jvm = spark._jvm  # noqa: SLF001  # the only way to Java
        self._name = f"millpond_{uuid.uuid4().hex}"
        # Names of a Struct's fields may differ only by case.
        spark.conf.set("spark.sql.caseSensitive", "true")
        self._jvm.java.lang.System.setProperty("derby.stream.error.file", os.devnull)
        uri = place.location.uri
        files = file_properties(uri, place.credentials_dir)
        access = "aws.s3.S3FileIO" if files else "hadoop.HadoopFileIO"
        properties = {
            "uri": f"jdbc:derby:memory:{self._name};create=true",
            "warehouse": uri,
            "io-impl": f"org.apache.iceberg.{access}",
            **files,
        }
        implementation = "org.apache.iceberg.jdbc.JdbcCatalog"
        setting = f"spark.sql.catalog.{self._name}"
        spark.conf.set(setting, "org.apache.iceberg.spark.SparkCatalog")
        spark.conf.set(f"{setting}.catalog-impl", implementation)
        spark.conf.set(f"{setting}.cache-enabled", "false")
        given = self._jvm.java.util.HashMap()
        for name, value in properties.items():
            spark.conf.set(f"{setting}.{name}", value)
            given.put(name, value)
        hadoop = spark.sparkContext._jsc.hadoopConfiguration()  # noqa: SLF001  # the only way to Java
        # A second catalog on the same database, for operations that Spark's SQL does not have.
        self._catalog = self._jvm.org.apache.iceberg.CatalogUtil.loadCatalog(implementation, self._name, given, hadoop)

    def close(self) -> None:
        """Delete the catalog; the tables' files stay."""
        self._catalog.close()
        with contextlib.suppress(Exception):  # Derby reports success with an exception
            self._jvm.java.sql.DriverManager.getConnection(f"jdbc:derby:memory:{self._name};drop=true")

    def identifier(self, store: str) -> str:
        """Return the identifier of a store's table in Spark's SQL."""
        return f"{self._name}.{_NAMESPACE}.`{store}`"

    def register(self, store: str, uri: str) -> None:
        """Continue the table at a URI; start a new table if its metadata cannot be read."""
        try:
            self._catalog.registerTable(self._identifier(store), f"{uri}/{_METADATA}")
        except Exception as error:  # noqa: BLE001  # of Java, or of the object store
            reason = str(getattr(error, "java_exception", error)).splitlines()[0]
            log.warning("table %s: starting without earlier versions; cannot continue %s (%s)", store, uri, reason)

    def totals(self, store: str, *, decoded: bool) -> tuple[int, int, int, int]:
        """Return rows, bytes, undecoded keys and undecoded values of a table, from its files' statistics."""
        raw = [
            sql.sum(sql.expr(f"readable_metrics.{name}.value_count - readable_metrics.{name}.null_value_count"))
            if decoded
            else sql.lit(0)
            for name in ("key_raw", "value_raw")
        ]
        files = self._spark.table(f"{self.identifier(store)}.files")
        found = files.agg(sql.sum("record_count"), sql.sum("file_size_in_bytes"), *raw).first()
        assert found is not None
        rows, size, keys, values = (each or 0 for each in found)
        return rows, size, keys, values

    def snapshot_id(self, store: str) -> int:
        """Return the id of a table's current snapshot."""
        found: int = self._catalog.loadTable(self._identifier(store)).currentSnapshot().snapshotId()
        return found

    def _identifier(self, store: str) -> Any:
        gateway = self._spark.sparkContext._gateway  # noqa: SLF001  # the only way to Java
        names = gateway.new_array(self._jvm.java.lang.String, 2)
        names[0], names[1] = _NAMESPACE, store
        return self._jvm.org.apache.iceberg.catalog.TableIdentifier.of(names)
