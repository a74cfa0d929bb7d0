"""Layered layout of a directed graph, from top to bottom, by grandalf."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from grandalf.graphs import Edge, Graph, Vertex
from grandalf.layouts import SugiyamaLayout, VertexViewer

__all__ = ("Layout", "Link", "Point", "arrange")

Point: TypeAlias = tuple[float, float]
"""x to the right and y downwards, in the units of the sizes that were given."""

Link: TypeAlias = tuple[str, str]
"""The names of the items where an arrow starts and ends."""

_PASSING = 10, 1
"""Width and height of a link where it passes a layer."""

_ROUNDS = 4
"""How often the order in the layers is improved, down and up again."""


@dataclass(frozen=True)
class Layout:
    """The positions of a graph's items, from its upper left corner."""

    centres: Mapping[str, Point]
    bends: Mapping[Link, list[Point]]
    """Where a link, in either direction, passes the layers between its items; empty for neighbouring layers."""
    size: Point

    def moved(self, right: float, down: float) -> Layout:
        """Return the layout, moved to the right and down."""
        centres = {name: (x + right, y + down) for name, (x, y) in self.centres.items()}
        bends = {link: [(x + right, y + down) for x, y in points] for link, points in self.bends.items()}
        return Layout(centres, bends, self.size)


class _Edge(Edge):  # type: ignore[misc]  # grandalf has no types
    """A link with a fixed hash: grandalf keeps links in sets, so equal graphs get equal layouts only then."""

    def __init__(self, start: Vertex, end: Vertex, number: int) -> None:
        self._number = number
        super().__init__(start, end)
        self.view = self
        self.points: list[Point] = []
        """The points of the link, with both ends."""

    def __hash__(self) -> int:
        return self._number

    def setpath(self, points: list[Point]) -> None:
        self.points = points


def arrange(
    sizes: Mapping[str, Point], links: Iterable[Link], *, across: float, between: float, sources_near: bool = False
) -> Layout:
    """Return the layout of a graph: unconnected parts are side by side, and equal graphs get equal layouts.

    Args:
        sizes: width and height of each item; links permitting, items are in this order from left to right.
        links: between items; cycles are allowed, and a link that closes one runs upwards.
        across: minimum distance of neighbours in a layer.
        between: distance between two layers.
        sources_near: whether an item without incoming links is in the layer above its target, not in the first one.
    """
    vertices = {name: Vertex(name) for name in sizes}
    for name, vertex in vertices.items():
        vertex.view = VertexViewer(*sizes[name])
    given = {vertex: number for number, vertex in enumerate(vertices.values())}
    edges: dict[Link, _Edge] = {}
    for start, end in links:
        if (end, start) not in edges:  # grandalf has one route for two links in opposite directions
            edges[start, end] = _Edge(vertices[start], vertices[end], len(edges))
    width = height = 0.0
    for part in Graph(list(vertices.values()), list(edges.values())).C:
        layout = SugiyamaLayout(part)
        layout.xspace, layout.yspace = across, between
        layout.dw, layout.dh = _PASSING
        layout.init_all(optimize=sources_near)
        for layer in layout.layers:
            layer.sort(key=lambda each: given.get(each, len(given)))
            layer.setup(layout)
        layout.draw(_ROUNDS)
        views = [each.view for each in layout.grx]
        shift = width - min(view.xy[0] - view.w / 2 for view in views)
        for view in views:
            view.xy = view.xy[0] + shift, view.xy[1]
        layout.draw_edges()
        width = across + max(view.xy[0] + view.w / 2 for view in views)
        height = max(height, *(view.xy[1] + view.h / 2 for view in views))
    bends = {link: edge.points[1:-1] for link, edge in edges.items()}
    bends |= {(end, start): points[::-1] for (start, end), points in bends.items()}
    centres = {name: vertex.view.xy for name, vertex in vertices.items()}
    return Layout(centres, bends, (max(0.0, width - across), height))
