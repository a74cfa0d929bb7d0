"""Check the length of internal topics' names: that of a step or a store, with its prefix and suffix."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from millpond.errors import TopologyError
from millpond.topology.naming import MAX_LENGTH, changelog_topic, decorate

if TYPE_CHECKING:
    from millpond.topology.topology import Topology

__all__ = ("check_topic_names",)

_SHORTEST_ID = "a"


def check_topic_names(topology: Topology, application_id: str = "") -> None:
    """Check that Kafka accepts the names of changelogs and repartition topics.

    Args:
        topology: the topology.
        application_id: the prefix of the names; "" if it is not known: then the names have to fit with the shortest.

    Raises:
        TopologyError: a name is too long.
    """
    for logical, what in _internal(topology):
        topic = decorate(application_id or _SHORTEST_ID, logical)
        if len(topic) <= MAX_LENGTH:
            continue
        more = len(topic) - MAX_LENGTH
        prefix = f"'{application_id}-" if application_id else "'<application.id>-"
        shorten = f"shorten it by {more}, or 'application.id'" if application_id else f"shorten it by at least {more}"
        raise TopologyError(
            f"The topic {prefix}{logical[:40]}…' of {what} has a name of {len(topic)} characters, and Kafka allows "
            f"{MAX_LENGTH}: {shorten}."
        )


def _internal(topology: Topology) -> Iterator[tuple[str, str]]:
    for name, builder in topology.stores.items():
        if builder.logging and builder.source_topic is None:
            yield changelog_topic(name), f"the store '{name[:40]}…'"
    for name in topology.repartition_topics:
        yield name, "a step that repartitions, whose name it has,"
