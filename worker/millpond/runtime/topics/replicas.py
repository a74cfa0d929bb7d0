"""The check that internal topics have more than one replica, on clusters where they can."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator

from confluent_kafka.admin import ClusterMetadata

from millpond.errors import TopicAtRisk
from millpond.runtime.blockers import Blockers

__all__ = ("ReplicaCheck", "risks")

log: logging.Logger = logging.getLogger(__name__)

_BLOCKER = "replicas"
#: With fewer brokers, nobody expects that the loss of one is survived.
_BROKERS = 3
_SHOWN = 3
#: The value of `replication.factor` for the brokers' default.
_OF_BROKERS = -1


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
        self._topics = tuple(topics)
        self._replication_factor = replication_factor
        self._blockers = blockers
        self._told: tuple[str, ...] = ()

    def __call__(self, listing: ClusterMetadata) -> None:
        """Add the warning, or remove it if no topic is at risk."""
        single = _with_one_replica(listing, self._topics, self._replication_factor)
        if not single:
            self._blockers.remove(_BLOCKER)
            self._told = ()
            return
        error = TopicAtRisk(_sentence(single, len(listing.brokers)))
        self._blockers.add(_BLOCKER, error, 0.0, warning=True)
        if single != self._told:
            self._told = single
            log.warning("%s", error)


def _with_one_replica(listing: ClusterMetadata, topics: Collection[str], replication_factor: int) -> tuple[str, ...]:
    """Return the internal topics with one replica where brokers could hold more, unless the user has chosen that.

    Args:
        listing: the cluster's topics.
        topics: the application's internal topics.
        replication_factor: the setting `replication.factor`.
    """
    if replication_factor == 1 or len(listing.brokers) < _BROKERS:
        return ()
    return tuple(name for name in topics if _has_one_replica(listing, name))


def risks(
    listing: ClusterMetadata, topics: Collection[str], replication_factor: int, default: Callable[[], int | None]
) -> Iterator[str]:
    """Yield a sentence about internal topics with one replica, and one about those that would be created with one.

    Args:
        listing: the cluster's topics.
        topics: the application's internal topics.
        replication_factor: the setting `replication.factor`.
        default: returns the brokers' default, None if it is unknown. It is called only if the answer depends on it.
    """
    brokers = len(listing.brokers)
    if single := _with_one_replica(listing, topics, replication_factor):
        yield _sentence(single, brokers)
    new = tuple(each for each in topics if each not in listing.topics)
    if not new or replication_factor != _OF_BROKERS or brokers < _BROKERS:
        return
    replicas = default()
    which = f"{len(new)} internal topic{'s' if len(new) > 1 else ''} ({_names(new)})"
    if replicas == 1:
        yield (
            f"{which} would be created with one replica, the default of these {brokers} brokers: with the disk of one "
            "broker, records and state would be lost. Set 'replication.factor' to 3; or to 1, to accept one replica."
        )
    elif replicas is None:
        yield (
            f"{which} would be created with as many replicas as the default of the brokers, which they do not tell "
            "this user: set 'replication.factor' to 3."
        )


def _has_one_replica(listing: ClusterMetadata, topic: str) -> bool:
    found = listing.topics.get(topic)
    return found is not None and any(len(each.replicas) == 1 for each in found.partitions.values())


def _names(topics: tuple[str, ...]) -> str:
    return ", ".join(f"'{each}'" for each in topics[:_SHOWN]) + (", …" if len(topics) > _SHOWN else "")


def _sentence(single: tuple[str, ...], brokers: int) -> str:
    topics, have, these = ("topics", "have", "these") if len(single) > 1 else ("topic", "has", "this one")
    return (
        f"{len(single)} internal {topics} ({_names(single)}) {have} one replica, on a cluster of {brokers} brokers: "
        "with the disk of one broker, records and state are lost. Set 'replication.factor' to 3 for topics that are "
        f"created from now on, and give {these} more replicas with kafka-reassign-partitions.sh. "
        "A 'replication.factor' of 1 accepts one replica."
    )
