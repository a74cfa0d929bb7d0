"""The topology of a case, written with millpond: each step is one call of the DSL, as in java/Topologies.java.

`OPERATORS` has every operator that is there. README.md says how to add one.
"""

from __future__ import annotations

from typing import Any

import millpond as mp
import tests.differential.ours.streams
import tests.differential.ours.tables  # noqa: F401 - both add to OPERATORS
from tests.differential.ours.operators import OPERATORS, Building

__all__ = ("OPERATORS", "build")


def build(case: dict[str, Any]) -> tuple[mp.Topology, list[list[str]], list[str]]:
    """Return the topology of a case, the list that its `peek` and `foreach` fill, and rules.UNMERGED topics."""
    building = Building()
    for step in case["steps"]:
        made = OPERATORS[step["op"]](building, step)
        if made is not None:
            building.handles[step["id"]] = made
    optimization = case.get("config", {}).get("topology.optimization", "none")
    topology = building.builder.build(optimization=optimization)
    return topology, building.effects, building.builder._graph.unmerged
