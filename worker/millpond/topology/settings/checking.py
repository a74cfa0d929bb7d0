"""Check what an application is started with."""

from __future__ import annotations

from millpond.checks import kind_of
from millpond.errors import TopologyError
from millpond.topology.optimization import check_optimization
from millpond.topology.topology import Topology

from .unnamed import check_names

__all__ = ("check_built", "check_topology")


def check_topology(what: str, given: object) -> None:
    """Check that an object is a topology.

    Raises:
        TopologyError: the object is something else, such as a StreamsBuilder.
    """
    if not isinstance(given, Topology):
        hint = "; call its build()" if hasattr(given, "build") else ""
        raise TopologyError(f"{what} needs a Topology, not {kind_of(given)}{hint}.")


def check_built(topology: Topology, optimization: str, *, explicit: bool) -> None:
    """Check that a topology was built as the settings say.

    Args:
        topology: the topology.
        optimization: `topology.optimization`.
        explicit: `ensure.explicit.internal.resource.naming`.

    Raises:
        TopologyError: it has other rewrites, or generated names although these are refused.
    """
    check_optimization(topology.rewrites, optimization)
    check_names(topology.unnamed, explicit=explicit)
