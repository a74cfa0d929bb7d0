"""Check what an application is started with."""

from __future__ import annotations

from typing import Any

from millpond.checks import kind_of
from millpond.errors import TopologyError
from millpond.topology.optimization import check_optimization
from millpond.topology.topology import Topology

from .serdes import check_serdes
from .topic_names import check_topic_names
from .unnamed import check_names

__all__ = ("check_configured", "check_startable", "check_topology")


def check_topology(what: str, given: object) -> None:
    """Check that an object is a topology.

    Raises:
        TopologyError: the object is something else, such as a StreamsBuilder.
    """
    if not isinstance(given, Topology):
        hint = "; call its build()" if hasattr(given, "build") else ""
        raise TopologyError(f"{what} needs a Topology, not {kind_of(given)}{hint}.")


def check_configured(topology: Topology, config: Any) -> None:
    """Check that a topology was built as the settings say, and that topology and settings have all serdes.

    Args:
        topology: the topology.
        config: the settings, a `Config`.

    Raises:
        TopologyError: it has other rewrites, generated names although these are refused, a step without a serde, or
            an internal topic whose name is too long.
    """
    check_optimization(topology.rewrites, config.topology_optimization)
    check_names(topology.unnamed, explicit=config.ensure_explicit_internal_resource_naming)
    check_serdes(topology, config.default_key_serde, config.default_value_serde)
    check_topic_names(topology, config.application_id)


def check_startable(topology: Topology, config: Any) -> None:
    """Check that a worker could start with a topology: it is as the settings say, and reads a topic.

    As in Kafka Streams, a topology of global tables alone reads one, and an empty topology ends the start.

    Args:
        topology: the topology.
        config: the settings, a `Config`.

    Raises:
        TopologyError: it reads nothing, or see `check_configured`.
    """
    if not topology.global_stores and not any(each.sources for each in topology.subtopologies()):
        raise TopologyError(
            "the topology reads no topic, so a worker would have nothing to do: read one by stream(), table() or "
            "global_table() of the builder whose topology this is, before build()."
        )
    check_configured(topology, config)
