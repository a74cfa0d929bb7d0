"""A topology as an SVG picture: sub-topologies as boxes, topics between them, stores beside the nodes that use them.

It is drawn without a network, a browser or another program, and follows the reader's light or dark theme.
"""

from __future__ import annotations

from .cost import MOST_PLACES, places
from .graph import DrawnGraph, DrawnNode, DrawnPart, digest, graph_of, graph_of_overview
from .picture import svg

__all__ = (
    "MOST_PLACES",
    "DrawnGraph",
    "DrawnNode",
    "DrawnPart",
    "digest",
    "graph_of",
    "graph_of_overview",
    "places",
    "svg",
)
