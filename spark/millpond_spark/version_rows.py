"""Reduce the changelogs of versioned stores: all records of a key, in their order, become its versions.

Whether a record counts depends on the records of its whole partition before it: one that is older than the history
retention is rejected by the store, and is in the changelog all the same. So Spark first orders each partition by
offset, in one task for each, and then divides it by key.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as sql

from millpond.snapshots.histories import versions_of
from millpond.snapshots.layouts import StoreLayout

from . import reduce

__all__ = ("Histories", "Versions")

_Place = tuple[int, int, bytes]
"""Number of the store, partition and key."""

_COLUMNS = ("store", "partition", "key", "value", "timestamp_ms", "offset")
_SCHEMA = pa.schema(
    [
        ("store", pa.int32()), ("partition", pa.int32()), ("key", pa.binary()), ("value", pa.binary()),
        ("timestamp_ms", pa.int64()), ("format", pa.binary()), ("offset", pa.int64()),
    ]
)  # fmt: skip
_BATCH = 10_000


class Histories:
    """The versions of all keys of versioned stores.

    Attributes:
        changes: the versions, with the columns of `reduce.CHANGES`: the row function of the layout takes them as
            records. Each has the offset of the last record of its key.
        stream_times: the largest timestamp of each store partition that has records, in ms.
        records: the number of records of each store.
    """

    changes: DataFrame
    records: Mapping[int, int]
    stream_times: Mapping[tuple[int, int], int]

    def __init__(
        self, records: DataFrame, layouts: Mapping[int, StoreLayout], known: Mapping[tuple[int, int], int]
    ) -> None:
        """Read the records once, to find the stream times.

        Args:
            records: the records of the changelogs, with the columns of `reduce.CHANGES`, and those that restore reused
                rows, with the offset -1.
            layouts: the layouts of the stores, by number.
            known: the stream times of store partitions whose rows are reused, in ms.
        """
        self._records = records.persist()
        is_new = sql.col("offset") >= 0
        sums = sql.max("timestamp_ms").alias("newest"), sql.count_if(is_new).alias("records")
        found = self._records.groupBy("store", "partition").agg(*sums).collect()
        times = dict(known)
        for row in found:
            place = row["store"], row["partition"]
            times[place] = max(times.get(place, -1), row["newest"])
        self.stream_times = times
        counts: Counter[int] = Counter()
        for row in found:
            counts[row["store"]] += row["records"]
        self.records = counts
        before = Window.partitionBy("store", "partition").orderBy("offset").rowsBetween(Window.unboundedPreceding, -1)
        retention = sql.create_map(
            *(sql.lit(each) for number, layout in layouts.items() for each in (number, layout.retention_ms))
        )
        begin = sql.create_map(
            *(sql.lit(each) for (store, partition), time in known.items() for each in (f"{store}-{partition}", time)),
            sql.lit(""), sql.lit(-1),
        )  # fmt: skip
        named = sql.concat_ws("-", "store", "partition")
        stream_time = sql.greatest(sql.coalesce(begin[named], sql.lit(-1)), sql.max("timestamp_ms").over(before))
        in_time = (
            self._records.withColumn("before", stream_time)
            .where(~is_new | (sql.col("timestamp_ms") >= sql.col("before") - retention[sql.col("store")]))
            .select(*_COLUMNS)
        )
        by_key = in_time.repartition("store", "partition", "key").sortWithinPartitions(
            "store", "partition", "key", "offset", "timestamp_ms"
        )
        self.changes = by_key.mapInArrow(Versions(layouts, self.stream_times), reduce.CHANGES)

    def close(self) -> None:
        """Release the records."""
        self._records.unpersist()


@dataclass(frozen=True)
class Versions:
    """The reduction of records to versions; a function for `DataFrame.mapInArrow`."""

    layouts: Mapping[int, StoreLayout]
    """The layouts of the stores, by number."""
    stream_times: Mapping[tuple[int, int], int]
    """The largest timestamp of each store partition, in ms."""

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Reduce records that are ordered by store, partition, key and offset, in batches of any size."""
        rows: list[tuple[Any, ...]] = []
        for (store, partition, key), records in groupby(_records(batches), lambda each: each[0]):
            own = list(records)
            found = versions_of(
                self.layouts[store],
                key,
                ((timestamp, value) for _, value, timestamp, _ in own),
                self.stream_times[store, partition],
            )
            offset = own[-1][3]
            rows += [(store, partition, *version, None, offset) for version in found]
            if len(rows) >= _BATCH:
                yield _batch(rows)
                rows = []
        if rows:
            yield _batch(rows)


def _records(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[_Place, bytes | None, int, int]]:
    """Return place, value, timestamp in ms and offset of each record."""
    for batch in batches:
        stores, partitions, keys, *rest = (batch.column(name).to_pylist() for name in _COLUMNS)
        yield from zip(zip(stores, partitions, keys, strict=True), *rest, strict=True)


def _batch(rows: list[tuple[Any, ...]]) -> pa.RecordBatch:
    columns = zip(*rows, strict=True)
    arrays = [pa.array(list(column), field.type) for column, field in zip(columns, _SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=_SCHEMA)
