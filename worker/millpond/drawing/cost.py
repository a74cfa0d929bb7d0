"""How much work the layout of a graph is: whoever draws what others report has to know before it begins."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from .graph import DrawnGraph
from .layout import Link

__all__ = ("MOST_PLACES", "places")

MOST_PLACES = 1_500
"""A layout with more places takes more than a quarter of a second of computing, and nobody can read it."""


def places(graph: DrawnGraph) -> int:
    """Return how many places a layout has to find: one for each item, and one for each layer that a link passes."""
    found, links = 0, []
    for part in graph.parts:
        inner = [(parent, node.name) for node in part.nodes for parent in node.parents]
        found += _places([node.name for node in part.nodes], inner)
        for node in part.nodes:
            pairs = [(f"topic {topic}", f"box {part.id}") for topic in node.topics]
            links += pairs if node.kind == "source" else [(box, topic) for topic, box in pairs]
    return found + _places(sorted({end for link in links for end in link}), links)


def _places(items: list[str], links: Iterable[Link]) -> int:
    layers, once = dict.fromkeys(items, 0), list(dict.fromkeys(links))
    incoming, outgoing = dict.fromkeys(items, 0), defaultdict(list)
    for start, end in once:
        incoming[end] += 1
        outgoing[start].append(end)
    waiting, left = [item for item in items if not incoming[item]], dict.fromkeys(items)
    while left:
        item = waiting.pop() if waiting else next(iter(left))  # the first item of a cycle begins it
        if item not in left:
            continue
        del left[item]
        for end in outgoing[item]:
            incoming[end] -= 1
            if end in left:
                layers[end] = max(layers[end], layers[item] + 1)
                if not incoming[end]:
                    waiting.append(end)
    return len(items) + sum(abs(layers[end] - layers[start]) for start, end in once)
