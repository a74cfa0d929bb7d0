"""The nodes of a topology and what belongs to them: plain data the runtime compiles from."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
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

#: f(key, value, context) -> name of the topic to write to.
TopicNameExtractor: TypeAlias = Callable[[Any, Any, RecordContext], str]

#: f(topic, key, value, number of partitions) -> None for the default partitioner, else the partitions to write
#: to: several are a multicast, none drops the record.
StreamPartitioner: TypeAlias = Callable[[str, Any, Any, int], Collection[int] | None]


class StoreBuilder(Protocol):
    """What a topology needs to know of a state store; `millpond.state` has the builders."""

    @property
    def name(self) -> str:
        """The store's name, unique in a topology."""

    @property
    def logging(self) -> bool:
        """Whether it has a changelog."""

    @property
    def source_topic(self) -> str | None:
        """The topic that doubles as its changelog; None for a topic of its own."""


@dataclass(frozen=True)
class SourceNode:
    """Reads topics."""

    name: str
    """Unique in the topology."""
    topics: tuple[str, ...]
    """Logical topic names, empty when `pattern` is given; repartition topics go without the application's prefix."""
    key: Serde[Any] | None = None
    """None uses `default.key.serde`."""
    value: Serde[Any] | None = None
    """None uses `default.value.serde`."""
    timestamp_extractor: TimestampExtractor | None = None
    """None uses `default.timestamp.extractor`."""
    reset: str | None = None
    """`earliest` or `latest` for this source; None uses `auto.offset.reset`."""
    pattern: re.Pattern[str] | None = None
    """Reads every topic whose whole name matches; None when `topics` is given."""
    table: bool = False
    """Whether a table is read from here: then the order of records per key is that of updates."""


@dataclass(frozen=True)
class ProcessorNode:
    """Does something to each record."""

    name: str
    """Unique in the topology."""
    body: Body
    """What it does."""
    parents: tuple[str, ...]
    """Names of the nodes whose records it gets, in the order they were connected."""
    stores: tuple[str, ...] = ()
    """Names of the stores it may use, in the order they were connected."""
    table: bool = False
    """Whether its children are called as f(key, new, old, timestamp) instead of f(key, value, timestamp)."""


@dataclass(frozen=True)
class SinkNode:
    """Writes to a topic."""

    name: str
    """Unique in the topology."""
    topic: str | TopicNameExtractor
    """Logical topic name, or a function that tells it per record."""
    parents: tuple[str, ...]
    """Names of the nodes whose records it writes."""
    key: Serde[Any] | None = None
    """None uses `default.key.serde`."""
    value: Serde[Any] | None = None
    """None uses `default.value.serde`."""
    partitioner: StreamPartitioner | None = None
    """None uses Kafka's murmur2 over the key's bytes."""


Node: TypeAlias = SourceNode | ProcessorNode | SinkNode


@dataclass(frozen=True)
class RepartitionTopic:
    """An internal topic that one sub-topology writes and another reads."""

    name: str
    """Logical name, without the application's prefix."""
    partitions: int | None = None
    """None: as many as the topics it is co-partitioned with or derived from."""


@dataclass(frozen=True)
class GlobalStore:
    """A store that every worker fills from all partitions of one topic before it starts."""

    id: int
    """The number the store takes among the sub-topologies; it makes no tasks."""
    source: SourceNode
    processor: ProcessorNode
    store: StoreBuilder


@dataclass(frozen=True)
class Subtopology:
    """Nodes that share records or stores, so one task runs them all for one partition."""

    id: int
    """As Kafka Streams numbers it; global stores take numbers too, so there may be gaps."""
    sources: tuple[SourceNode, ...]
    processors: tuple[ProcessorNode, ...]
    """Parents before children."""
    sinks: tuple[SinkNode, ...]
    stores: tuple[StoreBuilder, ...]
    """In topological order of the first processor that owns each: the order in which a commit flushes them."""
    copartition_groups: tuple[frozenset[str], ...] = ()
    """Logical topic names that need equal partition counts."""
    changelogs: Mapping[str, str] = field(default_factory=dict)
    """Store name -> logical changelog topic, for stores that have one; a source topic where that doubles as one."""
    order: tuple[str, ...] = ()
    """Names of its nodes in the order they were added: a record goes to the children of a node in this order."""

    @property
    def source_topics(self) -> frozenset[str]:
        """Logical names of all topics its sources read, repartition topics included; patterns are not in it."""
        return frozenset(topic for source in self.sources for topic in source.topics)

    @property
    def sink_topics(self) -> frozenset[str]:
        """Logical names of the fixed topics its sinks write."""
        return frozenset(sink.topic for sink in self.sinks if isinstance(sink.topic, str))
