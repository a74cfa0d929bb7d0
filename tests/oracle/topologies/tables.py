"""Tables: sources, filters, mappings, aggregations."""

from __future__ import annotations

from millpond.dsl import StreamsBuilder
from millpond.serdes import String
from tests.oracle.topologies.cases import CASES, always, dsl, first, keep, pair, same, stream, table, value_of


@dsl
def table_(b: StreamsBuilder) -> None:
    table(b, "in").to_stream().to("out")


CASES["table"] = CASES.pop("table_")


@dsl
def table_store(b: StreamsBuilder) -> None:
    b.table("in", key=String, value=String, store="rows")


@dsl
def table_named(b: StreamsBuilder) -> None:
    b.table("in", key=String, value=String, name="rows").to_stream(name="changes").to("out")


@dsl
def table_to_stream_named_with_key(b: StreamsBuilder) -> None:
    table(b, "in").to_stream(value_of, name="changes").group_by_key().count()


@dsl
def table_serdes_only(b: StreamsBuilder) -> None:
    table(b, "in").to_stream().to("out")


@dsl
def table_filter_map(b: StreamsBuilder) -> None:
    table(b, "in").filter(always).map_values(same).filter_not(always).to_stream().to("out")


@dsl
def table_filter_map_stores(b: StreamsBuilder) -> None:
    kept = table(b, "in").filter(always, store="kept")
    kept.map_values(same, name="mapped", store="values").to_stream().to("out")


@dsl
def table_filter_map_serdes_only(b: StreamsBuilder) -> None:
    table(b, "in").filter(always, value=String).map_values(same, value=String).to_stream().to("out")


@dsl
def table_group_by_count(b: StreamsBuilder) -> None:
    table(b, "in").group_by(pair, key=String, value=String).count().to_stream().to("out")


@dsl
def table_group_by_reduce(b: StreamsBuilder) -> None:
    table(b, "in").group_by(pair, key=String, value=String).reduce(first, first, store="sums")


@dsl
def table_group_by_aggregate_named(b: StreamsBuilder) -> None:
    grouped = table(b, "in").group_by(pair, key=String, value=String, name="regroup")
    grouped.aggregate(str, keep, keep, name="sum")


@dsl
def table_grouped_twice(b: StreamsBuilder) -> None:
    g = table(b, "in").group_by(pair, key=String, value=String)
    g.count()
    g.reduce(first, first)


@dsl
def table_grouped_twice_named(b: StreamsBuilder) -> None:
    g = table(b, "in").group_by(pair, key=String, value=String, name="regroup")
    g.count()
    g.reduce(first, first)


@dsl
def table_filter_then_group(b: StreamsBuilder) -> None:
    table(b, "in").filter(always).map_values(same).group_by(pair, key=String, value=String).count(store="counts")


@dsl
def to_table(b: StreamsBuilder) -> None:
    stream(b, "in").to_table().to_stream().to("out")


@dsl
def to_table_store(b: StreamsBuilder) -> None:
    stream(b, "in").to_table(store="rows")


@dsl
def to_table_named(b: StreamsBuilder) -> None:
    stream(b, "in").to_table(name="rows").filter(always).to_stream().to("out")


@dsl
def to_table_rekeyed(b: StreamsBuilder) -> None:
    stream(b, "in").select_key(value_of).to_table(key=String).to_stream().to("out")


@dsl
def to_table_rekeyed_named(b: StreamsBuilder) -> None:
    stream(b, "in").select_key(value_of).to_table(name="rows", key=String).to_stream().to("out")
