"""The topology of a case, written with millpond: each step is one call of the DSL, as in java/Topologies.java.

`OPERATORS` has every operator that is there. README.md says how to add one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import millpond as mp
import tests.differential.ours.streams
import tests.differential.ours.tables  # noqa: F401 - both add to OPERATORS
from tests.differential.ours.operators import OPERATORS, Building

__all__ = ("OPERATORS", "Built", "build")


@dataclass(frozen=True)
class Built:
    """The topology of a case, and what an answer needs of it."""

    topology: mp.Topology
    effects: list[list[str]]
    """What `peek` and `foreach` were called with; running the topology fills it."""
    unmerged: list[str]
    """Topics of rules.UNMERGED."""
    nodes: dict[str, list[str]]
    """The names of the nodes that each step made."""


def build(case: dict[str, Any]) -> Built:
    """Return the topology of a case."""
    building = Building()
    graph = building.builder._graph
    nodes: dict[str, list[str]] = {}
    before = 0
    for step in case["steps"]:
        made = OPERATORS[step["op"]](building, step)
        if made is not None:
            building.handles[step["id"]] = made
        names = [node.name for node in graph.nodes]
        nodes[step["id"]] = names[before:]
        before = len(names)
    optimization = case.get("config", {}).get("topology.optimization", "none")
    topology = building.builder.build(optimization=optimization)
    for add in building.added:
        add(topology)
    return Built(topology, building.effects, graph.unmerged, nodes)
