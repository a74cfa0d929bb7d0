"""`millpond topology`: text, Mermaid and pictures."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millpond.cli.application import load_topology
from millpond.cli.drawing import svg
from millpond.cli.layered import Edge, Item, arrange
from millpond.topology import Topology
from tests.cli.conftest import COUNT, Application, Millpond

SVG = "{http://www.w3.org/2000/svg}"


def test_text_format_is_the_description(millpond: Millpond, application: Application) -> None:
    """The text is exactly that of `Topology.describe()`, so it can be compared with Kafka Streams'."""
    target = f"{application(COUNT)}:count"
    assert millpond("topology", target).out == str(load_topology(target).describe())


def test_mermaid_format_equals_the_topologys(millpond: Millpond, application: Application) -> None:
    """Mermaid for Markdown pages."""
    target = f"{application(COUNT)}:count"
    assert millpond("topology", target, "--format", "mermaid").out == load_topology(target).mermaid()


def test_file_suffix_selects_the_format(millpond: Millpond, application: Application, tmp_path: Path) -> None:
    """`-o topology.svg` draws, `-o topology.txt` writes text; nothing goes to standard output."""
    target = f"{application(COUNT)}:count"
    for name, begins in (("t.svg", "<svg"), ("t.mmd", "flowchart"), ("t.txt", "Topologies:")):
        ended = millpond("topology", target, "-o", tmp_path / name)
        assert (ended.status, ended.out) == (0, "")
        assert (tmp_path / name).read_text(encoding="utf-8").startswith(begins)


def test_unwritable_file_is_one_sentence(millpond: Millpond, application: Application) -> None:
    """No traceback for a directory that is not there."""
    ended = millpond("topology", f"{application(COUNT)}:count", "-o", "nowhere/t.svg")
    assert ended.status == 1
    assert "nowhere/t.svg" in ended.err


def test_picture_contains_every_node_and_edge(millpond: Millpond, application: Application) -> None:
    """Every node, topic and store of the topology is in the picture, which is well-formed and needs no network."""
    target = f"{application(COUNT)}:count"
    text = millpond("topology", target, "--format", "svg").out
    root = ET.fromstring(text)
    titles = {title.text for title in root.iter(f"{SVG}title")}
    topology = load_topology(target)
    assert set(topology.nodes) <= titles
    assert {"topic words", "topic counts", "topic by-word-repartition", "store counts"} <= titles
    assert "http" not in text.replace("http://www.w3.org/2000/svg", "")


def test_names_of_any_characters_are_shown_as_text() -> None:
    """A title or pattern with markup characters stays text."""
    topology = Topology()
    topology.add_source("s", re.compile("a<b&c.*"))
    ET.fromstring(svg(topology, "<&>\"'"))


def test_a_topology_that_reads_what_it_writes_is_drawn() -> None:
    """A cycle through a topic is no reason to fail."""
    topology = Topology()
    topology.add_source("in", "loop")
    topology.add_sink("out", "loop", "in")
    titles = {title.text for title in ET.fromstring(svg(topology, "loop")).iter(f"{SVG}title")}
    assert {"in", "out", "topic loop"} <= titles


@st.composite
def graphs(draw: st.DrawFn) -> tuple[dict[int, Item], list[Edge[int]]]:
    count = draw(st.integers(1, 12))
    items = {
        number: Item(
            draw(st.floats(1, 300)), draw(st.floats(1, 100)), last=draw(st.booleans()), near=draw(st.booleans())
        )
        for number in range(count)
    }
    ends = st.integers(0, count - 1)
    pairs = draw(st.lists(st.tuples(ends, ends).filter(lambda pair: pair[0] != pair[1]), max_size=20, unique=True))
    return items, [Edge(start, end) for start, end in pairs]


@given(graphs())
def test_nodes_lie_inside_without_overlap(graph: tuple[dict[int, Item], list[Edge[int]]]) -> None:
    """Whatever the graph: no two items overlap, and the drawing's size holds all of them."""
    items, edges = graph
    layout = arrange(items, edges, across=10, between=20)
    boxes = {
        number: (layout.places[number][0] - item.width / 2, layout.places[number][1], item.width, item.height)
        for number, item in items.items()
    }
    for number, (x, y, width, height) in boxes.items():
        assert x >= -1e-6
        assert y >= -1e-6
        assert x + width <= layout.width + 1e-6
        assert y + height <= layout.height + 1e-6
        for other, (left, top, wide, high) in boxes.items():
            apart = x + width <= left + 1e-6 or left + wide <= x + 1e-6 or y + height <= top or top + high <= y
            assert number == other or apart


@given(graphs())
def test_edges_of_graphs_without_cycles_run_downwards(graph: tuple[dict[int, Item], list[Edge[int]]]) -> None:
    """Data flows from above to below, so that a picture is read at a glance."""
    items, edges = graph
    items = {number: Item(item.width, item.height) for number, item in items.items()}
    edges = [edge if edge.start < edge.end else Edge(edge.end, edge.start) for edge in edges]
    layout = arrange(items, edges, across=10, between=20)
    for edge in edges:
        assert layout.places[edge.start][1] < layout.places[edge.end][1]


@given(graphs())
def test_the_same_graph_is_drawn_the_same(graph: tuple[dict[int, Item], list[Edge[int]]]) -> None:
    """Pictures are kept in repositories: drawing again changes nothing."""
    items, edges = graph
    assert arrange(items, edges, across=10, between=20) == arrange(items, edges, across=10, between=20)


def test_avoidable_crossings_are_avoided() -> None:
    """Two parents with their children in the wrong order are sorted out."""
    items = {name: Item(10, 10) for name in "abcdef"}
    edges = [Edge("a", "f"), Edge("b", "e"), Edge("c", "d")]
    layout = arrange(items, edges, across=10, between=20)
    pairs = sorted((layout.places[edge.start][0], layout.places[edge.end][0]) for edge in edges)
    assert [end for _, end in pairs] == sorted(end for _, end in pairs)


@pytest.mark.parametrize("near", [False, True])
def test_topic_is_drawn_near_its_reader(near: bool) -> None:
    """A topic read by a late sub-topology is drawn there, and not at the top of the page."""
    items = {"a": Item(10, 10), "b": Item(10, 10), "c": Item(10, 10), "late": Item(10, 10, near=near)}
    edges = [Edge("a", "b"), Edge("b", "c"), Edge("late", "c")]
    layout = arrange(items, edges, across=10, between=20)
    assert layout.places["late"][1] == layout.places["b" if near else "a"][1]
