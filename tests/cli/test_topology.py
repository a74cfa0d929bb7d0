"""`millpond topology`: text, Mermaid and pictures."""

from __future__ import annotations

import itertools
import re
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from examples.alerts.app import alerts
from examples.clicks.app import clicks
from examples.flights.app import delays
from examples.migration.app import payments
from examples.orders.app import orders
from millpond.cli.application import load_topology
from millpond.drawing import graph_of, svg
from millpond.drawing.layout import Link, Point, arrange
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
    """A missing directory gives no traceback."""
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
    ET.fromstring(svg(graph_of(topology), "<&>\"'"))


def test_a_topology_that_reads_what_it_writes_is_drawn() -> None:
    """A cycle through a topic is no reason to fail."""
    topology = Topology()
    topology.add_source("in", "loop")
    topology.add_sink("out", "loop", "in")
    titles = {title.text for title in ET.fromstring(svg(graph_of(topology), "loop")).iter(f"{SVG}title")}
    assert {"in", "out", "topic loop"} <= titles


@pytest.mark.parametrize("build", [alerts, clicks, delays, orders, payments], ids=lambda build: str(build.__name__))
def test_arrows_pass_beside_nodes_and_topics(build: Callable[[], Topology]) -> None:
    """An arrow back to a sub-topology, such as that of a join's answers, goes around what it passes."""
    root = ET.fromstring(svg(graph_of(build()), "application"))
    shapes = [
        tuple(float(each.attrib[name]) for name in ("x", "y", "width", "height"))
        for each in root.iter(f"{SVG}rect")
        if each.attrib["class"].split()[0] in ("source", "processor", "sink", "topic")
    ]
    arrows = [each.attrib["d"] for each in root.iter(f"{SVG}path") if each.attrib["class"] == "edge"]
    assert shapes
    assert arrows
    for x, y in itertools.chain.from_iterable(map(points_of, arrows)):
        assert not [
            (left, top)
            for left, top, width, height in shapes
            if left + 2 < x < left + width - 2 and top + 2 < y < top + height - 2
        ]


def points_of(arrow: str) -> Iterator[Point]:
    """Yield points of a path of cubic Bézier curves, about one px apart or a few."""
    start, *curves = ([float(number) for number in re.split("[ ,]", part)] for part in arrow[1:].split(" C"))
    at = (start[0], start[1])
    for x1, y1, x2, y2, x3, y3 in curves:
        for step in range(201):
            t = step / 200
            parts = (1 - t) ** 3, 3 * (1 - t) ** 2 * t, 3 * (1 - t) * t**2, t**3
            yield (
                sum(part * x for part, x in zip(parts, (at[0], x1, x2, x3), strict=True)),
                sum(part * y for part, y in zip(parts, (at[1], y1, y2, y3), strict=True)),
            )
        at = (x3, y3)


@st.composite
def graphs(draw: st.DrawFn) -> tuple[dict[str, Point], list[Link]]:
    """Sizes and links; some graphs have cycles, and some have parts that are not connected."""
    names = [f"item {number}" for number in range(draw(st.integers(1, 12)))]
    sizes = {name: (draw(st.floats(1, 300)), draw(st.floats(1, 100))) for name in names}
    ends = st.sampled_from(names)
    pairs = st.tuples(ends, ends).filter(lambda pair: pair[0] != pair[1])
    return sizes, draw(st.lists(pairs, max_size=20, unique=True))


@given(graphs(), st.booleans())
def test_items_lie_inside_without_overlap(graph: tuple[dict[str, Point], list[Link]], sources_near: bool) -> None:
    """Whatever the graph: no two items overlap, and the size of the layout holds all of them."""
    sizes, links = graph
    layout = arrange(sizes, links, across=10, between=20, sources_near=sources_near)
    boxes = {name: (*layout.centres[name], width / 2, height / 2) for name, (width, height) in sizes.items()}
    for name, (x, y, half, high) in boxes.items():
        assert half - 1e-6 <= x <= layout.size[0] - half + 1e-6
        assert high - 1e-6 <= y <= layout.size[1] - high + 1e-6
        for other, (left, top, other_half, other_high) in boxes.items():
            apart = abs(x - left) >= half + other_half - 1e-6 or abs(y - top) >= high + other_high - 1e-6
            assert name == other or apart


@given(graphs())
def test_links_of_graphs_without_cycles_run_downwards(graph: tuple[dict[str, Point], list[Link]]) -> None:
    """Data flows from top to bottom."""
    sizes, links = graph
    links = list(dict.fromkeys((min(link), max(link)) for link in links))
    layout = arrange(sizes, links, across=10, between=20)
    for start, end in links:
        downwards = [layout.centres[start], *layout.bends[start, end], layout.centres[end]]
        assert downwards == sorted(downwards, key=lambda point: point[1])
        assert downwards[0][1] < downwards[-1][1]


@given(graphs())
def test_the_same_graph_is_drawn_the_same(graph: tuple[dict[str, Point], list[Link]]) -> None:
    """Pictures are kept in repositories: drawing again changes nothing."""
    sizes, links = graph
    assert arrange(sizes, links, across=10, between=20) == arrange(sizes, links, across=10, between=20)


def test_avoidable_crossings_are_avoided() -> None:
    """Parents with their children in the wrong order are sorted out."""
    links = [("top", "a"), ("top", "b"), ("top", "c"), ("a", "f"), ("b", "e"), ("c", "d")]
    layout = arrange(dict.fromkeys(["top", *"abcdef"], (10.0, 10.0)), links, across=10, between=20)
    pairs = sorted((layout.centres[start][0], layout.centres[end][0]) for start, end in links[3:])
    assert [end for _, end in pairs] == sorted(end for _, end in pairs)


@pytest.mark.parametrize("near", [False, True])
def test_topic_is_drawn_near_its_reader(near: bool) -> None:
    """A topic read by a late sub-topology is drawn there, and not at the top of the page."""
    sizes = dict.fromkeys(["a", "b", "c", "late"], (10.0, 10.0))
    layout = arrange(sizes, [("a", "b"), ("b", "c"), ("late", "c")], across=10, between=20, sources_near=near)
    assert layout.centres["late"][1] == layout.centres["b" if near else "a"][1]


INCOMPLETE = """
    import millpond as mp

    def joined():
        builder = mp.StreamsBuilder()
        counts = builder.stream("words", key=mp.String).group_by_key().count(store="counts")
        counts.suppress(mp.until_time_limit(timedelta(minutes=1))).to_stream().to("settled", value=mp.Long)
        return builder.build()

    from datetime import timedelta
"""
"""The value serde of `words` is left to the configuration, and the store of `suppress()` has a generated name."""


def test_a_topology_that_cannot_start_is_shown_and_refused(millpond: Millpond, application: Application) -> None:
    """What a worker would say is said here, after the topology, and the exit status is that of a failure."""
    target = f"{application(INCOMPLETE)}:joined"
    ended = millpond("topology", target)
    assert ended.status == 1
    assert ended.out == str(load_topology(target).describe())
    assert ended.err.startswith("millpond: stream('words') has no value serde: write stream('words', value=…)")


def test_the_settings_of_run_decide_whether_a_topology_can_start(
    millpond: Millpond, application: Application, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`millpond.toml`, the environment and `--set` are read; generated names are told with where to give one."""
    target = f"{application(INCOMPLETE)}:joined"
    Path("millpond.toml").write_text('default.value.serde = "String"\n')
    assert millpond("topology", target).status == 0
    given = ("--set", "ensure.explicit.internal.resource.naming=true")
    assert (refused := millpond("topology", target, *given)).status == 1
    assert refused.err == (
        "millpond: ensure.explicit.internal.resource.naming is true, but names are generated for changelogs "
        "KTABLE-SUPPRESS-STATE-STORE-0000000003-changelog; write suppress(…, name=…): its store is named after it.\n"
    )
    monkeypatch.setenv("MILLPOND_ENSURE_EXPLICIT_INTERNAL_RESOURCE_NAMING", "true")
    assert millpond("topology", target).err == refused.err


def test_a_setting_that_does_not_exist_is_found(millpond: Millpond, application: Application) -> None:
    """A mistake in `millpond.toml` is told before a run, too."""
    target = f"{application(COUNT)}:count"
    Path("millpond.toml").write_text("commit.intervall.ms = 100\n")
    ended = millpond("topology", target)
    assert (ended.status, ended.out) == (2, "")
    assert "did you mean 'commit.interval.ms'?" in ended.err
