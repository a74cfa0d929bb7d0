"""The topologies of java/Topologies.java, built with millpond: one case here is one golden file there."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any

from millpond.dsl import KStream, KTable, StreamsBuilder, TimeWindows, until_time_limit, until_window_closes
from millpond.serdes import Long, String, Windowed
from millpond.state import KeyValueStoreBuilder
from millpond.topology import FixedKeyProcessor, Processor, RecordContext, Topology

Case = Callable[[], Topology]
CASES: dict[str, Case] = {}


def dsl(write: Callable[[StreamsBuilder], object]) -> Callable[[StreamsBuilder], object]:
    """Register a case that is written in the DSL, under its function's name."""

    def build() -> Topology:
        builder = StreamsBuilder()
        write(builder)
        return builder.build()

    CASES[write.__name__] = build
    return write


def plain(build: Case) -> Case:
    """Register a case that is a topology built by hand, under its function's name."""
    CASES[build.__name__] = build
    return build


class Nothing(Processor[str, str, str, str]):
    """Does nothing."""

    def process(self, record: Any) -> None:
        """Nothing."""


class NothingFixed(FixedKeyProcessor[str, str, str]):
    """Does nothing."""

    def process(self, record: Any) -> None:
        """Nothing."""


def stream(b: StreamsBuilder, topic: str) -> KStream[str, str]:
    return b.stream(topic, key=String, value=String)


def table(b: StreamsBuilder, topic: str) -> KTable[str, str]:
    return b.table(topic, key=String, value=String)


def key_value(name: str, *, logging: bool = True) -> KeyValueStoreBuilder[str, str]:
    return KeyValueStoreBuilder(name=name, key=String, value=String, persistent=False, logging=logging)


def by_carrier(key: str, _value: str, _context: RecordContext) -> str:
    return key


def always(_key: object, _value: object) -> bool:
    return True


def value_of(_key: object, value: str) -> str:
    return value


def pair(_key: object, value: str) -> tuple[str, str]:
    return value, value


def same(value: str) -> str:
    return value


def first(one: str, _other: object) -> str:
    return one


def keep(_key: object, _value: object, aggregate: str) -> str:
    return aggregate


def just_key(key: Windowed[str], _value: object) -> str:
    return key.key


HOUR = TimeWindows(timedelta(hours=1), grace=timedelta(minutes=10))
HOPPING = TimeWindows(timedelta(hours=1), advance=timedelta(minutes=5), grace=timedelta(minutes=10))


# Sources, sinks, stateless operators


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


# Processor API inside the DSL


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


# Repartitioning


@dsl
def repartition(b: StreamsBuilder) -> None:
    stream(b, "in").repartition().to("out")


@dsl
def repartition_named(b: StreamsBuilder) -> None:
    stream(b, "in").repartition(name="spread", partitions=5).to("out")


@dsl
def repartition_then_count(b: StreamsBuilder) -> None:
    stream(b, "in").select_key(value_of, key=String).repartition().group_by_key().count()


# Aggregations


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
    stream(b, "in").group_by_key().windowed_by(HOUR).count().to_stream().select_key(just_key).to("out")


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


# Tables


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


# Suppress


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


# Joins


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


# Processor API


@plain
def papi() -> Topology:
    t = Topology()
    t.add_source("source", "in", "more")
    t.add_processor("work", Nothing, "source")
    t.add_state_store(key_value("memory"), "work")
    return t.add_sink("sink", "out", "work", "source")


@plain
def papi_diamond() -> Topology:
    t = Topology()
    t.add_source("top", "in")
    t.add_processor("left", Nothing, "top")
    t.add_processor("right", Nothing, "top")
    t.add_processor("deep", Nothing, "right")
    t.add_processor("bottom", Nothing, "left", "deep")
    t.add_sink("z-sink", "out", "bottom")
    return t.add_sink("a-sink", "out2", "left")


@plain
def papi_many_stores() -> Topology:
    t = Topology()
    t.add_source("source", "in")
    t.add_processor("work", Nothing, "source")
    for number in range(14):
        t.add_state_store(key_value(f"store-{number * 37}"), "work")
    t.add_processor("twelve", Nothing, "source")
    return t.connect("twelve", *(f"store-{number * 37}" for number in range(12)))


@plain
def papi_global_between() -> Topology:
    t = Topology()
    t.add_source("one", "in")
    t.add_global_store(
        key_value("all", logging=False),
        "everything",
        Nothing,
        source_name="global-source",
        processor_name="global-processor",
    )
    t.add_source("two", re.compile("other.*"))
    return t.add_processor("work", Nothing, "two")


class Dice:
    """The same arithmetic as in Topologies.java, so that both sides draw the same graphs."""

    def __init__(self, seed: int) -> None:
        self._state = seed

    def roll(self, sides: int) -> int:
        self._state = (self._state * 6364136223846793005 + 1442695040888963407) % 2**64
        return (self._state >> 33) % sides


def random_topology(seed: int) -> Topology:
    dice = Dice(seed)
    topology = Topology()
    parents: list[str] = []
    processors: list[str] = []
    for i in range(1 + dice.roll(3)):
        name = f"source-{dice.roll(100)}-{i}"
        topology.add_source(name, *(f"topic-{i}-{dice.roll(1000)}-{t}" for t in range(1 + dice.roll(3))))
        parents.append(name)
    for i in range(2 + dice.roll(9)):
        name = f"node-{dice.roll(1000)}-{i}"
        above = dict.fromkeys(parents[dice.roll(len(parents))] for _ in range(1 + dice.roll(3)))
        topology.add_processor(name, Nothing, *above)
        parents.append(name)
        processors.append(name)
    for i in range(dice.roll(4)):
        name = f"store-{dice.roll(100)}-{i}"
        topology.add_state_store(key_value(name), processors[dice.roll(len(processors))])
        if dice.roll(2) == 1:
            topology.connect(processors[dice.roll(len(processors))], name)
    for i in range(dice.roll(4)):
        topology.add_sink(f"sink-{dice.roll(100)}-{i}", f"out-{i}", parents[dice.roll(len(parents))])
    return topology


CASES.update({f"random_{seed:02}": partial(random_topology, seed) for seed in range(1, 41)})
