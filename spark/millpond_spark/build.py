"""Build the files of a snapshot with Spark: read, reduce, write."""

from __future__ import annotations

import base64
import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import reduce as fold
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
from .changelog_reader import RECORDS, read_changelogs
from .cuts.boundaries import Boundaries, Range
from .cuts.log_tails import TailRecord
from .cuts.moving_cut import FOLLOWED, MovingCut
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

#: How often Spark reads what was written meanwhile, before the driver reads the rest.
_PASSES = 10

_StorePartition = tuple[int, int]
"""The number of a store, and a partition."""
_Read = Callable[[list[reduce.ChangelogSource]], DataFrame]
"""Returns the records of changelogs, with the columns of `reduce.CHANGES`."""


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
    cut: MovingCut | None = None
    """Moves the boundaries to a moment at which all rows are complete; None to end at the boundaries."""
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
    boundaries: Boundaries
    """The boundaries of the rows."""
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
    changelogs = _Changelogs(spark, work, skipped)
    changes, versions = changelogs.all_before(sources, changelogs.from_kafka)
    newest = None
    try:
        if work.cut is not None:
            with watched(spark.sparkContext, Stage.READING, on_progress):
                changes, versions, boundaries = _moved(changelogs, work.cut, sources, changes, versions)
            work = replace(work, boundaries=boundaries)
        if versioned:
            with watched(spark.sparkContext, Stage.READING, on_progress):
                histories = Histories(versions, versioned, work.known_times())
            changes = changes.unionByName(histories.changes, allowMissingColumns=True)
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
    return Built(stores, records, work.boundaries, tuple(tables))


def _moved(
    changelogs: _Changelogs,
    cut: MovingCut,
    sources: list[reduce.ChangelogSource],
    changes: DataFrame,
    versions: DataFrame,
) -> tuple[DataFrame, DataFrame, Boundaries]:
    """Read all changelogs, and what is written meanwhile, until their rows are complete.

    Args:
        changelogs: reads records.
        cut: finds the cut.
        sources: the records of each store partition up to the first boundaries.
        changes: these records, without those of versioned stores.
        versions: the records of versioned stores.

    Returns:
        The changes, with the column `records`; the records of versioned stores; and the boundaries of both.
    """
    read = {each: limits.end for each, limits in cut.start.ranges.items()}
    versioned = bool(changelogs.work.versioned())
    parts = [(_kept(reduce.reduced(changes)), _kept(versions) if versioned else versions)]
    for _ in range(_PASSES):
        ends = cut.ends(read)
        if sum(ends[each] - end for each, end in read.items()) <= FOLLOWED:
            break
        found, other = changelogs.since(sources, read, ends, changelogs.from_kafka)
        parts.append((_kept(reduce.reduced(found)), _kept(other) if versioned else other))
        read = ends
    boundaries, records = cut.find(read)
    ends = {each: limits.end for each, limits in boundaries.ranges.items()}
    found, other = changelogs.since(sources, read, ends, lambda each: changelogs.from_driver(records, each))
    parts.append((reduce.reduced(found), other))
    of_changes, of_versions = (fold(DataFrame.unionByName, each) for each in zip(*parts, strict=True))
    return of_changes, of_versions, boundaries


def _kept(records: DataFrame) -> DataFrame:
    """Read records now and only once: a second time, compaction may have removed some.

    If an executor that keeps them ends, Spark ends the job.
    """
    return records.localCheckpoint()


@dataclass(frozen=True)
class _Changelogs:
    """The reader of records of changelogs."""

    spark: SparkSession
    work: Work
    skipped: Skipped | None
    """Counts records of global tables that are skipped, see `Recoder`."""

    def all_before(self, sources: list[reduce.ChangelogSource], read: _Read) -> tuple[DataFrame, DataFrame]:
        """Return records and reused rows of all stores but versioned ones, and those of versioned stores.

        Both have the columns of `reduce.CHANGES`.
        """
        changes, versions = self._changes(sources, read)
        previous = self.work.previous_files
        return (
            _with_reused(self.spark, self.work, changes, previous(versioned=False)),
            _with_reused(self.spark, self.work, versions, previous(versioned=True)),
        )

    def since(
        self,
        sources: list[reduce.ChangelogSource],
        firsts: Mapping[Partition, int],
        ends: Mapping[Partition, int],
        read: _Read,
    ) -> tuple[DataFrame, DataFrame]:
        """Return the records between offsets: of all stores but versioned ones, and of versioned stores."""
        later = []
        for each in sources:
            partition = Partition(each.topic, each.partition)
            later.append(each._replace(first=firsts[partition], end=ends[partition]))
        return self._changes(later, read)

    def from_kafka(self, sources: list[reduce.ChangelogSource]) -> DataFrame:
        """Return records that Spark reads."""
        ranges: dict[Partition, Range] = {}
        for each in sources:  # stores that share a changelog may begin at different offsets
            partition = Partition(each.topic, each.partition)
            known = ranges.get(partition, Range(each.first, each.end))
            ranges[partition] = Range(min(known.first, each.first), max(known.end, each.end))
        headers = any(each.needs_headers for each in sources)
        records = read_changelogs(self.spark, self.work.options, ranges, headers=headers)
        return reduce.changes_of(self.spark, records, sources)

    def from_driver(self, records: Iterable[TailRecord], sources: list[reduce.ChangelogSource]) -> DataFrame:
        """Return those of records that the driver has read."""
        wanted = {(each.topic, each.partition) for each in sources}
        own = [each for each in records if each[:2] in wanted]
        return reduce.changes_of(self.spark, self.spark.createDataFrame(own, RECORDS), sources)

    def _changes(self, sources: list[reduce.ChangelogSource], read: _Read) -> tuple[DataFrame, DataFrame]:
        versioned = self.work.versioned()
        stores = self.work.stores
        serdes = {number: store.serdes for number, store in enumerate(stores) if store.serdes is not None}
        changes = read([each for each in sources if each.store not in versioned and each.store not in serdes])
        if serdes:
            recoder = Recoder(serdes, {number: stores[number].name for number in serdes}, self.skipped)
            recoded = read([each for each in sources if each.store in serdes]).mapInArrow(recoder, reduce.CHANGES)
            changes = changes.unionByName(recoded)
        return changes, read([each for each in sources if each.store in versioned])


def _with_reused(spark: SparkSession, work: Work, changes: DataFrame, files: list[PreviousFile]) -> DataFrame:
    """Return changes together with the rows of files of the previous version."""
    if not files:
        return changes
    reader = Reader(work.place.location.uri, work.place.credentials_dir, tuple(each.layout for each in work.stores))
    listed = spark.createDataFrame(files, FILES).repartition(len(files), "path")
    return changes.unionByName(listed.mapInArrow(reader, reduce.CHANGES))


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
