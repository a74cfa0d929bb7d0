"""Read changelog partitions with Spark's Kafka connector: committed records only, between fixed offsets."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql

from millpond.runtime.offsets.metadata import Partition

from .cuts.boundaries import Range

__all__ = ("RECORDS", "read_changelogs")

_HEADERS = "array<struct<key: string, value: binary>>"
RECORDS = f"topic string, partition int, offset long, key binary, value binary, timestamp_ms long, headers {_HEADERS}"
"""The columns of the records."""

#: The connector returns records one by one; large polls make polling rare.
_LARGE_POLLS = {
    "kafka.max.poll.records": "10000",
    "kafka.max.partition.fetch.bytes": str(8 << 20),
    "kafka.receive.buffer.bytes": str(1 << 20),
}
_SMALLEST_TASK = 100_000
_TASKS_PER_CORE = 3


def read_changelogs(
    spark: SparkSession, options: Mapping[str, str], ranges: Mapping[Partition, Range], *, headers: bool
) -> DataFrame:
    """Return the committed records of changelog partitions, with the columns of `RECORDS`.

    Args:
        spark: the session.
        options: the options of the connector, such as the brokers.
        ranges: the offsets to read; several Spark tasks read a large partition.
        headers: whether to read headers; they are null otherwise.
    """
    wanted = {each: range for each, range in ranges.items() if range.first < range.end}
    if not wanted:
        return spark.createDataFrame([], RECORDS)
    offsets = sum(each.end - each.first for each in wanted.values())
    per_task = max(_SMALLEST_TASK, -(-offsets // (spark.sparkContext.defaultParallelism * _TASKS_PER_CORE)))
    records = (
        spark.read.format("kafka")
        .options(**_LARGE_POLLS, **options)
        .option("kafka.isolation.level", "read_committed")
        .option("kafka.allow.auto.create.topics", "false")
        .option("assign", _by_topic(dict.fromkeys(wanted)))
        .option("startingOffsets", _by_topic({each: range.first for each, range in wanted.items()}))
        .option("endingOffsets", _by_topic({each: range.end for each, range in wanted.items()}))
        .option("maxRecordsPerPartition", str(per_task))
        .option("includeHeaders", str(headers).lower())
        .load()
    )
    if not headers:
        records = records.withColumn("headers", sql.lit(None).cast(_HEADERS))
    return records.select(
        "topic", "partition", "offset", "key", "value", sql.unix_millis("timestamp").alias("timestamp_ms"), "headers"
    )


def _by_topic(of: Mapping[Partition, int | None]) -> str:
    """Return JSON of the form topic -> partition -> offset; without offsets, topic -> list of partitions."""
    offsets: defaultdict[str, dict[str, int]] = defaultdict(dict)
    numbers: defaultdict[str, list[int]] = defaultdict(list)
    for (topic, partition), offset in of.items():
        if offset is None:
            numbers[topic].append(partition)
        else:
            offsets[topic][str(partition)] = offset
    return json.dumps(offsets or numbers)
