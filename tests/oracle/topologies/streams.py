"""Sources, sinks, stateless operators, processors inside the DSL, repartitioning."""

from __future__ import annotations

import re

from millpond.dsl import StreamsBuilder
from millpond.serdes import String
from tests.oracle.topologies.cases import (
    Nothing,
    NothingFixed,
    always,
    by_carrier,
    dsl,
    key_value,
    pair,
    same,
    stream,
    value_of,
)


@dsl
def stream_to(b: StreamsBuilder) -> None:
    stream(b, "in").to("out")


@dsl
def stream_of_many_topics(b: StreamsBuilder) -> None:
    b.stream("orders", "payments", "clicks", "views", "returns", "a", "b", key=String, value=String).to("out")


@dsl
def stream_of_pattern(b: StreamsBuilder) -> None:
    b.stream(re.compile("orders-.*"), key=String, value=String).to("out")


@dsl
def stream_named(b: StreamsBuilder) -> None:
    b.stream("in", key=String, value=String, name="read").filter(always, name="keep").to("out", name="write")


@dsl
def stateless_all(b: StreamsBuilder) -> None:
    s = stream(b, "in")
    (
        s.filter(always)
        .filter_not(always)
        .map_values(same)
        .map(pair)
        .flat_map_values(lambda v: [v])
        .flat_map(lambda k, v: [(k, v)])
        .select_key(value_of)
        .peek(always)
        .foreach(always)
    )
    s.print()


@dsl
def stateless_named(b: StreamsBuilder) -> None:
    s = stream(b, "in")
    (
        s.filter_not(always, name="not")
        .map_values(same, name="values")
        .map(pair, name="pairs")
        .flat_map_values(lambda v: [v], name="many")
        .select_key(value_of, name="rekey")
        .peek(always, name="look")
        .to("out")
    )
    s.print(name="show")
    s.foreach(always, name="each")


@dsl
def to_by_extractor(b: StreamsBuilder) -> None:
    stream(b, "in").to(by_carrier)


@dsl
def same_topic_twice(b: StreamsBuilder) -> None:
    stream(b, "in").map_values(same).to("one")
    stream(b, "in").filter(always).to("two")
    stream(b, "other").to("three")


@dsl
def same_pattern_twice(b: StreamsBuilder) -> None:
    b.stream(re.compile("x.*"), key=String, value=String).to("one")
    b.stream(re.compile("x.*"), key=String, value=String).to("two")


@dsl
def merge(b: StreamsBuilder) -> None:
    stream(b, "left").merge(stream(b, "right")).to("out")


@dsl
def merge_three_named(b: StreamsBuilder) -> None:
    stream(b, "a").merge(stream(b, "b"), name="both").merge(stream(b, "c")).to("out")


@dsl
def split(b: StreamsBuilder) -> None:
    branches = stream(b, "in").split().branch(always).branch(always).default_branch()
    branches["KSTREAM-BRANCH-00000000011"].to("one")
    branches["KSTREAM-BRANCH-00000000012"].to("two")
    branches["KSTREAM-BRANCH-00000000010"].to("rest")


@dsl
def split_named(b: StreamsBuilder) -> None:
    branches = (
        stream(b, "in")
        .split(name="by-")
        .branch(always, name="size")
        .branch(always, chain=lambda s: s.to("two"))
        .no_default_branch()
    )
    branches["by-size"].to("one")


@dsl
def split_merge_group(b: StreamsBuilder) -> None:
    branches = stream(b, "in").select_key(value_of).split(name="b-").branch(always, name="x").default_branch(name="y")
    merged = branches["b-x"].map_values(same).merge(branches["b-y"])
    merged.group_by_key(key=String, value=String).count().to_stream().to("out")


@dsl
def process(b: StreamsBuilder) -> None:
    stream(b, "in").process(Nothing).to("out")


@dsl
def process_named_with_store(b: StreamsBuilder) -> None:
    b.add_state_store(key_value("memory"))
    stream(b, "in").process(Nothing, name="work", stores=["memory"]).to("out")


@dsl
def process_bringing_stores(b: StreamsBuilder) -> None:
    class Bringing(Nothing):
        stores = (key_value("zeta"), key_value("alpha"), key_value("mid"))

    stream(b, "in").process(Bringing).group_by_key(key=String, value=String).count()


@dsl
def process_values(b: StreamsBuilder) -> None:
    b.add_state_store(key_value("memory"))
    stream(b, "in").process_values(NothingFixed, stores=["memory"]).group_by_key(value=String).count()


@dsl
def shared_store_joins_subtopologies(b: StreamsBuilder) -> None:
    b.add_state_store(key_value("shared"))
    stream(b, "one").process(Nothing, stores=["shared"])
    stream(b, "two").to("out")
    stream(b, "three").process(Nothing, stores=["shared"])


@dsl
def repartition(b: StreamsBuilder) -> None:
    stream(b, "in").repartition().to("out")


@dsl
def repartition_named(b: StreamsBuilder) -> None:
    stream(b, "in").repartition(name="spread", partitions=5).to("out")


@dsl
def repartition_then_count(b: StreamsBuilder) -> None:
    stream(b, "in").select_key(value_of, key=String).repartition().group_by_key().count()
