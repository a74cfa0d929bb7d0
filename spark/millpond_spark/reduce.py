"""Reduce changelogs to the rows of a snapshot: DataFrame operations that run in the JVM, without Python.

The result is ordered by store, partition, segment and key. That is the order of the state file, where local keys are partition,
segment and key of a window store, and partition and key of any other.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql

from millpond.state.formats import BUFFER_HEADERS, WINDOW_SUFFIX_LENGTH

__all__ = (
    "CHANGES",
    "ORDER",
    "Bound",
    "ChangelogSource",
    "Tally",
    "alive_rows",
    "changes_of",
    "newest_of",
    "sorted_rows",
    "tally",
)

CHANGES = "store int, partition int, key binary, value binary, timestamp_ms long, format binary, offset long"
"""Columns of changelog records that belong to a store, which is named by its number.

`format` is the value of the last header "v", null for stores that do not look at headers. It is all that a row depends on, and Spark hands
arrays over to Python at a tenth of the speed. What a previous snapshot had has offset -1.
"""

ORDER = ("store", "partition", "segment", "key")
"""Columns that order rows as the state file does."""

_START_LENGTH = 8
_SOURCES = (
    "store int, source_topic string, source_partition int, first long, end long, windowed boolean, has_format boolean"
)
_BOUNDS = "bound_store int, bound_partition int, expired_before long, interval long"


class ChangelogSource(NamedTuple):
    """A store partition, and which records are its own."""

    store: int
    topic: str
    partition: int
    first: int
    """The first offset to take."""
    end: int
    """The first offset not to take."""
    windowed: bool
    """Whether keys end with a window start."""
    has_format: bool
    """Whether rows depend on the format that a header tells."""


class Tally(NamedTuple):
    """What was found for a store partition."""

    records: int
    """Records of the changelog that were read."""
    rows: int
    """Keys that have a value; those of expired windows count."""
    bytes: int
    """Of their keys and values."""
    stream_time_ms: int | None
    """The largest window start of all records, deletions included; None for a store without windows."""


class Bound(NamedTuple):
    """What expires in a partition of a window store."""

    store: int
    partition: int
    expired_before: int
    """Windows that start before this have expired, in ms."""
    interval: int
    """How many window starts share a segment, in ms."""


def changes_of(spark: SparkSession, records: DataFrame, sources: Iterable[ChangelogSource]) -> DataFrame:
    """Return the records that belong to stores, with the columns of `CHANGES`.

    Args:
        spark: runs it.
        records: with the columns of `read.RECORDS`.
        sources: what belongs to which store; a topic may be the changelog of several.
    """
    wanted = sql.broadcast(spark.createDataFrame(list(sources), _SOURCES))
    own = (
        (sql.col("topic") == sql.col("source_topic"))
        & (sql.col("partition") == sql.col("source_partition"))
        & (sql.col("offset") >= sql.col("first"))
        & (sql.col("offset") < sql.col("end"))
    )
    last = sql.try_element_at(sql.filter("headers", lambda header: header["key"] == BUFFER_HEADERS[0][0]), sql.lit(-1))
    return (
        records.where("key is not null")
        .join(wanted, own)
        .select(
            "store", "partition", "key", "value", "timestamp_ms",
            sql.when(sql.col("has_format"), last["value"]).alias("format"), "offset",
        )
    )  # fmt: skip


def newest_of(changes: DataFrame, windowed: Iterable[int]) -> DataFrame:
    """Return the newest change of each key: `store, partition, key, state, records, start`.

    `state` has value, timestamp_ms and format; `records` counts the changelog's; `start` is the window start in ms, null for
    stores without windows.

    Args:
        changes: with the columns of `CHANGES`.
        windowed: numbers of the window stores.
    """
    state = sql.struct("value", "timestamp_ms", "format")
    # Spark sorts to group values of any length, and compares 8 bytes of the first column before whole rows.
    hashed = changes.withColumn("hash", sql.xxhash64("store", "partition", "key"))
    newest = (
        hashed.groupBy("hash", "store", "partition", "key")
        .agg(sql.max_by(state, "offset").alias("state"), sql.count_if(sql.col("offset") >= 0).alias("records"))
        .drop("hash")
    )
    # A negative base makes `conv` return a signed number.
    raw = sql.substring("key", -WINDOW_SUFFIX_LENGTH, _START_LENGTH)
    start = sql.conv(sql.hex(raw), 16, -10).cast("long")
    numbers = list(windowed)
    return newest.withColumn(
        "start", sql.when(sql.col("store").isin(numbers), start) if numbers else sql.lit(None).cast("long")
    )


def tally(newest: DataFrame) -> dict[tuple[int, int], Tally]:
    """Return what was found for each store partition, by store and partition; those without records are missing.

    Args:
        newest: of `newest_of`; it is computed by this, so let it be cached.
    """
    size = sql.length("key") + sql.length("state.value") + sql.lit(8)
    found = newest.groupBy("store", "partition").agg(
        sql.sum("records").alias("records"),
        sql.count("state.value").alias("rows"),
        sql.coalesce(sql.sum(size), sql.lit(0)).alias("bytes"),
        sql.max("start").alias("stream_time_ms"),
    )
    return {
        (row["store"], row["partition"]): Tally(row["records"], row["rows"], row["bytes"], row["stream_time_ms"])
        for row in found.collect()
    }


def alive_rows(spark: SparkSession, newest: DataFrame, bounds: Iterable[Bound]) -> DataFrame:
    """Return what is neither deleted nor expired: `store, partition, segment, key, value, timestamp_ms, format`.

    Args:
        spark: runs it.
        newest: of `newest_of`.
        bounds: of the partitions of window stores.
    """
    limits = sql.broadcast(spark.createDataFrame(list(bounds), _BOUNDS))
    of_partition = (sql.col("store") == sql.col("bound_store")) & (sql.col("partition") == sql.col("bound_partition"))
    return (
        newest.where("state.value is not null")
        .join(limits, of_partition, "left")
        .where("start is null or start >= expired_before")
        .select(
            "store", "partition", sql.coalesce(sql.expr("start div interval"), sql.lit(0)).alias("segment"), "key", "state.*"
        )
    )  # fmt: skip


def sorted_rows(rows: DataFrame, ranges: int) -> DataFrame:
    """Divide rows into ranges of similar size by `ORDER`, whatever store or partition they are of, and sort within each.

    So a partition with most of the rows is divided like several.

    Args:
        rows: of `alive_rows`.
        ranges: how many ranges to make.
    """
    return rows.repartitionByRange(ranges, *ORDER).sortWithinPartitions(*ORDER)
