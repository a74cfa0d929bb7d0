"""Drawing a directed graph in layers, from above to below (after Sugiyama): which layer, which order, which place.

Small graphs, so the simple forms of each step: longest paths for layers, barycentres for order, and for places the
least squares that keep the order and the distances. Edges over several layers get a place in each, so they run around
what lies between.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

__all__ = ("Edge", "Item", "Layout", "arrange")

N = TypeVar("N", bound=Hashable)

_SWEEPS = 12
_BEGINNINGS = 8
_BEND_WIDTH = 10.0


@dataclass(frozen=True)
class Item:
    """Something with a size, in the same units as the result."""

    width: float
    height: float
    last: bool = False
    """Whether it belongs into the last layer, wherever its edges come from."""
    near: bool = False
    """Whether, having no edges that enter, it stands right above what it leads to instead of in the first layer."""


@dataclass(frozen=True)
class Edge(Generic[N]):
    """From one item to another; `out` and `into` are where it leaves and enters, relative to their centres."""

    start: N
    end: N
    out: float = 0.0
    into: float = 0.0


@dataclass
class Layout(Generic[N]):
    """Places: of items their centre and upper edge, of edges the points they bend at."""

    places: dict[N, tuple[float, float]] = field(default_factory=dict)
    bends: dict[int, list[tuple[float, float, float]]] = field(default_factory=dict)
    """Per edge, by its index: x, and the upper and lower edge of the layer it passes, from its start to its end."""
    width: float = 0.0
    height: float = 0.0


_Slot = tuple[str, Hashable]
"""An item, or the place of an edge in a layer."""


def arrange(
    items: Mapping[N, Item],
    edges: Sequence[Edge[N]],
    *,
    across: float,
    between: float,
    ranks: Mapping[N, int] | None = None,
) -> Layout[N]:
    """Places for items and edges.

    Args:
        items: sizes.
        edges: cycles are allowed; an edge that closes one runs upwards.
        across: least distance between neighbours in a layer.
        between: distance between layers.
        ranks: layers, where they are known already.
    """
    rank = dict(ranks) if ranks is not None else _ranks(items, edges)
    layers, links, widths = _slots(items, edges, rank)
    neighbours = _Neighbours(links)
    _order(layers, neighbours)
    x = _places(layers, neighbours, widths, across)
    return _result(items, edges, rank, layers, x, between)


def _ranks(items: Mapping[N, Item], edges: Sequence[Edge[N]]) -> dict[N, int]:
    forward = [edge for edge in edges if edge not in _closing(items, edges)]
    parents: dict[N, list[N]] = {item: [] for item in items}
    for edge in forward:
        parents[edge.end].append(edge.start)
    rank: dict[N, int] = {}

    def of(item: N) -> int:
        if item not in rank:
            rank[item] = max((of(parent) + 1 for parent in parents[item]), default=0)
        return rank[item]

    last = max(map(of, items), default=0)
    for item, size in items.items():
        if size.last:
            rank[item] = max(last, rank[item])
        if size.near and not parents[item]:
            rank[item] = min((rank[edge.end] for edge in forward if edge.start == item), default=1) - 1
    return rank


def _closing(items: Mapping[N, Item], edges: Sequence[Edge[N]]) -> set[Edge[N]]:
    """Edges that close a cycle, found depth-first."""
    children: dict[N, list[Edge[N]]] = {item: [] for item in items}
    for edge in edges:
        children[edge.start].append(edge)
    closing: set[Edge[N]] = set()
    state: dict[N, int] = {}

    def visit(item: N) -> None:
        state[item] = 1
        for edge in children[item]:
            if state.get(edge.end) == 1:
                closing.add(edge)
            elif edge.end not in state:
                visit(edge.end)
        state[item] = 2

    entered = {edge.end for edge in edges}
    for item in sorted(items, key=lambda each: each in entered):
        if item not in state:
            visit(item)
    return closing


@dataclass(frozen=True)
class _Link:
    upper: _Slot
    lower: _Slot
    out: float
    into: float


def _slots(
    items: Mapping[N, Item], edges: Sequence[Edge[N]], rank: Mapping[N, int]
) -> tuple[list[list[_Slot]], list[_Link], dict[_Slot, float]]:
    layers: list[list[_Slot]] = [[] for _ in range(max(rank.values(), default=0) + 1)]
    widths: dict[_Slot, float] = {}
    for item, size in items.items():
        slot = ("item", item)
        layers[rank[item]].append(slot)
        widths[slot] = size.width
    links: list[_Link] = []
    for index, edge in enumerate(edges):
        upper, lower, out, into = edge.start, edge.end, edge.out, edge.into
        if rank[upper] > rank[lower]:
            upper, lower, out, into = lower, upper, into, out
        previous: _Slot = ("item", upper)
        leaving = out
        for layer in range(rank[upper] + 1, rank[lower]):
            bend: _Slot = ("bend", (index, layer))
            layers[layer].append(bend)
            widths[bend] = _BEND_WIDTH
            links.append(_Link(previous, bend, leaving, 0.0))
            previous, leaving = bend, 0.0
        if rank[upper] != rank[lower]:
            links.append(_Link(previous, ("item", lower), leaving, into))
    return layers, links, widths


class _Neighbours:
    """Who is above and below each slot, and where their edges leave."""

    def __init__(self, links: Sequence[_Link]) -> None:
        self.above: dict[_Slot, list[tuple[_Slot, float, float]]] = {}
        self.below: dict[_Slot, list[tuple[_Slot, float, float]]] = {}
        for link in links:
            self.above.setdefault(link.lower, []).append((link.upper, link.out, link.into))
            self.below.setdefault(link.upper, []).append((link.lower, link.into, link.out))


def _order(layers: list[list[_Slot]], neighbours: _Neighbours) -> None:
    """Find an order with few crossings, from several beginnings; each is always the same."""
    best = [list(layer) for layer in layers]
    fewest = _crossings(best, neighbours)
    for seed in range(_BEGINNINGS):
        tried = [list(layer) for layer in layers]
        if seed:
            chance = random.Random(seed)
            for layer in tried:
                chance.shuffle(layer)
        crossings = _sweep(tried, neighbours)
        if crossings < fewest:
            best, fewest = tried, crossings
    layers[:] = best


def _sweep(layers: list[list[_Slot]], neighbours: _Neighbours) -> int:
    """Sort each layer by the mean place of its neighbours, down and up in turn; keep the best order, tell its crossings."""
    best = [list(layer) for layer in layers]
    fewest = _crossings(layers, neighbours)
    for sweep in range(_SWEEPS):
        down = sweep % 2 == 0
        towards = neighbours.above if down else neighbours.below
        for layer in layers if down else reversed(layers):
            place = {slot: index for each in layers for index, slot in enumerate(each)}
            means = {slot: _mean(place, slot, towards) for slot in layer}
            layer.sort(key=means.__getitem__)
        crossings = _crossings(layers, neighbours)
        if crossings < fewest:
            best, fewest = [list(layer) for layer in layers], crossings
    layers[:] = best
    return fewest


def _mean(place: Mapping[_Slot, int], slot: _Slot, towards: Mapping[_Slot, list[tuple[_Slot, float, float]]]) -> float:
    # Where an edge leaves its neighbour breaks ties between edges to the same one.
    found = [place[other] + out / 10_000 for other, out, _ in towards.get(slot, ())]
    return sum(found) / len(found) if found else float(place[slot])


def _crossings(layers: list[list[_Slot]], neighbours: _Neighbours) -> int:
    place = {slot: index for layer in layers for index, slot in enumerate(layer)}
    count = 0
    for layer in layers:
        ends = [
            (place[slot] + leaving / 10_000, place[lower] + entering / 10_000)
            for slot in layer
            for lower, entering, leaving in neighbours.below.get(slot, ())
        ]
        count += sum(
            (one[0] - other[0]) * (one[1] - other[1]) < 0 for index, one in enumerate(ends) for other in ends[:index]
        )
    return count


def _places(
    layers: list[list[_Slot]], neighbours: _Neighbours, widths: Mapping[_Slot, float], across: float
) -> dict[_Slot, float]:
    x: dict[_Slot, float] = {}
    for layer in layers:
        at = 0.0
        for slot in layer:
            x[slot] = at + widths[slot] / 2
            at += widths[slot] + across
        for slot in layer:
            x[slot] -= (at - across) / 2
    for sweep in range(_SWEEPS):
        down = sweep % 2 == 0
        towards = neighbours.above if down else neighbours.below
        for layer in layers if down else reversed(layers):
            wished = []
            for slot in layer:
                found = [x[other] + there - here for other, there, here in towards.get(slot, ())]
                wished.append(sum(found) / len(found) if found else x[slot])
            gaps = [(widths[one] + widths[other]) / 2 + across for one, other in itertools.pairwise(layer)]
            x.update(zip(layer, _spread(wished, gaps), strict=True))
    return x


def _spread(wished: Sequence[float], gaps: Sequence[float]) -> list[float]:
    """The places nearest to the wished ones that keep the order and the gaps (isotonic regression)."""
    offsets = [0.0]
    for gap in gaps:
        offsets.append(offsets[-1] + gap)
    blocks: list[tuple[float, int]] = []
    for wish, offset in zip(wished, offsets, strict=False):
        total, count = wish - offset, 1
        while blocks and blocks[-1][0] / blocks[-1][1] > total / count:
            before, size = blocks.pop()
            total, count = total + before, count + size
        blocks.append((total, count))
    free = [total / count for total, count in blocks for _ in range(count)]
    return [place + offset for place, offset in zip(free, offsets, strict=False)]


def _result(
    items: Mapping[N, Item],
    edges: Sequence[Edge[N]],
    rank: Mapping[N, int],
    layers: list[list[_Slot]],
    x: Mapping[_Slot, float],
    between: float,
) -> Layout[N]:
    layout: Layout[N] = Layout()
    tops: list[float] = []
    bottoms: list[float] = []
    at = 0.0
    for number in range(len(layers)):
        tops.append(at)
        at += max((items[item].height for item in items if rank[item] == number), default=0.0)
        bottoms.append(at)
        at += between
    left = min((x["item", item] - size.width / 2 for item, size in items.items()), default=0.0)
    left = min([left, *(place - _BEND_WIDTH / 2 for slot, place in x.items() if slot[0] == "bend")])
    right = max((x["item", item] + size.width / 2 for item, size in items.items()), default=0.0)
    right = max([right, *(place + _BEND_WIDTH / 2 for slot, place in x.items() if slot[0] == "bend")])
    for item in items:
        layout.places[item] = (x["item", item] - left, tops[rank[item]])
    for index, edge in enumerate(edges):
        low, high = sorted((rank[edge.start], rank[edge.end]))
        bends = [(x["bend", (index, layer)] - left, tops[layer], bottoms[layer]) for layer in range(low + 1, high)]
        layout.bends[index] = bends if rank[edge.start] < rank[edge.end] else bends[::-1]
    layout.width = right - left
    layout.height = max(0.0, at - between)
    return layout
