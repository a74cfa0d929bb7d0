"""Where a snapshot ends: one offset for each changelog partition, fixed once for all stores before anything is read."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass

from confluent_kafka import KafkaException, TopicPartition

from millpond.errors import BrokerError, SnapshotError
from millpond.runtime.clients import make_asker
from millpond.runtime.cluster import Cluster
from millpond.runtime.config import Config
from millpond.runtime.ownership import Partition
from millpond.runtime.topic_facts import TopicFacts

from .stores import LoggedStore

__all__ = ("Boundaries", "Range", "check_topics_unchanged", "fix_boundaries", "wall_ms")

_ATTEMPTS = 10
_PAUSE_S = 0.5
_TIMEOUT_S = 30.0


def wall_ms() -> int:
    """The wall clock in epoch milliseconds."""
    return int(time.time() * 1000)


@dataclass(frozen=True)
class Range:
    """What is read of one changelog partition."""

    first: int
    """The first offset that the topic keeps."""
    end: int
    """The offset after the last record that the snapshot has; no transaction is open before it."""


@dataclass(frozen=True)
class Boundaries:
    """What is read of an application's changelogs."""

    as_of_ms: int
    """When the brokers were asked for the ends, in epoch milliseconds."""
    ranges: Mapping[Partition, Range]
    facts: Mapping[str, TopicFacts]
    """Of each topic."""


def fix_boundaries(
    cluster: Cluster, config: Config, stores: Iterable[LoggedStore], now_ms: Callable[[], int] = wall_ms
) -> Boundaries:
    """Ask the brokers where the changelogs begin and end.

    The end of a changelog is its last stable offset. Where an input topic doubles as changelog, the end is what the
    application has committed there: what follows is not processed yet, and is no state.

    Args:
        cluster: the brokers.
        config: of the application.
        stores: its stores.
        now_ms: the wall clock.

    Raises:
        BrokerError: the brokers do not answer.
    """
    stores = tuple(stores)
    partitions = {each: [Partition(each.topic, number) for number in range(each.partitions)] for each in stores}
    wanted = {partition for each in partitions.values() for partition in each}
    facts = cluster.facts({each.topic for each in stores})
    # Committed offsets come first: a later answer could be above an end that was asked for before.
    committed = _committed(config, {each for store, own in partitions.items() if store.is_input for each in own})
    firsts = {each: first for each, (first, _) in cluster.ranges(wanted).items()}
    as_of_ms = now_ms()
    ends = _stable_ends(cluster, wanted)
    ranges = {}
    for each in wanted:
        end = min(ends[each], committed[each]) if each in committed else ends[each]
        # Nothing is committed, or nothing of what is committed is kept: then there is nothing to read.
        ranges[each] = Range(firsts[each], max(firsts[each], end))
    return Boundaries(as_of_ms, ranges, facts)


def check_topics_unchanged(cluster: Cluster, boundaries: Boundaries, now_ms: int) -> None:
    """Check after reading that the changelogs are those that the boundaries are of.

    Raises:
        SnapshotError: a topic was deleted and made again, or reading took so long that deletions may be missing.
        BrokerError: a topic is gone, or the brokers do not answer.
    """
    for topic, facts in cluster.facts(boundaries.facts.keys()).items():
        if facts.id != boundaries.facts[topic].id:
            raise SnapshotError(
                f"changelog '{topic}' was deleted and made again while it was read, so the snapshot is dropped: make "
                "another one."
            )
        kept_ms = facts.delete_retention_ms
        if kept_ms is not None and now_ms - boundaries.as_of_ms > kept_ms:
            raise SnapshotError(
                f"reading took {(now_ms - boundaries.as_of_ms) / 1000:.0f} s, and changelog '{topic}' keeps deletions for "
                f"{kept_ms / 1000:.0f} s only, so the snapshot is dropped: raise 'delete.retention.ms' of the topic, or give "
                "Spark more cores."
            )


def _stable_ends(cluster: Cluster, wanted: Collection[Partition]) -> dict[Partition, int]:
    """Return the last stable offset of each partition, of one request."""
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            return {each: int(found.result().offset) for each, found in cluster.ask_ends(wanted).items()}
        except KafkaException as error:
            if attempt == _ATTEMPTS or not error.args[0].retriable():
                raise BrokerError(
                    f"cannot read where changelogs end: {error.args[0].str()}. Check that the brokers are up."
                ) from error
            time.sleep(_PAUSE_S)
    raise AssertionError


def _committed(config: Config, wanted: Collection[Partition]) -> dict[Partition, int]:
    """Return the committed offset of each input partition; -1 where there is none."""
    if not wanted:
        return {}
    with closing(make_asker(config, lambda _error: None)) as consumer:
        try:
            found = consumer.committed([TopicPartition(*each) for each in wanted], timeout=_TIMEOUT_S)
        except KafkaException as error:
            raise BrokerError(
                f"cannot read the committed offsets of '{config.application_id}': {error.args[0].str()}. Check that the "
                "brokers are up."
            ) from error
    return {Partition(each.topic, each.partition): max(each.offset, -1) for each in found}
