"""The nodes of a topology and their stores and topics: plain data that the runtime compiles."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Protocol, TypeAlias

from millpond.serdes import Serde

from .context import Body, RecordContext
from .timestamps import TimestampExtractor

__all__ = (
    "GlobalStore",
    "Node",
    "ProcessorNode",
    "RepartitionTopic",
    "SinkNode",
    "SourceNode",
    "StoreBuilder",
    "StreamPartitioner",
    "Subtopology",
    "TopicNameExtractor",
)

TopicNameExtractor: TypeAlias = Callable[[Any, Any, RecordContext], str]
"""f(key, value, context) -> the name of the topic to write to (KIP-303)."""

StreamPartitioner: TypeAlias = Callable[[str, Any, Any, int], Collection[int] | None]
"""f(topic, key, value, number of partitions) -> the partitions to write to (KIP-837).

Several are a multicast, none drops the record, and None is the default partitioner, murmur2 of the key's bytes.
"""


class StoreBuilder(Protocol):
    """The properties of a state store that a topology needs; `millpond.state` has the builders."""

    @property
    def name(self) -> str:
        """The store's name, which is unique in a topology."""

    @property
    def logging(self) -> bool:
        """Whether the store has a changelog."""

    @property
    def source_topic(self) -> str | None:
        """The source topic that also serves as the changelog; None for a store with an own changelog, or none."""

    def restored_from(self, topic: str) -> StoreBuilder:
        """Return the same builder, whose store is restored from a source topic and has no changelog of its own."""


@dataclass(frozen=True)
class SourceNode:
    """A node that reads topics."""

    name: str
    """Unique in the topology."""
    topics: tuple[str, ...]
    """Logical topic names: those of repartition topics are without the application's prefix. Empty with a pattern."""
    key: Serde[Any] | None = None
    """None uses `default.key.serde`."""
    value: Serde[Any] | None = None
    """None uses `default.value.serde`."""
    timestamp_extractor: TimestampExtractor | None = None
    """None uses `default.timestamp.extractor`."""
    reset: str | timedelta | None = None
    """`earliest`, `latest`, `none`, or the age of the first record for this source; None uses `auto.offset.reset`."""
    pattern: re.Pattern[str] | None = None
    """The pattern that the whole name of a topic must match; None with `topics`."""
    table: bool = False
    """Whether the topics are read as a table: then the records of a key are updates, in their order."""


@dataclass(frozen=True)
class ProcessorNode:
    """A node that processes each record."""

    name: str
    """Unique in the topology."""
    body: Body
    """The logic for a record."""
    parents: tuple[str, ...]
    """The names of the nodes whose records this node gets, in the order in which they were connected."""
    stores: tuple[str, ...] = ()
    """Names of the stores that it may use, in the order in which they were connected."""
    table: bool = False
    """Whether its children are called as f(key, new, old, timestamp) instead of f(key, value, timestamp)."""
    read_only: frozenset[str] = frozenset()
    """Names of those of its stores that it may only read."""


@dataclass(frozen=True)
class SinkNode:
    """A node that writes to a topic."""

    name: str
    """Unique in the topology."""
    topic: str | TopicNameExtractor
    """Logical topic name, or a function that returns the name per record."""
    parents: tuple[str, ...]
    """The names of the nodes whose records this node writes."""
    key: Serde[Any] | None = None
    """None uses `default.key.serde`."""
    value: Serde[Any] | None = None
    """None uses `default.value.serde`."""
    partitioner: StreamPartitioner | None = None
    """None uses murmur2 of the key's bytes."""


Node: TypeAlias = SourceNode | ProcessorNode | SinkNode


@dataclass(frozen=True)
class RepartitionTopic:
    """An internal topic that one sub-topology writes and another one reads."""

    name: str
    """Logical name, without the application's prefix."""
    partitions: int | None = None
    """Number of partitions; None: as many as its co-partitioned topics, or those upstream, have."""


@dataclass(frozen=True)
class GlobalStore:
    """A store that every worker fills from all partitions of one topic, before it starts processing."""

    id: int
    """The number among the sub-topologies; a global store has no tasks."""
    source: SourceNode
    processor: ProcessorNode
    store: StoreBuilder


@dataclass(frozen=True)
class Subtopology:
    """Nodes that share records or stores. One task runs all of them for one partition."""

    id: int
    """The number in Kafka Streams. Global stores have numbers too, so numbers may be missing."""
    sources: tuple[SourceNode, ...]
    processors: tuple[ProcessorNode, ...]
    """Parents before children."""
    sinks: tuple[SinkNode, ...]
    stores: tuple[StoreBuilder, ...]
    """In the order of the first processor that uses each, parents first: a commit flushes them in this order."""
    copartition_groups: tuple[frozenset[str], ...] = ()
    """Sets of logical topic names that need the same number of partitions."""
    changelogs: Mapping[str, str] = field(default_factory=dict)
    """Logical changelog topics by store name, for stores that have one; it may be a source topic."""
    order: tuple[str, ...] = ()
    """Names of its nodes in the order in which they were added; a record goes to a node's children in this order."""

    @property
    def source_topics(self) -> frozenset[str]:
        """The logical names of all topics that the sources read by name, with repartition topics."""
        return frozenset(topic for source in self.sources for topic in source.topics)

    @property
    def sink_topics(self) -> frozenset[str]:
        """The logical names of the topics that the sinks write, without those chosen per record."""
        return frozenset(sink.topic for sink in self.sinks if isinstance(sink.topic, str))
