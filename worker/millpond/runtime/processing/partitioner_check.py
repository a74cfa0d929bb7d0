"""Compares where the first records of topics are with where Kafka's partitioner puts their keys.

Records of equal keys meet in a join, or in shared state, only if the producers of both topics choose partitions alike.
If one topic follows murmur2 and the other one clearly does not, they do not meet, and nothing fails: a warning says so.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from confluent_kafka import Message, murmur2

from millpond.topology import Subtopology

__all__ = ("SAMPLE", "PartitionerCheck", "Sampler", "topics_that_meet")

log: logging.Logger = logging.getLogger(__name__)

#: Takes the messages of one poll; returns whether it has seen enough of its partition.
Sampler = Callable[[Sequence[Message]], bool]

SAMPLE = 100
"""Number of records with a key that are looked at in each partition."""

_FEWEST_KEYS = 20
"""Number of different keys below which nothing is said.

In two partitions, where chance is best, another partitioner puts 20 keys as murmur2 does once in a million cases.
"""

_FOLLOWS = 20
"""A topic follows murmur2 if at most one of so many keys is elsewhere: a few records may be written by hand."""

_CLEARLY_NOT = 3
"""A topic clearly does not follow it if at least one of so many keys is elsewhere: of another partitioner, half of the
keys are in two partitions, and more in more partitions. In between, nothing is said."""


def topics_that_meet(subtopology: Subtopology) -> set[frozenset[str]]:
    """Return sets of topics whose records of a key have to meet in one task: those of a join, or of one store."""
    reached = {source.name: frozenset(source.topics) for source in subtopology.sources}
    of_store: dict[str, frozenset[str]] = {}
    for node in subtopology.processors:
        topics = frozenset[str]().union(*(reached[parent] for parent in node.parents))
        reached[node.name] = topics
        for store in node.stores:
            of_store[store] = of_store.get(store, frozenset()) | topics
    return {group for group in (*subtopology.copartition_groups, *of_store.values()) if len(group) > 1}


class _Topic:
    """The keys of one topic that were looked at."""

    __slots__ = ("elsewhere", "keys", "rivals")

    def __init__(self) -> None:
        self.keys: set[int] = set()
        self.elsewhere = 0
        self.rivals: set[str] = set()

    @property
    def follows(self) -> bool:
        return len(self.keys) >= _FEWEST_KEYS and self.elsewhere * _FOLLOWS <= len(self.keys)

    @property
    def clearly_not(self) -> bool:
        return len(self.keys) >= _FEWEST_KEYS and self.elsewhere * _CLEARLY_NOT >= len(self.keys)


class PartitionerCheck:
    """What the tasks of one worker have seen of the partitioners of topics. Names of topics are those in Kafka."""

    def __init__(self) -> None:
        self._topics: dict[str, _Topic] = {}
        self._internal: set[str] = set()
        self._told: set[str] = set()

    def sampler(  # noqa: PLR0913 - an input of a task
        self,
        topic: str,
        others: set[str],
        partition: int,
        count: Callable[[], int],
        *,
        partition_by: Callable[[bytes], bytes] | None,
        internal: bool,
    ) -> Sampler:
        """Return a function that looks at the first records of a partition.

        Args:
            topic: the topic.
            others: the topics whose records of a key have to meet those of `topic`.
            partition: the partition.
            count: returns the number of partitions of the topic.
            partition_by: the part of a key's bytes that decides the partition; None for all of them.
            internal: whether the application itself writes the topic. No warning is about such a topic.
        """
        seen = self._topics.setdefault(topic, _Topic())
        seen.rivals |= others
        if internal:
            self._internal.add(topic)
        left = SAMPLE

        def sample(messages: Sequence[Message]) -> bool:
            nonlocal left
            partitions = count()
            if partitions < 2 or topic in self._told:
                return True
            for message in messages:
                raw_key = message.key()
                if not isinstance(raw_key, bytes):
                    continue
                left -= 1
                known = hash(raw_key)
                if known not in seen.keys:
                    seen.keys.add(known)
                    part = raw_key if partition_by is None else partition_by(raw_key)
                    seen.elsewhere += murmur2(part, partitions) != partition
                if not left:
                    break
            self._compare(topic)
            return not left

        return sample

    def _compare(self, topic: str) -> None:
        """Warn about the topic, or one that meets it, if one of both follows murmur2 and the other clearly not."""
        seen = self._topics[topic]
        for name in sorted(seen.rivals & self._topics.keys()):
            other = self._topics[name]
            if seen.clearly_not and other.follows:
                self._tell(topic, name)
            elif seen.follows and other.clearly_not:
                self._tell(name, topic)

    def _tell(self, topic: str, other: str) -> None:
        if topic in self._told or topic in self._internal:
            return
        self._told.add(topic)
        seen = self._topics[topic]
        log.warning(
            "topic '%s': %d of the first %d keys are not in the partition that Kafka's partitioner (murmur2) gives, "
            "but those of '%s' are. The application joins or merges both by key, and records of one key do not meet. "
            "The producer has another partitioner, such as librdkafka's default, or partitions were added to the "
            "topic: set partitioner=murmur2_random in the producer; .repartition() puts the records that are there "
            "into the right partitions.",
            topic, seen.elsewhere, len(seen.keys), other,
        )  # fmt: skip
