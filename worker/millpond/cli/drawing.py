"""A topology as an SVG picture: sub-topologies as boxes, topics between them, stores beside what uses them.

Drawn here, without a network, a browser or another program; it follows the reader's light or dark theme.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape

from millpond.topology import Node, ProcessorNode, SinkNode, SourceNode, Subtopology, Topology

from .layered import Edge, Item, Layout, arrange

__all__ = ("svg",)

_GENERATED = re.compile(r"(?:KSTREAM|KTABLE)-(?P<role>[A-Z-]+?)-\d{10}(?P<rest>.*)")
_WORDS = {
    "AGGREGATE": "aggregate",
    "BRANCHCHILD": "branch",
    "FLATMAP": "flat map",
    "FLATMAPVALUES": "flat map values",
    "KEY-SELECT": "select key",
    "LEFTJOIN": "left join",
    "MAPVALUES": "map values",
    "PROCESSOR": "process",
    "PROCESSVALUES": "process values",
    "TOSTREAM": "to stream",
    "TOTABLE": "to table",
    "TRANSFORMVALUES": "transform values",
}

_MARGIN = 28.0
_TITLE = 44.0
_PAD = 18.0
_HEADER = 30.0
_NODE_HEIGHT = 42.0
_STORE_HEIGHT = 42.0
_TOPIC_HEIGHT = 34.0
_LETTER = 7.3
_SMALL_LETTER = 6.05

_STYLE = """
  text { font-family: ui-sans-serif, system-ui, "Segoe UI", Helvetica, Arial, sans-serif; fill: #1f2933 }
  .back { fill: #ffffff } .box { fill: #f4f6f8; stroke: #d5dbe1 } .head { font-size: 12px; fill: #66727f; paint-order: stroke; stroke: #f4f6f8; stroke-width: 5px }
  .title { font-size: 18px; font-weight: 600 } .name { font-size: 13px; font-weight: 600 }
  .small { font-family: ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; font-size: 10px; fill: #66727f }
  .node { fill: #ffffff; stroke: #9aa7b4 } .source { stroke: #2f855a } .sink { stroke: #b7562b }
  .bar-source { fill: #2f855a } .bar-sink { fill: #b7562b } .bar-processor { fill: #9aa7b4 }
  .topic { fill: #e3effb; stroke: #3b78b8 } .internal { stroke-dasharray: 5 4 }
  .store { fill: #fdf3d8; stroke: #b98a1d }
  .edge { fill: none; stroke: #66727f; stroke-width: 1.4 } .link { fill: none; stroke: #b98a1d; stroke-width: 1.2; stroke-dasharray: 3 3 }
  .tip { fill: #66727f }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6ebf0 } .back { fill: #12161b } .box { fill: #1a2027; stroke: #323c47 } .head, .small { fill: #98a5b3 } .head { stroke: #1a2027 }
    .node { fill: #232b34; stroke: #5b6875 } .source { stroke: #4fb286 } .sink { stroke: #e08a5b }
    .bar-source { fill: #4fb286 } .bar-sink { fill: #e08a5b } .bar-processor { fill: #5b6875 }
    .topic { fill: #1b2f45; stroke: #5b9bdb } .store { fill: #3a3018; stroke: #d4a93a }
    .edge { stroke: #98a5b3 } .link { stroke: #d4a93a } .tip { fill: #98a5b3 }
  }
"""


@dataclass
class _Box:
    """One sub-topology or global store, drawn around its own origin."""

    title: str
    nodes: dict[str, Node]
    stores: dict[str, str]
    """Each store's name with the node it is drawn beside."""
    edges: list[Edge[str]]
    layout: Layout[str] = field(default_factory=Layout)
    sizes: dict[str, float] = field(default_factory=dict)
    """Width of each node without the stores beside it."""
    width: float = 0.0
    height: float = 0.0

    def arrange(self) -> None:
        items: dict[str, Item] = {}
        for name, node in self.nodes.items():
            self.sizes[name] = _node_width(node)
            items[name] = Item(self._extent(name), self._height(name), last=isinstance(node, SinkNode))
        # An edge leaves the middle of the node, which is left of the middle when stores stand beside it.
        edges = [Edge(edge.start, edge.end, self._shift(edge.start), self._shift(edge.end)) for edge in self.edges]
        self.layout = arrange(items, edges, across=26, between=30)
        title = len(self.title) * 6.6
        self.width = max(self.layout.width, title) + 2 * _PAD
        self.height = self.layout.height + _HEADER + _PAD

    def beside(self, name: str) -> list[str]:
        """Stores drawn beside a node."""
        return [store for store, owner in self.stores.items() if owner == name]

    def place(self, name: str) -> tuple[float, float]:
        """Centre and upper edge of a node, from the box's upper left corner."""
        x, y = self.layout.places[name]
        return x + self._shift(name) + (self.width - self.layout.width) / 2, y + _HEADER

    def _extent(self, name: str) -> float:
        stores = self.beside(name)
        return self.sizes[name] + (max(map(_store_width, stores)) + 34 if stores else 0)

    def _height(self, name: str) -> float:
        return max(_NODE_HEIGHT, len(self.beside(name)) * (_STORE_HEIGHT + 8) - 8)

    def _shift(self, name: str) -> float:
        return (self.sizes[name] - self._extent(name)) / 2


def svg(topology: Topology, title: str) -> str:
    """The picture, as the text of an SVG file."""
    return _Picture(topology, title).text()


class _Picture:
    def __init__(self, topology: Topology, title: str) -> None:
        self._title = title
        self._internal = topology.repartition_topics
        self._boxes: dict[str, _Box] = {}
        self._reads: list[tuple[str, str, str]] = []
        self._writes: list[tuple[str, str, str]] = []
        self._parts: list[str] = []
        self._collect(topology)

    def _collect(self, topology: Topology) -> None:
        for part in topology.subtopologies():
            key = f"box {part.id}"
            nodes: dict[str, Node] = {node.name: node for node in _nodes(part)}
            edges = [
                Edge(parent, node.name)
                for node in nodes.values()
                if not isinstance(node, SourceNode)
                for parent in node.parents
            ]
            stores = {
                store.name: next(node.name for node in part.processors if store.name in node.stores)
                for store in part.stores
                if any(store.name in node.stores for node in part.processors)
            }
            self._boxes[key] = _Box(f"Sub-topology {part.id}", nodes, stores, edges)
            self._reads += [(topic, key, source.name) for source in part.sources for topic in _topics(source)]
            self._writes += [(key, sink.name, _target(sink)) for sink in part.sinks]
        for table in topology.global_stores:
            key = f"box {table.id}"
            nodes = {table.source.name: table.source, table.processor.name: table.processor}
            stores = {table.store.name: table.processor.name}
            edge = Edge(table.source.name, table.processor.name)
            self._boxes[key] = _Box("Global store . every worker has all of it", nodes, stores, [edge])
            self._reads += [(topic, key, table.source.name) for topic in _topics(table.source)]
        for box in self._boxes.values():
            box.arrange()

    def text(self) -> str:
        topics = dict.fromkeys([topic for topic, _, _ in self._reads] + [topic for _, _, topic in self._writes])
        items: dict[str, Item] = {
            f"topic {topic}": Item(_topic_width(topic), _TOPIC_HEIGHT, near=True) for topic in topics
        }
        items.update({key: Item(box.width, box.height) for key, box in self._boxes.items()})
        edges = [Edge(f"topic {topic}", key, 0.0, self._port(key, node)) for topic, key, node in self._reads]
        edges += [Edge(key, f"topic {topic}", self._port(key, node), 0.0) for key, node, topic in self._writes]
        layout = arrange(items, edges, across=34, between=46)
        for key, box in self._boxes.items():
            x, y = layout.places[key]
            self._box(box, x - box.width / 2 + _MARGIN, y + _TITLE + _MARGIN)
        self._outer_edges(layout, edges)
        for key, box in self._boxes.items():
            x, y = layout.places[key]
            self._heading(box.title, x - box.width / 2 + _MARGIN + 14, y + _TITLE + _MARGIN + 19)
        for topic in topics:
            x, y = layout.places[f"topic {topic}"]
            self._topic(topic, x + _MARGIN, y + _TITLE + _MARGIN)
        return self._document(layout.width + 2 * _MARGIN, layout.height + _TITLE + 2 * _MARGIN)

    def _port(self, key: str, node: str) -> float:
        box = self._boxes[key]
        return box.place(node)[0] - box.width / 2

    def _document(self, width: float, height: float) -> str:
        width = max(width, len(self._title) * 11 + 2 * _MARGIN)
        title = escape(self._title)
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
            f'viewBox="0 0 {width:.0f} {height:.0f}" role="img" aria-label="Topology of {title}">\n'
            f"<title>Topology of {title}</title>\n<style>{_STYLE}</style>\n"
            '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" '
            'orient="auto-start-reverse"><path class="tip" d="M0,0.6 L8,4 L0,7.4 z"/></marker></defs>\n'
            f'<rect class="back" width="100%" height="100%"/>\n'
            f'<text class="title" x="{_MARGIN}" y="{_MARGIN + 14}">{title}</text>\n'
            + "\n".join(self._parts)
            + "\n</svg>\n"
        )

    # Boxes ----------------------------------------------------------------------------------------------------

    def _box(self, box: _Box, left: float, top: float) -> None:
        self._parts.append(
            f'<rect class="box" x="{left:.1f}" y="{top:.1f}" width="{box.width:.1f}" height="{box.height:.1f}" rx="10"/>'
        )
        for index, edge in enumerate(box.edges):
            start, end = box.place(edge.start), box.place(edge.end)
            inset = (box.width - box.layout.width) / 2
            bends = [(x + inset + left, y + _HEADER + top, z + _HEADER + top) for x, y, z in box.layout.bends[index]]
            self._edge((start[0] + left, start[1] + top + _NODE_HEIGHT), bends, (end[0] + left, end[1] + top))
        stores: dict[str, tuple[float, float]] = {}
        for name, node in box.nodes.items():
            x, y = box.place(name)
            self._node(node, x + left, y + top, box.sizes[name])
            for number, store in enumerate(box.beside(name)):
                at = x + left + box.sizes[name] / 2 + 34
                stores[store] = (at, y + top + number * (_STORE_HEIGHT + 8))
                self._store(store, *stores[store])
        for name, node in box.nodes.items():
            for store in node.stores if isinstance(node, ProcessorNode) else ():
                if store in stores:
                    x, y = box.place(name)
                    half = box.sizes[name] / 2
                    sides = (x + left - half, x + left + half, y + top + _NODE_HEIGHT / 2)
                    self._link(sides, stores[store], _store_width(store))

    def _heading(self, title: str, x: float, y: float) -> None:
        self._parts.append(f'<text class="head" x="{x:.1f}" y="{y:.1f}">{escape(title)}</text>')

    def _node(self, node: Node, x: float, y: float, width: float) -> None:
        kind = _kind(node)
        name, small = _labels(node)
        left = x - width / 2
        self._parts.append(
            f'<g><title>{escape(node.name)}</title><rect class="node {kind}" x="{left:.1f}" y="{y:.1f}" width="{width:.1f}" '
            f'height="{_NODE_HEIGHT}" rx="6"/><rect class="bar-{kind}" x="{left:.1f}" y="{y + 8:.1f}" width="3" '
            f'height="{_NODE_HEIGHT - 16}"/>'
            f'<text class="name" x="{x:.1f}" y="{y + 18:.1f}" text-anchor="middle">{escape(name)}</text>'
            f'<text class="small" x="{x:.1f}" y="{y + 32:.1f}" text-anchor="middle">{escape(small)}</text></g>'
        )

    def _store(self, name: str, left: float, top: float) -> None:
        width, lid = _store_width(name), 5.0
        right, bottom = left + width, top + _STORE_HEIGHT
        self._parts.append(
            f'<g><title>store {escape(name)}</title><path class="store" d="M{left:.1f},{top + lid:.1f} '
            f"A{width / 2:.1f},{lid} 0 0 1 {right:.1f},{top + lid:.1f} V{bottom - lid:.1f} "
            f'A{width / 2:.1f},{lid} 0 0 1 {left:.1f},{bottom - lid:.1f} Z"/><path class="store" style="fill:none" '
            f'd="M{left:.1f},{top + lid:.1f} A{width / 2:.1f},{lid} 0 0 0 {right:.1f},{top + lid:.1f}"/>'
            f'<text class="small" x="{left + width / 2:.1f}" y="{top + 27:.1f}" text-anchor="middle">{escape(name)}</text></g>'
        )

    def _link(self, node: tuple[float, float, float], store: tuple[float, float], store_width: float) -> None:
        """A dotted line between a node (left, right, middle) and a store, on the sides that face each other."""
        left, right, y = node
        to_y = store[1] + _STORE_HEIGHT / 2
        if store[0] >= right:
            x, to_x, bow = right, store[0], 1.0
        else:
            x, to_x, bow = left, store[0] + store_width, -1.0
        bow *= max(12.0, abs(to_x - x) / 2)
        self._parts.append(
            f'<path class="link" d="M{x:.1f},{y:.1f} C{x + bow:.1f},{y:.1f} {to_x - bow:.1f},{to_y:.1f} {to_x:.1f},{to_y:.1f}"/>'
        )

    # Between boxes --------------------------------------------------------------------------------------------

    def _outer_edges(self, layout: Layout[str], edges: Sequence[Edge[str]]) -> None:
        down = _TITLE + _MARGIN
        for index in range(len(edges)):
            bends = [(x + _MARGIN, y + down, z + down) for x, y, z in layout.bends[index]]
            if index < len(self._reads):
                topic, key, node = self._reads[index]
                x, y = layout.places[f"topic {topic}"]
                inside, below = self._inside(layout, key, node)
                self._edge((x + _MARGIN, y + down + _TOPIC_HEIGHT), bends, (inside, below))
            else:
                key, node, topic = self._writes[index - len(self._reads)]
                x, y = layout.places[f"topic {topic}"]
                inside, below = self._inside(layout, key, node)
                self._edge((inside, below + _NODE_HEIGHT), bends, (x + _MARGIN, y + down))

    def _inside(self, layout: Layout[str], key: str, node: str) -> tuple[float, float]:
        box = self._boxes[key]
        x, y = layout.places[key]
        at, below = box.place(node)
        return x - box.width / 2 + at + _MARGIN, y + below + _TITLE + _MARGIN

    def _edge(
        self, start: tuple[float, float], bends: Sequence[tuple[float, float, float]], end: tuple[float, float]
    ) -> None:
        """A curve that leaves and arrives vertically, and runs straight where it passes a layer."""
        path = [f"M{start[0]:.1f},{start[1]:.1f}"]
        x, y = start
        for to_x, enter, leave in bends:
            first, second = (enter, leave) if y <= enter else (leave, enter)
            path.append(_curve(x, y, to_x, first) + f" L{to_x:.1f},{second:.1f}")
            x, y = to_x, second
        path.append(_curve(x, y, *end))
        self._parts.append(f'<path class="edge" d="{" ".join(path)}" marker-end="url(#tip)"/>')

    def _topic(self, topic: str, x: float, y: float) -> None:
        width = _topic_width(topic)
        dashed = " internal" if topic in self._internal else ""
        self._parts.append(
            f'<g><title>topic {escape(topic)}</title><rect class="topic{dashed}" x="{x - width / 2:.1f}" y="{y:.1f}" '
            f'width="{width:.1f}" height="{_TOPIC_HEIGHT}" rx="{_TOPIC_HEIGHT / 2}"/>'
            f'<text class="name" x="{x:.1f}" y="{y + 21:.1f}" text-anchor="middle">{escape(topic)}</text></g>'
        )


def _curve(x: float, y: float, to_x: float, to_y: float) -> str:
    bow = (to_y - y) / 2 if to_y > y else 40.0
    return f"C{x:.1f},{y + bow:.1f} {to_x:.1f},{to_y - bow:.1f} {to_x:.1f},{to_y:.1f}"


def _nodes(part: Subtopology) -> tuple[Node, ...]:
    return (*part.sources, *part.processors, *part.sinks)


def _kind(node: Node) -> str:
    return "source" if isinstance(node, SourceNode) else "sink" if isinstance(node, SinkNode) else "processor"


def _labels(node: Node) -> tuple[str, str]:
    """What a node does, and its name: in words where the name was generated."""
    found = _GENERATED.fullmatch(node.name)
    if found is None:
        return node.name, _kind(node)
    role = found["role"]
    if node.name.startswith("KTABLE-SOURCE"):
        return "table", node.name
    return _WORDS.get(role, role.lower().replace("-", " ")), node.name


def _node_width(node: Node) -> float:
    name, small = _labels(node)
    return max(len(name) * _LETTER, len(small) * _SMALL_LETTER, 70) + 24


def _store_width(name: str) -> float:
    return max(len(name) * _SMALL_LETTER, 40) + 20


def _topic_width(name: str) -> float:
    return len(name) * (_LETTER + 0.9) + 36


def _topics(source: SourceNode) -> tuple[str, ...]:
    return source.topics or ((source.pattern.pattern if source.pattern else ""),)


def _target(sink: SinkNode) -> str:
    return sink.topic if isinstance(sink.topic, str) else "chosen per record"
