"""Joins of streams with tables and global tables."""

from __future__ import annotations

from datetime import timedelta

from millpond.dsl import StreamsBuilder, until_time_limit, until_window_closes
from millpond.serdes import String
from tests.oracle.topologies.cases import (
    HOUR,
    Nothing,
    always,
    dsl,
    first,
    just_key,
    keep,
    key_value,
    pair,
    same,
    stream,
    table,
    value_of,
)


@dsl
def join_table(b: StreamsBuilder) -> None:
    stream(b, "in").join(table(b, "rows"), first).to("out")


@dsl
def left_join_table(b: StreamsBuilder) -> None:
    rows = table(b, "rows")
    stream(b, "in").left_join(rows, first).to("out")


@dsl
def join_table_store_named(b: StreamsBuilder) -> None:
    s = stream(b, "in")
    s.join(b.table("rows", key=String, value=String, store="kept"), first, name="enrich").to("out")


@dsl
def join_table_rekeyed(b: StreamsBuilder) -> None:
    stream(b, "in").select_key(value_of).join(table(b, "rows"), first, key=String).to("out")


@dsl
def left_join_table_rekeyed_named(b: StreamsBuilder) -> None:
    stream(b, "in").map(pair, key=String, value=String).left_join(table(b, "rows"), first, name="enrich").to("out")


@dsl
def join_two_tables_rekeyed(b: StreamsBuilder) -> None:
    s = stream(b, "in").select_key(value_of, key=String)
    s.join(table(b, "rows"), first).to("one")
    s.left_join(table(b, "more"), first).to("two")


@dsl
def join_filtered_table(b: StreamsBuilder) -> None:
    stream(b, "in").join(table(b, "rows").filter(always).map_values(same), first).to("out")


@dsl
def join_aggregated_table(b: StreamsBuilder) -> None:
    counts = stream(b, "clicks").group_by(value_of, key=String).count()
    stream(b, "in").join(counts, first).to("out")


@dsl
def join_own_count(b: StreamsBuilder) -> None:
    s = stream(b, "in")
    s.join(s.group_by_key().count(), first).to("out")


@dsl
def join_suppressed_table(b: StreamsBuilder) -> None:
    s = stream(b, "in")
    s.join(table(b, "rows").suppress(until_time_limit(timedelta(seconds=1))), first).to("out")


@dsl
def join_to_table(b: StreamsBuilder) -> None:
    s = stream(b, "in")
    s.join(stream(b, "rows").select_key(value_of).to_table(key=String), first).to("out")


@dsl
def join_chain(b: StreamsBuilder) -> None:
    once = stream(b, "in").join(table(b, "rows"), first).select_key(value_of, key=String)
    twice = once.join(table(b, "more"), first)
    twice.group_by_key().count().to_stream().to("out")


@dsl
def global_join(b: StreamsBuilder) -> None:
    s = stream(b, "in")
    s.join(b.global_table("all", key=String, value=String), first, on=value_of).to("out")


@dsl
def global_left_join_named(b: StreamsBuilder) -> None:
    everything = b.global_table("all", key=String, value=String, name="everywhere", store="all-rows")
    rekeyed = stream(b, "in").select_key(value_of, key=String)
    rekeyed.left_join(everything, first, on=value_of, name="enrich").group_by_key().count()


@dsl
def global_store(b: StreamsBuilder) -> None:
    stream(b, "in").to("out")
    b.add_global_store(key_value("everything", logging=False), "all", Nothing, key=String, value=String)
    stream(b, "later").to("after")


@dsl
def flights(b: StreamsBuilder) -> None:
    airlines = b.global_table("airlines", key=String, value=String)
    planes = b.table("planes", key=String, value=String)
    (
        stream(b, "flights")
        .join(airlines, first, on=value_of)
        .select_key(value_of, key=String)
        .left_join(planes, first)
        .group_by(value_of, key=String)
        .windowed_by(HOUR)
        .aggregate(str, keep, store="delays")
        .suppress(until_window_closes())
        .to_stream()
        .select_key(just_key)
        .to("delays-by-airport")
    )
