"""Reduce changelogs to the rows of a snapshot: DataFrame operations that run in the JVM, without Python.

The result is ordered by store, partition, segment and key. That is the order of the state file, where local keys are
partition, segment and key for a store of windows or sessions, and partition and key for other stores.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from pyspark.sql import Column, DataFrame, GroupedData, SparkSession
from pyspark.sql import functions as sql

from millpond.state.formats import BUFFER_HEADERS, SESSION_SUFFIX_LENGTH, WINDOW_SUFFIX_LENGTH

__all__ = (
    "CHANGES",
    "ORDER",
    "Bound",
    "ChangelogSource",
    "Tally",
    "changes_of",
    "live_rows",
    "newest_of",
    "reduced",
    "sorted_rows",
    "tally",
)

CHANGES = "store int, partition int, key binary, value binary, timestamp_ms long, format binary, offset long"
"""The columns of changelog records of a store, which is identified by its number.

`format` is the value of the last header "v", null for stores that do not read headers. A row depends on no other
header, and Spark passes arrays to Python at a tenth of the speed. Rows of the previous snapshot have offset -1.
"""

ORDER = ("store", "partition", "segment", "key")
"""The columns that order rows as in the state file."""

_TIME_LENGTH = 8
_IDS_IN_HEADERS = (
    "snapshots cannot include the table of a topic whose producers write schema ids into headers. Let them write ids "
    "into keys and values. The first such record: "
)
_SOURCES = (
    "store int, source_topic string, source_partition int, first long, end long, windowed boolean, has_format boolean, "
    "schema_ids boolean"
)
_BOUNDS = "bound_store int, bound_partition int, expired_before long, interval long"


class ChangelogSource(NamedTuple):
    """The changelog records of a store partition."""

    store: int
    topic: str
    partition: int
    first: int
    """The first offset."""
    end: int
    """The first offset after them."""
    windowed: bool
    """Whether keys end with a window or a session."""
    has_format: bool
    """Whether rows depend on the format in a header."""
    schema_ids: bool = False
    """Whether records may have the ids of their schemas in headers, which is an error: rows have no headers."""

    @property
    def needs_headers(self) -> bool:
        """Whether headers are read."""
        return self.has_format or self.schema_ids


class Tally(NamedTuple):
    """The counts of a store partition."""

    records: int
    """The number of changelog records that were read."""
    rows: int
    """The number of keys with a value, also in expired windows."""
    bytes: int
    """The size of their keys and values."""
    stream_time_ms: int | None
    """The largest time of all records, deletions included; None for a store whose rows do not expire."""


class Bound(NamedTuple):
    """The expiry bound of a partition of a store of windows or sessions."""

    store: int
    partition: int
    expired_before: int
    """The time in ms below which rows have expired."""
    interval: int
    """The length of a segment in ms."""


def changes_of(spark: SparkSession, records: DataFrame, sources: Iterable[ChangelogSource]) -> DataFrame:
    """Return the records of stores, with the columns of `CHANGES`.

    Args:
        spark: the session.
        records: changelog records, with the columns of `changelog_reader.RECORDS`.
        sources: the records of each store partition; several stores may share a changelog topic.
    """
    wanted = sql.broadcast(spark.createDataFrame(list(sources), _SOURCES))
    own = (
        (sql.col("topic") == sql.col("source_topic"))
        & (sql.col("partition") == sql.col("source_partition"))
        & (sql.col("offset") >= sql.col("first"))
        & (sql.col("offset") < sql.col("end"))
    )
    last = sql.try_element_at(sql.filter("headers", lambda header: header["key"] == BUFFER_HEADERS[0][0]), sql.lit(-1))
    named = sql.exists("headers", lambda header: header["key"].isin("__key_schema_id", "__value_schema_id"))
    where = sql.concat(sql.lit("topic "), "topic", sql.lit(", partition "), "partition", sql.lit(", offset "), "offset")
    refused = sql.raise_error(sql.concat(sql.lit(_IDS_IN_HEADERS), where))
    return (
        records.where("key is not null")
        .join(wanted, own)
        .select(
            "store", "partition",
            sql.when(sql.col("schema_ids") & named, refused).otherwise(sql.col("key")).alias("key"),
            "value", "timestamp_ms",
            sql.when(sql.col("has_format"), last["value"]).alias("format"), "offset",
        )
    )  # fmt: skip


def reduced(changes: DataFrame) -> DataFrame:
    """Return the newest change of each key, with the columns of `CHANGES` and `records`, their number.

    Args:
        changes: the changes, with the columns of `CHANGES`.
    """
    state = sql.max_by(sql.struct("value", "timestamp_ms", "format"), "offset").alias("state")
    return (
        _by_key(changes)
        .agg(state, sql.max("offset").alias("offset"), _records().alias("records"))
        .select("store", "partition", "key", "state.*", "offset", "records")
    )


def newest_of(changes: DataFrame, windows: Iterable[int], sessions: Iterable[int] = ()) -> DataFrame:
    """Return the newest change of each key: `store, partition, key, state, records, time`.

    `state` has value, timestamp_ms and format; `records` counts changelog records; `time` is the window's start or the
    session's end in ms, null for other stores.

    Args:
        changes: the changes, with the columns of `CHANGES`; or of `reduced`, which need not be of different keys.
        windows: the numbers of the window stores.
        sessions: the numbers of the session stores.
    """
    state = sql.struct("value", "timestamp_ms", "format")
    records = sql.coalesce(sql.sum("records"), sql.lit(0)) if "records" in changes.columns else _records()
    newest = _by_key(changes).agg(sql.max_by(state, "offset").alias("state"), records.alias("records")).drop("hash")
    time = sql.lit(None).cast("long")
    for numbers, length in ((list(windows), WINDOW_SUFFIX_LENGTH), (list(sessions), SESSION_SUFFIX_LENGTH)):
        if numbers:
            # A negative base makes `conv` return a signed number.
            found = sql.conv(sql.hex(sql.substring("key", -length, _TIME_LENGTH)), 16, -10).cast("long")
            time = sql.when(sql.col("store").isin(numbers), found).otherwise(time)
    return newest.withColumn("time", time)


def _by_key(changes: DataFrame) -> GroupedData:
    # Spark groups by sorting, and compares 8 bytes of the first column before whole rows: a hash there decides mostly.
    hashed = changes.withColumn("hash", sql.xxhash64("store", "partition", "key"))
    return hashed.groupBy("hash", "store", "partition", "key")


def _records() -> Column:
    return sql.count_if(sql.col("offset") >= 0)


def tally(newest: DataFrame) -> dict[tuple[int, int], Tally]:
    """Return the counts of each store partition, by store and partition; those without records are missing.

    Args:
        newest: the result of `newest_of`. The caller persists it, since this function computes it.
    """
    size = sql.length("key") + sql.length("state.value") + sql.lit(8)
    found = newest.groupBy("store", "partition").agg(
        sql.sum("records").alias("records"),
        sql.count("state.value").alias("rows"),
        sql.coalesce(sql.sum(size), sql.lit(0)).alias("bytes"),
        sql.max("time").alias("stream_time_ms"),
    )
    return {
        (row["store"], row["partition"]): Tally(row["records"], row["rows"], row["bytes"], row["stream_time_ms"])
        for row in found.collect()
    }


def live_rows(spark: SparkSession, newest: DataFrame, bounds: Iterable[Bound]) -> DataFrame:
    """Return the live rows: `store, partition, segment, key, value, timestamp_ms, format`.

    A row is live if it is neither deleted nor expired.

    Args:
        spark: the session.
        newest: the result of `newest_of`.
        bounds: the expiry bounds of the partitions of stores of windows and sessions.
    """
    limits = sql.broadcast(spark.createDataFrame(list(bounds), _BOUNDS))
    of_partition = (sql.col("store") == sql.col("bound_store")) & (sql.col("partition") == sql.col("bound_partition"))
    return (
        newest.where("state.value is not null")
        .join(limits, of_partition, "left")
        .where("time is null or time >= expired_before")
        .select(
            "store", "partition", sql.coalesce(sql.expr("time div interval"), sql.lit(0)).alias("segment"),
            "key", "state.*"
        )
    )  # fmt: skip


def sorted_rows(rows: DataFrame, ranges: int) -> DataFrame:
    """Divide rows into ranges of similar size by `ORDER`, across stores and partitions, and sort within each range.

    A partition with most of the rows is divided into several ranges.

    Args:
        rows: the result of `live_rows`.
        ranges: the number of ranges.
    """
    return rows.repartitionByRange(ranges, *ORDER).sortWithinPartitions(*ORDER)
