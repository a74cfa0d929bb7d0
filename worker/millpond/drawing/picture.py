"""The picture of a topology: the positions of its boxes, topics, nodes, stores and arrows."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence

from . import shapes
from .graph import DrawnGraph, DrawnPart
from .layout import Layout, Link, Point, arrange
from .shapes import NODE_HEIGHT, TOPIC_HEIGHT

__all__ = ("svg",)

_MARGIN, _TITLE, _ACROSS, _BETWEEN = 28.0, 44.0, 34.0, 46.0
_BETWEEN_LIVE = 84.0
"""With space for two lines of figures on an arrow."""
_FIGURES = 110.0
_BESIDE = 20.0
"""The distance of an arrow that goes around a box."""
_PADDING, _HEADING, _STORE_GAP, _STORE_STEP = 18.0, 30.0, 34.0, 50.0


def svg(graph: DrawnGraph, title: str, *, live: bool = False) -> str:
    """Return the picture as the text of an SVG file.

    Args:
        graph: what the picture shows.
        title: the application's name.
        live: whether the picture is part of a page that has its own styles and fills in figures: those of a topic's
            records at `text[data-topic][data-node]`, those of a sub-topology at `text[data-part]`.
    """
    boxes = [_Box(part, spare=_FIGURES if live else 0.0) for part in graph.parts]
    topics = {key: key.removeprefix("topic ") for box in boxes for key, _ in box.ends()}
    sizes = {key: (shapes.width("topic", name), TOPIC_HEIGHT) for key, name in topics.items()}
    sizes |= {box.key: box.size for box in boxes}
    links = [(topic, box.key) for box in boxes for topic, _ in box.reads]
    links += [(box.key, topic) for box in boxes for _, topic in box.writes]
    between = _BETWEEN_LIVE if live else _BETWEEN
    top = 0.0 if live else _TITLE
    layout = arrange(sizes, links, across=_ACROSS, between=between, sources_near=True).moved(_MARGIN, _MARGIN + top)
    for box in boxes:
        box.move_to(*layout.centres[box.key])
    places = _straightened(layout, sizes, boxes)
    left, width = 0.0, max(layout.size[0], len(title) * 11) + 2 * _MARGIN
    height = layout.size[1] + top + 2 * _MARGIN
    if live:  # without the space that keeps arrows straight
        left, width = _extent(boxes, places, sizes, layout)
    shift = f' x="{left:.0f}"' if left else ""
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="{left:.0f} 0 {width:.0f} {height:.0f}" role="img" aria-label="Topology of {shapes.escaped(title)}">',
        f"<title>Topology of {shapes.escaped(title)}</title>",
        *([] if live else [f"<style>{shapes.STYLE}</style>"]),
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path class="tip" d="M0,0.6 L8,4 L0,7.4 z"/></marker></defs>',
        f'<rect class="back"{shift} width="100%" height="100%"/>',
        *([] if live else [shapes.text("title", _MARGIN, _MARGIN + 14, title)]),
        *(box.background() for box in boxes),
        *itertools.chain.from_iterable(box.links_to_topics(places, layout.bends) for box in boxes),
        *itertools.chain.from_iterable(box.contents() for box in boxes),
    ]
    lines += [shapes.topic(name, *places[key], internal=name in graph.internal) for key, name in topics.items()]
    if live:
        lines += itertools.chain.from_iterable(box.figures(places, layout.bends) for box in boxes)
    return "\n".join([*lines, "</svg>\n"])


class _Box:
    """A sub-topology or a global store. Each store stands to the right of the first node that uses it."""

    def __init__(self, part: DrawnPart, spare: float = 0.0) -> None:
        """Lay out a part; the heading has `spare` px for figures to its right."""
        self.key = f"box {part.id}"
        self._id = part.id
        self._heading = part.heading
        nodes, heading = part.nodes, part.heading
        self._nodes = {node.name: node for node in nodes}
        self._owners: dict[str, str] = {}
        for node in nodes:
            for store in node.stores:
                if store in part.stores:
                    self._owners.setdefault(store, node.name)
        self._halves = {node.name: shapes.node_width(node) / 2 for node in nodes}
        self._links = [(parent, node.name) for node in nodes for parent in node.parents]
        extents = {name: self._extent(name) for name in self._nodes}
        self._layout = arrange(extents, self._links, across=26, between=30)
        self._at = self._layout.centres
        reads = [(f"topic {topic}", node.name) for node in nodes if node.kind == "source" for topic in node.topics]
        self.reads = sorted(reads, key=lambda link: self._at[link[1]])
        """(topic, source) pairs, from left to right."""
        writes = [(node.name, f"topic {topic}") for node in nodes if node.kind == "sink" for topic in node.topics]
        self.writes = sorted(writes, key=lambda link: self._at[link[0]])
        """(sink, topic) pairs, from left to right."""
        self.left = min(x - self._halves[name] for name, (x, _) in self._at.items()) - _PADDING
        rights = [x + self._halves[name] for name, (x, _) in self._at.items()]
        rights += [self._store_place(store)[0] + shapes.width("store", store) / 2 for store in self._owners]
        self.right = max(*rights, self.left + len(heading) * 6.6 + _PADDING + spare) + _PADDING
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
            if y > self._bottom:
                yield self._from_below(topic, (x, y), passes, (to_x, to_y))
                continue
            yield shapes.arrow([(x, y + TOPIC_HEIGHT / 2), *passes, (to_x, self._top), (to_x, to_y - NODE_HEIGHT / 2)])
        for name, topic in self.writes:
            (x, y), (to_x, to_y) = self._at[name], places[topic]
            passes = bends[self.key, topic]
            if to_y < y and not passes:  # to a topic above the box: around the box
                passes = [(self.right + _BESIDE, (self._top + self._bottom) / 2)]
            yield shapes.arrow([(x, y + NODE_HEIGHT / 2), (x, self._bottom), *passes, (to_x, to_y - TOPIC_HEIGHT / 2)])

    def _from_below(self, topic: str, start: Point, passes: list[Point], end: Point) -> str:
        """Return the arrow from a topic below the box: around the box, and into it from above."""
        (x, y), (to_x, to_y) = start, end
        right = (passes[-1][0] if passes else x) >= (self.left + self.right) / 2
        beside = self.right + _BESIDE if right else self.left - _BESIDE
        x += (1 if (passes[0][0] if passes else beside) >= x else -1) * shapes.width("topic", topic) / 4
        around = [(beside, self._bottom), (beside, self._top), (to_x, self._top), (to_x, to_y - NODE_HEIGHT / 2)]
        return shapes.arrow([(x, y - TOPIC_HEIGHT / 2), *passes, *around], upwards=True)

    def figures(self, places: Mapping[str, Point], bends: Mapping[Link, list[Point]]) -> Iterator[str]:
        """Yield empty texts for live figures: on each arrow from a topic, and in the heading."""
        for topic, name in self.reads:
            x, y = places[topic]
            to_x, to_y = next(iter(bends[topic, self.key]), (self._at[name][0], self._top))
            start = y + TOPIC_HEIGHT / 2
            yield shapes.figures((x + to_x) / 2, (start + to_y) / 2, topic=topic.removeprefix("topic "), node=name)
        yield shapes.figures(self.right - 14, self._top + 21, part=str(self._id))

    def contents(self) -> Iterator[str]:
        for start, end in self._links:
            (x, y), (to_x, to_y) = self._at[start], self._at[end]
            passes = self._layout.bends[start, end]
            yield shapes.arrow([(x, y + NODE_HEIGHT / 2), *passes, (to_x, to_y - NODE_HEIGHT / 2)])
        for name, node in self._nodes.items():
            yield from (self._use(name, store) for store in node.stores if store in self._owners)
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


def _extent(
    boxes: Sequence[_Box], places: Mapping[str, Point], sizes: Mapping[str, Point], layout: Layout
) -> tuple[float, float]:
    """Return the left edge and the width of what is drawn, with margins."""
    topics = {topic for box in boxes for topic, _ in box.ends()}
    edges = [places[topic][0] + side * sizes[topic][0] / 2 for topic in topics for side in (-1, 1)]
    edges += [edge for box in boxes for edge in (box.left - _BESIDE, box.right + _BESIDE)]
    edges += [x for points in layout.bends.values() for x, _ in points]
    left = min(edges, default=0.0) - _MARGIN / 2
    return left, max(edges, default=0.0) + _MARGIN / 2 - left


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
