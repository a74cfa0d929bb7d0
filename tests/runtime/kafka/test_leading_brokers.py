"""Which brokers are asked whether they answer: those that lead what the application needs."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from millpond.runtime.kafka.leading_brokers import asked_partitions, coordinating_partition, leaders_in
from millpond.runtime.offsets.metadata import Partition


def _listing(**topics: dict[int, int] | None) -> Any:
    return SimpleNamespace(
        topics={
            name: SimpleNamespace(
                error=None if leaders is not None else "not authorized",
                partitions={number: SimpleNamespace(leader=leader) for number, leader in (leaders or {}).items()},
            )
            for name, leaders in topics.items()
        }
    )


def test_partitions_without_leader_and_hidden_topics_are_not_asked() -> None:
    """A partition without a leader would look like a broken network."""
    listing = _listing(orders={1: 2, 0: 1, 2: -1}, other={0: 3}, hidden=None)
    assert leaders_in(listing, {"orders": None, "hidden": None, "absent": None}) == {"orders": {0: 1, 1: 2}}


def test_only_the_own_coordinator_of_an_internal_topic_counts() -> None:
    """The other partitions are those of other groups."""
    listing = _listing(orders={0: 1}, offsets={0: 1, 1: 2, 2: 3})
    assert leaders_in(listing, {"orders": None, "offsets": (2,)}) == {"orders": {0: 1}, "offsets": {2: 3}}


def test_each_broker_is_asked_once_about_as_few_topics_as_possible() -> None:
    """The leaders of these topics are looked up often."""
    leaders = {"a": {0: 1, 1: 2, 2: 1}, "b": {0: 2, 1: 1}, "c": {0: 3}}
    assert asked_partitions(leaders) == {1: Partition("a", 0), 2: Partition("a", 1), 3: Partition("c", 0)}


@pytest.mark.parametrize(
    ("name", "partition"),
    [
        ("", 0),
        ("orders", 31),  # "orders".hashCode() is -1008770331: Kafka drops the sign by negation
        ("polygenelubricants", 0),  # the least integer, whose negation is itself
        ("é𝄞", 7),  # Java counts UTF-16 units
    ],
)
def test_coordinating_partition_has_the_hash_of_java(name: str, partition: int) -> None:
    """Of 50 partitions, Kafka's default."""
    assert coordinating_partition(name, 50) == partition
