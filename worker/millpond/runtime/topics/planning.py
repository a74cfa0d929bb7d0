"""The plan of an application on a cluster, for the start of a worker and for checks before it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from millpond.runtime.config.model import Config
from millpond.runtime.missing_rights import Operation
from millpond.topology import Topology

from .plan import Plan, outside_topics, plan_with

__all__ = ("plan_on",)


class _Cluster(Protocol):
    """What this module asks of `KafkaAdmin`."""

    def check_seen(self, topics: Mapping[str, Operation]) -> None: ...


def plan_on(cluster: _Cluster, existing: Mapping[str, int], topology: Topology, config: Config) -> Plan:
    """Derive the plan of an application on a cluster, and check that topics which are missing are not only hidden.

    Args:
        cluster: the cluster.
        existing: the partition count of each of its topics that the user may see.
        topology: the application's topology.
        config: its settings.

    Raises:
        TopicError: a topic is missing, has the wrong shape, or may not be seen.
        BrokerError: no broker answered in time.
    """
    outside = outside_topics(topology, config)
    cluster.check_seen({each: needed for each, needed in outside.items() if each not in existing})
    plan = plan_with(topology, existing, config)
    cluster.check_seen({each.name: Operation.READ for each in plan.internal if each.name not in existing})
    return plan
