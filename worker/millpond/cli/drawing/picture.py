"""The picture of a topology: the positions of its boxes, topics, nodes, stores and arrows."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from html import escape

from millpond.topology import Node, ProcessorNode, SinkNode, SourceNode, Topology

from . import shapes
from .layout import Layout, Link, Point, arrange
from .shapes import NODE_HEIGHT, TOPIC_HEIGHT

__all__ = ("svg",)

_MARGIN, _TITLE, _ACROSS, _BETWEEN = 28.0, 44.0, 34.0, 46.0
_PADDING, _HEADING, _STORE_GAP, _STORE_STEP = 18.0, 30.0, 34.0, 50.0


def svg(topology: Topology, title: str) -> str:
    """Return the picture as the text of an SVG file."""
    boxes = list(_boxes(topology))
    topics = {key: key.removeprefix("topic ") for box in boxes for key, _ in box.ends()}
    sizes = {key: (shapes.width("topic", name), TOPIC_HEIGHT) for key, name in topics.items()}
    sizes |= {box.key: box.size for box in boxes}
    links = [(topic, box.key) for box in boxes for topic, _ in box.reads]
    links += [(box.key, topic) for box in boxes for _, topic in box.writes]
    layout = arrange(sizes, links, across=_ACROSS, between=_BETWEEN, sources_near=True).moved(_MARGIN, _MARGIN + _TITLE)
    for box in boxes:
        box.move_to(*layout.centres[box.key])
    places = _straightened(layout, sizes, boxes)
    width, height = max(layout.size[0], len(title) * 11) + 2 * _MARGIN, layout.size[1] + _TITLE + 2 * _MARGIN
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}" role="img" aria-label="Topology of {escape(title)}">',
        f"<title>Topology of {escape(title)}</title>\n<style>{shapes.STYLE}</style>",
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path class="tip" d="M0,0.6 L8,4 L0,7.4 z"/></marker></defs>',
        '<rect class="back" width="100%" height="100%"/>',
        shapes.text("title", _MARGIN, _MARGIN + 14, title),
        *(box.background() for box in boxes),
        *itertools.chain.from_iterable(box.links_to_topics(places, layout.bends) for box in boxes),
        *itertools.chain.from_iterable(box.contents() for box in boxes),
    ]
    for key, name in topics.items():
        lines.append(shapes.topic(name, *places[key], internal=name in topology.repartition_topics))
    return "\n".join([*lines, "</svg>\n"])


class _Box:
    """A sub-topology or a global store. Each store stands to the right of the first node that uses it."""

    def __init__(self, key: str, heading: str, nodes: Sequence[Node], stores: Sequence[str]) -> None:
        self.key = key
        self._heading = heading
        self._nodes = {node.name: node for node in nodes}
        self._owners: dict[str, str] = {}
        for node in nodes:
            for store in _used(node):
                if store in stores:
                    self._owners.setdefault(store, node.name)
        self._halves = {node.name: shapes.node_width(node) / 2 for node in nodes}
        children = [node for node in nodes if not isinstance(node, SourceNode)]
        self._links = [(parent, node.name) for node in children for parent in node.parents]
        extents = {name: self._extent(name) for name in self._nodes}
        self._layout = arrange(extents, self._links, across=26, between=30)
        self._at = self._layout.centres
        reads = [(topic, node.name) for node in nodes if isinstance(node, SourceNode) for topic in _topics(node)]
        self.reads = sorted(reads, key=lambda link: self._at[link[1]])
        """(topic, source) pairs, from left to right."""
        writes = [(node.name, _target(node)) for node in nodes if isinstance(node, SinkNode)]
        self.writes = sorted(writes, key=lambda link: self._at[link[0]])
        """(sink, topic) pairs, from left to right."""
        self.left = min(x - self._halves[name] for name, (x, _) in self._at.items()) - _PADDING
        rights = [x + self._halves[name] for name, (x, _) in self._at.items()]
        rights += [self._store_place(store)[0] + shapes.width("store", store) / 2 for store in self._owners]
        self.right = max(*rights, self.left + len(heading) * 6.6 + _PADDING) + _PADDING
        # In the layout of all boxes, the middle of a box is where its links to topics are on average.
        self._middle = sum(x for _, x in self.ends()) / len([*self.ends()])
        width = 2 * max(self._middle - self.left, self.right - self._middle)
        self.size = width, _HEADING + self._layout.size[1] + _PADDING
        self._top = self._bottom = 0.0

    def _extent(self, name: str) -> Point:
        """Return the size of a node with its stores, and equal space on the other side, to keep chains straight."""
        stores = [store for store, owner in self._owners.items() if owner == name]
        beside = max((_STORE_GAP + shapes.width("store", each) for each in stores), default=0.0)
        return 2 * (self._halves[name] + beside), max(NODE_HEIGHT, len(stores) * _STORE_STEP - 8)

    def _store_place(self, store: str) -> Point:
        owner = self._owners[store]
        x, y = self._at[owner]
        same = [each for each, node in self._owners.items() if node == owner]
        down = (same.index(store) - (len(same) - 1) / 2) * _STORE_STEP
        return x + self._halves[owner] + _STORE_GAP + shapes.width("store", store) / 2, y + down

    def move_to(self, x: float, y: float) -> None:
        """Move the middle of the box to a point."""
        right = x - self._middle
        self.left, self.right = self.left + right, self.right + right
        self._top, self._bottom = y - self.size[1] / 2, y + self.size[1] / 2
        self._layout = self._layout.moved(right, self._top + _HEADING)
        self._at = self._layout.centres

    def ends(self) -> Iterator[tuple[str, float]]:
        """Yield each topic with the x coordinate of its link."""
        yield from ((topic, self._at[name][0]) for topic, name in self.reads)
        yield from ((topic, self._at[name][0]) for name, topic in self.writes)

    def background(self) -> str:
        return shapes.rectangle("box", (self.left, self._top), (self.right, self._bottom), radius=10)

    def links_to_topics(self, places: Mapping[str, Point], bends: Mapping[Link, list[Point]]) -> Iterator[str]:
        for topic, name in self.reads:
            (x, y), (to_x, to_y) = places[topic], self._at[name]
            passes = bends[topic, self.key]
            yield shapes.arrow([(x, y + TOPIC_HEIGHT / 2), *passes, (to_x, self._top), (to_x, to_y - NODE_HEIGHT / 2)])
        for name, topic in self.writes:
            (x, y), (to_x, to_y) = self._at[name], places[topic]
            passes = bends[self.key, topic]
            if to_y < y and not passes:  # to a topic above the box: around the box
                passes = [(self.right + 20, (self._top + self._bottom) / 2)]
            yield shapes.arrow([(x, y + NODE_HEIGHT / 2), (x, self._bottom), *passes, (to_x, to_y - TOPIC_HEIGHT / 2)])

    def contents(self) -> Iterator[str]:
        for start, end in self._links:
            (x, y), (to_x, to_y) = self._at[start], self._at[end]
            passes = self._layout.bends[start, end]
            yield shapes.arrow([(x, y + NODE_HEIGHT / 2), *passes, (to_x, to_y - NODE_HEIGHT / 2)])
        for name, node in self._nodes.items():
            yield from (self._use(name, store) for store in _used(node) if store in self._owners)
        yield from (shapes.node(node, *self._at[name]) for name, node in self._nodes.items())
        yield from (shapes.store(store, *self._store_place(store)) for store in self._owners)
        yield shapes.text("head", self.left + 14, self._top + 19, self._heading)

    def _use(self, name: str, store: str) -> str:
        """Return the dotted line from a node to a store: between facing sides, or to the store from below."""
        (x, y), (to_x, to_y) = self._at[name], self._store_place(store)
        if x < self._at[self._owners[store]][0]:
            x += self._halves[name]
            below = max(y, to_y + NODE_HEIGHT)
            curve = f"{to_x:.1f},{below:.1f} {to_x:.1f},{below:.1f} {to_x:.1f},{to_y + NODE_HEIGHT / 2:.1f}"
        else:
            side = 1 if to_x >= x else -1
            x, to_x = x + side * self._halves[name], to_x - side * shapes.width("store", store) / 2
            half = (x + to_x) / 2
            curve = f"{half:.1f},{y:.1f} {half:.1f},{to_y:.1f} {to_x:.1f},{to_y:.1f}"
        return f'<path class="use" d="M{x:.1f},{y:.1f} C{curve}"/>'


def _boxes(topology: Topology) -> Iterator[_Box]:
    for part in topology.subtopologies():
        nodes: Sequence[Node] = (*part.sources, *part.processors, *part.sinks)
        yield _Box(f"box {part.id}", f"Sub-topology {part.id}", nodes, [store.name for store in part.stores])
    for table in topology.global_stores:
        nodes = (table.source, table.processor)
        yield _Box(f"box {table.id}", "Global store, complete on every worker", nodes, [table.store.name])


def _straightened(layout: Layout, sizes: Mapping[str, Point], boxes: Sequence[_Box]) -> dict[str, Point]:
    """Return places with topics moved to where their link is straight, if their layer has space."""
    places = dict(layout.centres)
    wishes = {topic: (x, box) for box in boxes for topic, x in box.ends()}
    layers: dict[float, list[tuple[float, float, str]]] = {}
    for name, (x, y) in layout.centres.items():
        layers.setdefault(y, []).append((x, sizes[name][0] / 2, name))
    for x, y in itertools.chain.from_iterable(layout.bends.values()):
        layers.setdefault(y, []).append((x, 0.0, ""))
    for y, layer in layers.items():
        layer.sort()
        for index in (*range(len(layer)), *reversed(range(len(layer)))):  # twice: each leaves space for the next
            x, half, name = layer[index]
            if name in wishes:
                wish, box = wishes[name]
                low, high = min(x, box.left + half), max(x, box.right - half)
                if index:
                    low = max(low, sum(layer[index - 1][:2]) + _ACROSS + half)
                if index + 1 < len(layer):
                    high = min(high, layer[index + 1][0] - layer[index + 1][1] - _ACROSS - half)
                x = min(max(wish, low), max(low, high))
                layer[index] = x, half, name
                places[name] = x, y
    return places


def _used(node: Node) -> tuple[str, ...]:
    return node.stores if isinstance(node, ProcessorNode) else ()


def _topics(source: SourceNode) -> tuple[str, ...]:
    """Return the keys of a source's topics in the picture; boxes have other keys."""
    return tuple(f"topic {each}" for each in source.topics or ((source.pattern.pattern if source.pattern else ""),))


def _target(sink: SinkNode) -> str:
    return f"topic {sink.topic if isinstance(sink.topic, str) else 'chosen per record'}"
