"""Joins of a stream with itself: with one store, as `single.store.self.join` has it, and with two."""

from __future__ import annotations

import random
from datetime import timedelta

import pytest

import millpond as mp
from millpond.dsl.graph import GraphNode
from millpond.dsl.joining.node import StreamJoinNode
from millpond.errors import TopologyError

MS = timedelta(milliseconds=1)
Result = tuple[str | None, str, int]


def self_join(windows: mp.JoinWindows, *, single_store: bool) -> mp.Topology:
    b = mp.StreamsBuilder()
    s = b.stream("in", key=mp.String, value=mp.String)
    s.join(s, lambda one, other: one + other, windows).to("out", key=mp.String, value=mp.String)
    if single_store:
        for node in joins(s._graph.root):
            node.use_single_store()
    return b.build()


def joins(node: GraphNode) -> set[StreamJoinNode]:
    found = {node} if isinstance(node, StreamJoinNode) else set()
    return found.union(*map(joins, node.children))


def run(topology: mp.Topology, records: list[tuple[str | None, str | None, int]]) -> list[Result]:
    with mp.testing.TopologyTestDriver(topology, {"application.id": "app"}) as driver:
        into = driver.create_input_topic("in", key=mp.String, value=mp.String)
        out = driver.create_output_topic("out", key=mp.String, value=mp.String)
        for key, value, timestamp in records:
            into.pipe_input(key, value, timestamp)
        return [(record.key, record.value, record.timestamp) for record in out.read_records_to_list()]


def test_one_store_has_the_results_of_two(seed: int) -> None:
    """Also their order and times, for records out of order, without keys and without values."""
    dice = random.Random(seed)
    records = [
        (dice.choice(["a", "b", None]), dice.choice(["x", "y", "z", None]), max(0, now * 10 - dice.randrange(50)))
        for now in range(200)
    ]
    windows = mp.JoinWindows(30 * MS, 30 * MS, 100 * MS)
    results = run(self_join(windows, single_store=True), records)
    assert results == run(self_join(windows, single_store=False), records)
    assert len(results) > 100


def test_record_joins_itself_even_outside_the_windows() -> None:
    """As in Kafka Streams, whose optimisation changes the results here; the pair comes where its time is in order."""
    windows = mp.JoinWindows(-5 * MS, 20 * MS, 0 * MS)
    records = [("k", "a", 100), ("k", "b", 108), ("k", "c", 104)]
    assert run(self_join(windows, single_store=False), records) == [("k", "ab", 108)]
    assert run(self_join(windows, single_store=True), records) == [
        ("k", "aa", 100),
        ("k", "ab", 108),
        ("k", "bb", 108),
        ("k", "cc", 104),
    ]


def test_topology_has_one_store_and_no_node_for_the_right_side() -> None:
    """The processor that joins has the name of the one that would merge."""
    topology = self_join(mp.JoinWindows(MS, MS), single_store=True)
    assert list(topology.stores) == ["KSTREAM-JOINTHIS-0000000003-store"]
    described = str(topology.describe())
    assert "Processor: KSTREAM-MERGE-0000000005 (stores: [KSTREAM-JOINTHIS-0000000003-store])" in described
    assert "KSTREAM-WINDOWED-0000000002" not in described


def test_two_streams_need_two_stores() -> None:
    b = mp.StreamsBuilder()
    one, other = (b.stream(name, key=mp.String, value=mp.String) for name in ("in", "others"))
    one.join(other, lambda a, b: a + b, mp.JoinWindows(MS, MS))
    (node,) = joins(one._graph.root)
    assert not node.is_self_join
    with pytest.raises(TopologyError, match="'KSTREAM-MERGE-0000000006' joins two different streams"):
        node.use_single_store()
