"""The drawing of a topology that workers send to the coordinator."""

from __future__ import annotations

import pytest

import millpond as mp
from millpond.protocol.topology_overview import MAX_NODES, topology_overview
from tests.oracle.topologies.by_hand import random_topology


def counted() -> mp.Topology:
    builder = mp.StreamsBuilder()
    words = builder.stream("lines", key=mp.String, value=mp.String).select_key(lambda _, value: value)
    words.group_by_key().count(store="counts").to_stream().to("totals", key=mp.String, value=mp.Long)
    return builder.build()


def test_topics_nodes_and_stores_are_connected() -> None:
    """From the input to the output, under the names in Kafka."""
    drawing = topology_overview(counted(), lambda name: f"app-{name}" if name.startswith("counts") else name)
    assert drawing is not None
    kinds = {node.name: node.kind for node in drawing.nodes}
    assert [name for name, kind in kinds.items() if kind == "store"] == ["store counts"]
    topics = [name for name, kind in kinds.items() if kind == "topic"]
    assert topics[0] == "topic lines"
    assert "topic totals" in topics
    (internal,) = set(topics) - {"topic lines", "topic totals"}
    assert internal.startswith("topic app-counts"), "an internal topic has its name in Kafka, as loads have"
    edges = {(edge.source, edge.target) for edge in drawing.edges}
    reached, before = {"topic lines"}, 0
    while len(reached) > before:
        before = len(reached)
        reached |= {target for source, target in edges if source in reached}
    assert reached == kinds.keys(), "every node is downstream of the input"
    assert {node.subtopology for node in drawing.nodes if node.kind == "processor"} == {0, 1}
    assert {(edge.topic, edge.target) for edge in drawing.edges if edge.source == "topic lines"} == {
        ("lines", next(edge.target for edge in drawing.edges if edge.topic == "lines"))
    }


@pytest.mark.parametrize("seed", range(20))
def test_every_edge_has_both_ends(seed: int) -> None:
    """Whatever the topology."""
    drawing = topology_overview(random_topology(seed))
    assert drawing is not None
    names = [node.name for node in drawing.nodes]
    assert len(set(names)) == len(names)
    assert {end for edge in drawing.edges for end in (edge.source, edge.target)} <= set(names)


def test_a_topology_that_is_too_large_to_read_is_not_drawn() -> None:
    """Each worker would send it."""
    builder = mp.StreamsBuilder()
    stream = builder.stream("lines", key=mp.String, value=mp.String)
    for _ in range(MAX_NODES):
        stream.filter(lambda _key, _value: True)
    assert topology_overview(builder.build()) is None


def test_a_drawing_with_long_names_is_not_sent() -> None:
    """The coordinator rejects large heartbeats, and a worker without heartbeats counts as dead."""
    builder = mp.StreamsBuilder()
    stream = builder.stream("lines", key=mp.String, value=mp.String)
    for number in range(MAX_NODES // 2):
        stream.filter(lambda _key, _value: True, name=f"filter-{'x' * 100}-{number}")
    assert topology_overview(builder.build()) is None
