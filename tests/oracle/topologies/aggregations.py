"""Aggregations of streams, with and without windows, and suppressed results."""

from __future__ import annotations

from datetime import timedelta

from millpond.dsl import StreamsBuilder, until_time_limit, until_window_closes
from millpond.serdes import Long, String
from tests.oracle.topologies.cases import (
    HOPPING,
    HOUR,
    always,
    dsl,
    first,
    just_key,
    keep,
    pair,
    same,
    stream,
    table,
    value_of,
)


@dsl
def count(b: StreamsBuilder) -> None:
    stream(b, "in").group_by_key().count().to_stream().to("out")


@dsl
def count_store(b: StreamsBuilder) -> None:
    stream(b, "in").group_by_key().count(store="counts")


@dsl
def count_named(b: StreamsBuilder) -> None:
    stream(b, "in").group_by_key().count(name="counting", store="counts")


@dsl
def count_serdes_only(b: StreamsBuilder) -> None:
    stream(b, "in").group_by_key().count(value=Long).to_stream().to("out")


@dsl
def count_rekeyed(b: StreamsBuilder) -> None:
    stream(b, "in").select_key(value_of).group_by_key(key=String).count()


@dsl
def group_by_count(b: StreamsBuilder) -> None:
    stream(b, "in").group_by(value_of, key=String).count()


@dsl
def group_by_count_store(b: StreamsBuilder) -> None:
    stream(b, "in").group_by(value_of, key=String).count(store="counts")


@dsl
def group_by_named(b: StreamsBuilder) -> None:
    stream(b, "in").group_by(value_of, key=String, name="regroup").count()


@dsl
def grouped_twice(b: StreamsBuilder) -> None:
    g = stream(b, "in").group_by(value_of, key=String)
    g.count()
    g.reduce(first)


@dsl
def grouped_twice_named(b: StreamsBuilder) -> None:
    g = stream(b, "in").group_by(value_of, key=String, name="regroup")
    g.count()
    g.reduce(first)
    g.aggregate(str, keep)


@dsl
def reduce(b: StreamsBuilder) -> None:
    stream(b, "in").group_by_key().reduce(first).to_stream().to("out")


@dsl
def reduce_store_named(b: StreamsBuilder) -> None:
    stream(b, "in").group_by_key().reduce(first, name="last", store="lasts")


@dsl
def aggregate(b: StreamsBuilder) -> None:
    stream(b, "in").group_by_key().aggregate(str, keep).to_stream().to("out")


@dsl
def aggregate_store(b: StreamsBuilder) -> None:
    stream(b, "in").group_by_key().aggregate(str, keep, store="aggs")


@dsl
def window_count(b: StreamsBuilder) -> None:
    stream(b, "in").group_by_key().windowed_by(HOUR).count().to_stream(just_key).to("out")


@dsl
def window_count_store(b: StreamsBuilder) -> None:
    grouped = stream(b, "in").group_by(value_of, key=String)
    grouped.windowed_by(HOUR).count(store="hourly", retention=timedelta(days=1))


@dsl
def window_count_serdes_only(b: StreamsBuilder) -> None:
    stream(b, "in").group_by_key().windowed_by(HOUR).count(value=Long)


@dsl
def window_hopping_aggregate(b: StreamsBuilder) -> None:
    stream(b, "in").group_by_key().windowed_by(HOPPING).aggregate(str, keep, name="hop")


@dsl
def window_reduce(b: StreamsBuilder) -> None:
    stream(b, "in").group_by_key().windowed_by(HOUR).reduce(first)


@dsl
def suppress_windows(b: StreamsBuilder) -> None:
    counts = stream(b, "in").group_by_key().windowed_by(HOUR).count()
    counts.suppress(until_window_closes()).to_stream().select_key(just_key).to("out")


@dsl
def suppress_windows_named(b: StreamsBuilder) -> None:
    counts = stream(b, "in").group_by_key().windowed_by(HOUR).count(store="hourly")
    counts.filter(always).suppress(until_window_closes(), name="final").to_stream()


@dsl
def suppress_time_limit(b: StreamsBuilder) -> None:
    table(b, "in").suppress(until_time_limit(timedelta(seconds=10), max_records=10)).to_stream().to("out")


@dsl
def suppress_filtered_table(b: StreamsBuilder) -> None:
    kept = table(b, "in").filter(always).map_values(same)
    held = kept.suppress(until_time_limit(timedelta(seconds=10)))
    held.group_by(pair, key=String, value=String).count()
