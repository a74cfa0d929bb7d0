"""The check that internal topics have more than one replica, on clusters where they can."""

from __future__ import annotations

import logging
from collections.abc import Collection

from confluent_kafka.admin import ClusterMetadata

from millpond.errors import TopicAtRisk
from millpond.runtime.blockers import Blockers

__all__ = ("ReplicaCheck",)

log: logging.Logger = logging.getLogger(__name__)

_BLOCKER = "replicas"
#: With fewer brokers, nobody expects that the loss of one is survived.
_BROKERS = 3
_SHOWN = 3


class ReplicaCheck:
    """Warns while an internal topic has a single replica on a cluster of three and more brokers.

    The default of `replication.factor` is that of the brokers, as in Kafka Streams (KIP-733), and theirs is 1. A value
    of 1 is the user's own choice, so it is not warned of. Call the check with each list of the cluster's topics.

    Args:
        topics: the application's internal topics.
        replication_factor: the setting `replication.factor`.
        blockers: the worker's blockers, which have the warning.
    """

    def __init__(self, topics: Collection[str], replication_factor: int, blockers: Blockers) -> None:
        self._topics = () if replication_factor == 1 else tuple(topics)
        self._blockers = blockers
        self._told: tuple[str, ...] = ()

    def __call__(self, listing: ClusterMetadata) -> None:
        """Add the warning, or remove it if no topic is at risk."""
        brokers = len(listing.brokers)
        single = tuple(name for name in self._topics if _has_one_replica(listing, name))
        if brokers < _BROKERS or not single:
            self._blockers.remove(_BLOCKER)
            self._told = ()
            return
        error = TopicAtRisk(_sentence(single, brokers))
        self._blockers.add(_BLOCKER, error, 0.0, warning=True)
        if single != self._told:
            self._told = single
            log.warning("%s", error)


def _has_one_replica(listing: ClusterMetadata, topic: str) -> bool:
    found = listing.topics.get(topic)
    return found is not None and any(len(each.replicas) == 1 for each in found.partitions.values())


def _sentence(single: tuple[str, ...], brokers: int) -> str:
    names = ", ".join(f"'{each}'" for each in single[:_SHOWN]) + (", …" if len(single) > _SHOWN else "")
    topics, have, these = ("topics", "have", "these") if len(single) > 1 else ("topic", "has", "this one")
    return (
        f"{len(single)} internal {topics} ({names}) {have} one replica, on a cluster of {brokers} brokers: with the "
        "disk of one broker, records and state are lost. Set 'replication.factor' to 3 for topics that are created "
        f"from now on, and give {these} more replicas with kafka-reassign-partitions.sh. A 'replication.factor' of 1 "
        "accepts one replica."
    )
