"""Build the files of a snapshot with Spark: read, reduce, write."""

from __future__ import annotations

import base64
import logging
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from pyspark.sql import DataFrame, SparkSession

from millpond.catalog.indexes import StoreTable
from millpond.runtime.offsets.metadata import Partition
from millpond.snapshots.layouts import StoreKind, StoreLayout, expired_before, metadata
from millpond.snapshots.locations import Location
from millpond.snapshots.manifest import File, Part, StoreSnapshot
from millpond.snapshots.versions import file_path
from millpond.state.formats import segment_interval

from . import reduce
from .boundaries import Boundaries, Range
from .changelog_reader import read_changelogs
from .global_rows import Recoder, Skipped
from .iceberg_tables import CatalogPlace, TableSource, write_tables
from .incremental import Base, stream_time_of
from .previous_snapshot import FILES, PreviousFile, Reader
from .progress import OnProgress, Stage, watched
from .sst_writer import WRITTEN, Target, Writer
from .stores import ChangelogStore
from .table_rows import ColumnDecoder
from .version_rows import Histories

__all__ = ("Built", "Place", "Tables", "Work", "build")

log = logging.getLogger(__name__)

_SMALL_BYTES = 1024 * 1024
_RECORDS_PER_TASK = 250_000

_StorePartition = tuple[int, int]
"""The number of a store, and a partition."""


class Place(NamedTuple):
    """The location that a version is written to."""

    location: Location
    credentials_dir: str | None
    application: str
    version: str

    @property
    def root(self) -> str:
        """The version's folder in the location."""
        return file_path(self.application, self.version, "").rstrip("/")


@dataclass(frozen=True)
class Work:
    """The snapshot to build. The number of a store is its index in `stores`."""

    stores: tuple[ChangelogStore, ...]
    boundaries: Boundaries
    base: Base
    place: Place
    options: Mapping[str, str]
    """The options of Spark's Kafka connector."""
    file_bytes: int
    """The approximate size of files, before compression."""
    tables: Tables | None = None
    """The tables to write; None for no tables."""
    lenient: bool = False
    """Whether records of global tables that cannot be decoded are skipped; otherwise they are errors."""

    def sources(self) -> list[reduce.ChangelogSource]:
        """Return the changelog range to read for each store partition."""
        found = []
        for number, store in enumerate(self.stores):
            for partition in range(store.partitions):
                limits = self.boundaries.ranges[Partition(store.topic, partition)]
                part = self.base.parts.get((store.name, partition))
                first = limits.first if part is None else part.offset
                buffer = store.layout.kind is StoreKind.BUFFER
                found.append(
                    reduce.ChangelogSource(
                        number,
                        store.topic,
                        partition,
                        first,
                        limits.end,
                        windowed=store.layout.windowed,
                        has_format=buffer,
                        schema_ids=store.schema_ids,
                    )
                )
        return found

    def previous_files(self, *, versioned: bool) -> list[PreviousFile]:
        """Return the files of the previous version whose rows are reused, of versioned stores or of all others."""
        numbers = {store.name: number for number, store in enumerate(self.stores)}
        version = self.base.version or ""
        return [
            PreviousFile(numbers[name], partition, file_path(self.place.application, version, file.path), file.sha256)
            for (name, partition), part in self.base.parts.items()
            if (numbers[name] in self.versioned()) == versioned
            for file in part.files
        ]

    def known_times(self) -> dict[_StorePartition, int]:
        """Return the stream times of partitions of versioned stores whose rows are reused, in ms."""
        times = {
            (number, partition): stream_time_of(self.base.parts.get((self.stores[number].name, partition)))
            for number in self.versioned()
            for partition in range(self.stores[number].partitions)
        }
        return {place: time for place, time in times.items() if time is not None}

    def versioned(self) -> dict[int, StoreLayout]:
        """Return the layouts of versioned stores, by number."""
        return {
            number: store.layout for number, store in enumerate(self.stores) if store.layout.kind is StoreKind.VERSIONED
        }

    def stream_times(self, found: Mapping[_StorePartition, reduce.Tally]) -> dict[_StorePartition, int | None]:
        """Return the largest time of each partition of a store of windows or sessions, in ms; None without records."""
        times: dict[_StorePartition, int | None] = {}
        for number, store in enumerate(self.stores):
            for partition in range(store.partitions) if store.layout.windowed else ():
                tally = found.get((number, partition))
                known = (tally and tally.stream_time_ms, stream_time_of(self.base.parts.get((store.name, partition))))
                times[number, partition] = max((each for each in known if each is not None), default=None)
        return times


class Tables(NamedTuple):
    """The tables to write."""

    place: CatalogPlace
    decoders: Mapping[str, ColumnDecoder]
    """The decoder of each store."""


class Built(NamedTuple):
    """A snapshot that was built."""

    stores: tuple[StoreSnapshot, ...]
    records: dict[str, int]
    """Store -> number of changelog records that were read."""
    tables: tuple[StoreTable, ...] = ()


def build(spark: SparkSession, work: Work, on_progress: OnProgress) -> Built:
    """Read the changelogs, write the files of all stores, and return the manifest's entries for them.

    Args:
        spark: the session; its settings are changed.
        work: the snapshot to build.
        on_progress: called with the progress.
    """
    sources = work.sources()
    offsets = sum(each.end - each.first for each in sources)
    cores = spark.sparkContext.defaultParallelism
    spark.conf.set("spark.sql.shuffle.partitions", str(max(cores, -(-offsets // _RECORDS_PER_TASK))))
    sessions = [number for number, store in enumerate(work.stores) if store.layout.kind is StoreKind.SESSION]
    windows = [number for number, store in enumerate(work.stores) if store.layout.windowed and number not in sessions]
    skipped = spark.sparkContext.accumulator(0) if work.lenient else None
    versioned = work.versioned()
    histories = None
    changes = _changes(spark, work, [each for each in sources if each.store not in versioned], skipped)
    newest = None
    try:
        if versioned:
            with watched(spark.sparkContext, Stage.READING, on_progress):
                read = _read(spark, work, [each for each in sources if each.store in versioned])
                read = _with_reused(spark, work, read, work.previous_files(versioned=True))
                histories = Histories(read, versioned, work.known_times())
            changes = changes.unionByName(histories.changes)
        newest = reduce.newest_of(changes, windows, sessions).persist()
        with watched(spark.sparkContext, Stage.READING, on_progress):
            found = reduce.tally(newest)
        if skipped is not None and skipped.value:
            log.warning(
                "global tables: %d records are skipped, as in workers, since Spark's executors cannot decode them",
                skipped.value,
            )
        times = work.stream_times(found)
        rows = reduce.live_rows(spark, newest, _bounds(work, times))
        if histories is not None:
            times.update(histories.stream_times)
        with watched(spark.sparkContext, Stage.WRITING, on_progress):
            files = _write(spark, work, rows, found)
        tables: list[StoreTable] = []
        if work.tables is not None:
            with watched(spark.sparkContext, Stage.TABLES, on_progress):
                tables = write_tables(spark, work.tables.place, _table_sources(work, work.tables, found), rows)
    finally:
        if newest is not None:
            newest.unpersist()
        if histories is not None:
            histories.close()
    stores = tuple(_store(work, number, files, times) for number in range(len(work.stores)))
    records = {
        store.name: histories.records.get(number, 0)
        if histories is not None and number in versioned
        else sum(each.records for (owner, _), each in found.items() if owner == number)
        for number, store in enumerate(work.stores)
    }
    return Built(stores, records, tuple(tables))


def _changes(
    spark: SparkSession, work: Work, sources: list[reduce.ChangelogSource], skipped: Skipped | None
) -> DataFrame:
    """Return the changelog records and the reused rows, with the columns of `reduce.CHANGES`."""
    serdes = {number: store.serdes for number, store in enumerate(work.stores) if store.serdes is not None}
    changes = _read(spark, work, [each for each in sources if each.store not in serdes])
    if serdes:
        recoder = Recoder(serdes, {number: work.stores[number].name for number in serdes}, skipped)
        read = _read(spark, work, [each for each in sources if each.store in serdes])
        changes = changes.unionByName(read.mapInArrow(recoder, reduce.CHANGES))
    return _with_reused(spark, work, changes, work.previous_files(versioned=False))


def _with_reused(spark: SparkSession, work: Work, changes: DataFrame, files: list[PreviousFile]) -> DataFrame:
    """Return changes together with the rows of files of the previous version."""
    if not files:
        return changes
    reader = Reader(work.place.location.uri, work.place.credentials_dir, tuple(each.layout for each in work.stores))
    listed = spark.createDataFrame(files, FILES).repartition(len(files), "path")
    return changes.unionByName(listed.mapInArrow(reader, reduce.CHANGES))


def _read(spark: SparkSession, work: Work, sources: list[reduce.ChangelogSource]) -> DataFrame:
    """Return the records of changelogs, with the columns of `reduce.CHANGES`."""
    ranges: dict[Partition, Range] = {}
    for each in sources:  # stores that share a changelog may begin at different offsets
        partition = Partition(each.topic, each.partition)
        known = ranges.get(partition, Range(each.first, each.end))
        ranges[partition] = Range(min(known.first, each.first), max(known.end, each.end))
    headers = any(each.has_format or each.schema_ids for each in sources)
    records = read_changelogs(spark, work.options, ranges, headers=headers)
    return reduce.changes_of(spark, records, sources)


def _write(
    spark: SparkSession,
    work: Work,
    rows: DataFrame,
    found: Mapping[_StorePartition, reduce.Tally],
) -> dict[_StorePartition, list[File]]:
    """Write the files; return them by store and partition, ordered by their keys."""
    size = sum(each.bytes for each in found.values())
    if not any(each.rows for each in found.values()):
        return {}
    ranges = (
        1
        if size < min(_SMALL_BYTES, work.file_bytes)
        else max(spark.sparkContext.defaultParallelism, -(-size // work.file_bytes))
    )
    targets = tuple(Target(each.layout, each.name) for each in work.stores)
    writer = Writer(work.place.location.uri, work.place.credentials_dir, work.place.root, targets)
    written = reduce.sorted_rows(rows, ranges).mapInArrow(writer, WRITTEN).collect()
    files: defaultdict[_StorePartition, list[File]] = defaultdict(list)
    for row in sorted(written, key=lambda row: bytes(row["first"])):
        files[row["store"], row["partition"]].append(
            File(path=row["path"], sha256=row["sha256"], bytes=row["bytes"], rows=row["rows"])
        )
    return files


def _bounds(work: Work, times: Mapping[_StorePartition, int | None]) -> list[reduce.Bound]:
    """Return the expiry bounds of the partitions of stores of windows and sessions."""
    bounds = []
    for (number, partition), time_ms in times.items():
        layout = work.stores[number].layout
        before = expired_before(layout, time_ms) or 0
        bounds.append(reduce.Bound(number, partition, before, segment_interval(layout.retention_ms)))
    return bounds


def _table_sources(work: Work, tables: Tables, found: Mapping[_StorePartition, reduce.Tally]) -> list[TableSource]:
    """Return the stores whose tables are written."""
    return [
        TableSource(
            number,
            store.topic,
            {each: work.boundaries.ranges[Partition(store.topic, each)].end for each in range(store.partitions)},
            sum(each.bytes for (owner, _), each in found.items() if owner == number),
            tables.decoders[store.name],
        )
        for number, store in enumerate(work.stores)
    ]


def _store(
    work: Work, number: int, files: Mapping[_StorePartition, list[File]], times: Mapping[_StorePartition, int | None]
) -> StoreSnapshot:
    """Return the manifest's entry for a store."""
    store = work.stores[number]
    parts = []
    for partition in range(store.partitions):
        own = tuple(files.get((number, partition), ()))
        encoded = metadata(store.layout, times.get((number, partition)))
        parts.append(
            Part(
                partition=partition,
                offset=work.boundaries.ranges[Partition(store.topic, partition)].end,
                as_of_ms=work.boundaries.as_of_ms,
                metadata_b64=base64.b64encode(encoded).decode(),
                rows=sum(each.rows for each in own),
                bytes=sum(each.bytes for each in own),
                files=own,
            )
        )
    return StoreSnapshot(
        store=store.name,
        layout=store.layout,
        topic=store.topic,
        topic_id=work.boundaries.facts[store.topic].id,
        partitions=store.partitions,
        parts=tuple(parts),
    )
