"""The picture of a topology that workers report: the same as that of the topology itself, whatever is reported."""

from __future__ import annotations

import xml.etree.ElementTree as ET

from hypothesis import example, given
from hypothesis import strategies as st

from examples.flights.app import delays
from millpond.drawing import MOST_PLACES, digest, graph_of, graph_of_overview, places, svg
from millpond.protocol.overview import EdgeOverview, NodeOverview, TopologyOverview
from millpond.protocol.topology_overview import topology_overview

_NAMES = [f"n{number}" for number in range(5)] + ["topic a", "topic b", "store s"]


def reported() -> TopologyOverview:
    found = topology_overview(delays())
    assert found is not None
    return found


def test_reported_topology_is_drawn_like_the_topology() -> None:
    """A round trip through the message of workers loses nothing that the picture shows."""
    assert svg(graph_of_overview(reported(), {1, 2}), "delays") == svg(graph_of(delays()), "delays")


def test_digest_is_that_of_the_picture() -> None:
    """Figures do not change it; another node does."""
    found = reported()
    edges = tuple(EdgeOverview(source=each.source, target=each.target, topic=each.topic, lag=5) for each in found.edges)
    assert digest(TopologyOverview(nodes=found.nodes, edges=edges)) == digest(found)
    assert digest(TopologyOverview(nodes=found.nodes[1:], edges=found.edges)) != digest(found)


def test_real_topologies_are_far_below_the_limit() -> None:
    """The limit is for those that nobody can read."""
    assert places(graph_of(delays())) < MOST_PLACES / 10


def test_long_links_count_for_each_layer_that_they_pass() -> None:
    """They are what makes layouts slow."""
    names = [f"n{number}" for number in range(40)]
    nodes = [NodeOverview(name="topic x", kind="topic", label="x")]
    nodes += [NodeOverview(name=name, kind="processor", subtopology=0, label=name) for name in names]
    edges = [EdgeOverview(source="topic x", target="n0", topic="x")]
    edges += [EdgeOverview(source=one, target=other) for at, one in enumerate(names) for other in names[at + 1 :]]
    assert places(graph_of_overview(TopologyOverview(nodes=tuple(nodes), edges=tuple(edges)))) > MOST_PLACES


@st.composite
def reports(draw: st.DrawFn) -> TopologyOverview:
    """Any message that has the right types."""
    node = st.builds(
        NodeOverview,
        name=st.sampled_from(_NAMES),
        kind=st.sampled_from(["topic", "processor", "store", "?"]),
        subtopology=st.none() | st.integers(0, 2),
        label=st.text(max_size=5),
    )
    edge = st.builds(EdgeOverview, source=st.sampled_from(_NAMES), target=st.sampled_from(_NAMES), topic=st.text())
    return TopologyOverview(nodes=draw(st.lists(node).map(tuple)), edges=draw(st.lists(edge).map(tuple)))


@given(reports())
@example(
    TopologyOverview(
        nodes=(
            NodeOverview(name="topic\0", kind="topic", label="a\0\ud800<"),
            NodeOverview(name="n\x1b", kind="processor", subtopology=0),
        ),
        edges=(EdgeOverview(source="topic\0", target="n\x1b"),),
    )
)
def test_whatever_a_worker_reports_is_drawn_or_refused(report: TopologyOverview) -> None:
    """The picture is well-formed, and nothing fails."""
    graph = graph_of_overview(report, {0, 1})
    if places(graph) <= MOST_PLACES:
        ET.fromstring(svg(graph, "any", live=True))
