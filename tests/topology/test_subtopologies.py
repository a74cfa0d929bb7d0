"""Nodes that share records or stores are one sub-topology; repartition topics separate sub-topologies."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millpond.dsl import StreamsBuilder
from millpond.errors import TopologyError
from millpond.serdes import String
from millpond.topology import changelog_topic, decorate
from tests.oracle.topologies.by_hand import Dice, random_topology


@given(st.integers(0, 10_000))
def test_every_node_is_in_exactly_one_subtopology_with_its_neighbours(seed: int) -> None:
    """Ids are numbers from 0; parents and children have the same one, and so have the users of a store."""
    topology = random_topology(seed)
    parts = topology.subtopologies()
    assert [part.id for part in parts] == list(range(len(parts)))
    home: dict[str, int] = {}
    for part in parts:
        for node in (*part.sources, *part.processors, *part.sinks):
            assert node.name not in home
            home[node.name] = part.id
    assert set(home) == set(topology.nodes)
    users: dict[str, set[int]] = {}
    for node in topology.nodes.values():
        for parent in getattr(node, "parents", ()):
            assert home[parent] == home[node.name]
        for store in getattr(node, "stores", ()):
            users.setdefault(store, set()).add(home[node.name])
    assert all(len(parts) == 1 for parts in users.values())
    for part in parts:
        assert {store.name for store in part.stores} == {name for name, ids in users.items() if part.id in ids}


@given(st.integers(0, 10_000))
def test_subtopologies_are_numbered_by_their_first_node(seed: int) -> None:
    """Numbers follow the order of adding; within a part, processors come after their parents."""
    topology = random_topology(seed)
    order = {name: rank for rank, name in enumerate(topology.nodes)}
    firsts = []
    for part in topology.subtopologies():
        firsts.append(min(order[node.name] for node in (*part.sources, *part.processors, *part.sinks)))
        seen = {source.name for source in part.sources}
        for processor in part.processors:
            assert set(processor.parents) <= seen
            seen.add(processor.name)
    assert firsts == sorted(firsts)


def test_repartition_topic_joins_two_subtopologies() -> None:
    """Writer and reader name it without the application's prefix, which decorate() adds."""
    builder = StreamsBuilder()
    builder.stream("in", key=String, value=String).group_by(lambda _, v: v, key=String, name="regroup").count()
    topology = builder.build()
    before, after = topology.subtopologies()
    assert before.sink_topics == after.source_topics == {"regroup-repartition"} == set(topology.repartition_topics)
    assert decorate("app", "regroup-repartition") == "app-regroup-repartition"


def test_stores_are_listed_in_topological_order_of_their_owners() -> None:
    """A commit flushes stores in this order, so that what a cache forwards is flushed after it."""
    builder = StreamsBuilder()
    rows = builder.table("in", key=String, value=String, store="z-first")
    rows.filter(lambda *_: True, store="m-second").map_values(str, store="a-third", value=String)
    (part,) = builder.build().subtopologies()
    assert [store.name for store in part.stores] == ["z-first", "m-second", "a-third"]
    assert part.changelogs == {name: changelog_topic(name) for name in ("z-first", "m-second", "a-third")}


def test_joined_topics_are_one_copartition_group() -> None:
    """The topics of the stream and of the table need equal numbers of partitions; a global table's topic does not."""
    builder = StreamsBuilder()
    stream = builder.stream("in", key=String, value=String)
    everywhere = builder.global_table("all", key=String, value=String)
    rows = builder.table("rows", key=String, value=String)
    stream.join(everywhere, lambda v, _: v, on=lambda _, v: v, value=String).join(rows, lambda v, _: v)
    topology = builder.build()
    assert topology.copartition_groups == [frozenset({"in", "rows"})]
    assert [part.copartition_groups for part in topology.subtopologies()] == [(frozenset({"in", "rows"}),)]
    assert [(each.store.name, each.source.topics) for each in topology.global_stores] == [
        ("all-STATE-STORE-0000000001", ("all",))
    ]


def test_joins_share_a_repartition_topic_and_copartition_group() -> None:
    """The second join of a rekeyed stream reads the same internal topic, in the same group rules."""
    builder = StreamsBuilder()
    stream = builder.stream("in", key=String, value=String).select_key(lambda _, v: v, key=String)
    for topic in ("one", "two"):
        stream.join(builder.table(topic, key=String, value=String), lambda v, _: v)
    topology = builder.build()
    (internal,) = topology.repartition_topics
    assert set(topology.copartition_groups) == {frozenset({internal, "one"}), frozenset({internal, "two"})}


def test_copartitioned_repartition_topics_with_different_counts_are_rejected() -> None:
    """The message lists both topics with their counts."""
    builder = StreamsBuilder()
    stream = builder.stream("in", key=String, value=String).repartition(name="left", partitions=3)
    rows = builder.stream("rows", key=String, value=String).repartition(name="right", partitions=4).to_table()
    stream.join(rows, lambda v, _: v)
    with pytest.raises(TopologyError, match="'left-repartition' 3, 'right-repartition' 4"):
        builder.build().subtopologies()


@given(st.integers(1, 50), st.integers(0, 10_000))
def test_oracle_random_numbers_stay_in_range(sides: int, seed: int) -> None:
    """The generator of the golden cases gives numbers of the range."""
    dice = Dice(seed)
    assert all(0 <= dice.roll(sides) < sides for _ in range(20))


@given(st.integers(0, 10_000))
def test_mermaid_draws_every_node_once_and_every_edge(seed: int) -> None:
    """Each node is declared once, each parent-child pair is an arrow, and boxes are closed."""
    topology = random_topology(seed)
    text = topology.mermaid()
    assert text.startswith("flowchart TD\n")
    assert text.count("subgraph") == text.count("  end\n") == len(topology.subtopologies())
    names: dict[str, str] = {}
    for name in topology.nodes:
        (line,) = [line for line in text.splitlines() if f'["{name}"]' in line and "subgraph" not in line]
        names[name] = line.strip().split("[")[0]
    assert len(set(names.values())) == len(names)
    arrows = {line.strip() for line in text.splitlines() if "-->" in line}
    node: Any
    for node in topology.nodes.values():
        for parent in getattr(node, "parents", ()):
            assert f"{names[parent]} --> {names[node.name]}" in arrows
