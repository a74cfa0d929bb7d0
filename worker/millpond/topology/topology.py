"""The logical graph: sources, processors, sinks and their stores.

A topology is built with the methods here, or by the DSL. It is only a description; the runtime compiles and runs it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import timedelta
from types import MappingProxyType
from typing import Any, cast

from millpond.calls import checked
from millpond.checks import check_function, kind_of
from millpond.errors import TopologyError
from millpond.serdes import Serde

from .context import Body
from .describing.description import GlobalStoreDescription, SubtopologyDescription, TopologyDescription
from .describing.mermaid import mermaid, picture_of
from .grouping import Groups, check_partition_counts
from .naming import changelog_topic, validate_name, validate_topic
from .nodes import (
    GlobalStore,
    Node,
    ProcessorNode,
    RepartitionTopic,
    SinkNode,
    SourceNode,
    StoreBuilder,
    StreamPartitioner,
    Subtopology,
    TopicNameExtractor,
)
from .processor import FixedKeyProcessor, Processor
from .processor_body import ProcessorBody, supplied_stores
from .settings.resets import check_reset
from .settings.unnamed import Unnamed
from .suppliers import check_supplier, check_supply
from .timestamps import TimestampOf, timestamp_extractor
from .wrapping import ProcessorWrapper, check_wrapper, wrapped_body

__all__ = ("Topology",)

AnyProcessorSupplier = Callable[[], Processor[Any, Any, Any, Any]] | Callable[[], FixedKeyProcessor[Any, Any, Any]]


@checked
class Topology:
    """A graph of processing nodes. Parents are added before their children, so it has no cycles.

    Every method raises TopologyError for arguments that it cannot use; the message has the cause and the cure.

    Args:
        processor_wrapper: wraps every processor that is added (KIP-1112); None for none.
    """

    def __init__(self, *, processor_wrapper: ProcessorWrapper | None = None) -> None:
        self._wrapper = check_wrapper("Topology()", processor_wrapper)
        self._nodes: dict[str, Node] = {}
        self._groups = Groups()
        self._stores: dict[str, StoreBuilder] = {}
        self._store_users: dict[str, list[str]] = {}
        self._global_stores: dict[str, tuple[str, str, StoreBuilder]] = {}
        self._read_only_stores: set[str] = set()
        self._source_topics: dict[str, str] = {}
        self._patterns: dict[str, re.Pattern[str]] = {}
        self._repartition_topics: dict[str, RepartitionTopic] = {}
        self._copartitioned: list[frozenset[str]] = []
        self.unnamed: Unnamed = Unnamed()
        self.rewrites: frozenset[str] | None = None  # those of topology.optimization; None for one by hand

    # Building

    def add_source(  # noqa: PLR0913 - options are keywords
        self,
        name: str,
        *topics: str | re.Pattern[str],
        key: Serde[Any] | None = None,
        value: Serde[Any] | None = None,
        timestamp: TimestampOf[Any] | None = None,
        reset: str | timedelta | None = None,
        table: bool = False,
    ) -> Topology:
        """Add a node that reads topics by name, or every topic whose whole name matches a pattern.

        Args:
            name: unique in the topology.
            topics: one or more topic names, or one compiled pattern.
            key: serde of the keys; None uses `default.key.serde`.
            value: serde of the values; None uses `default.value.serde`.
            timestamp: a TimestampExtractor, or a function of the value that returns epoch ms or an aware datetime; None
                uses `default.timestamp.extractor`.
            reset: where to start without committed offsets: `earliest`, `latest`, `none` to raise, or a timedelta for
                records that are at most so old (KIP-1106); None uses `auto.offset.reset`.
            table: whether the topic is read as a table.
        """
        self._check_new(name)
        if not topics:
            raise TopologyError(f"Source '{name}' has no topic; give it at least one.")
        check_reset(f"Source '{name}'", reset)
        names = tuple(topic for topic in topics if isinstance(topic, str))
        patterns = [topic for topic in topics if isinstance(topic, re.Pattern)]
        if patterns and (names or len(patterns) > 1):
            raise TopologyError(f"Source '{name}' can read topics by name or by one pattern, not both.")
        for topic in names:
            self._check_topic_is_free(validate_topic(topic), name)
            self._source_topics[topic] = name
        for pattern in patterns:
            taken = next((topic for topic in self._source_topics if pattern.fullmatch(topic)), None)
            if taken is not None:
                raise TopologyError(
                    f"Pattern {pattern.pattern!r} of source '{name}' matches topic '{taken}', which source "
                    f"'{self._source_topics[taken]}' already reads; make the pattern narrower."
                )
            self._patterns[name] = pattern
        extractor = timestamp_extractor(timestamp)
        self._add(SourceNode(name, names, key, value, extractor, reset, patterns[0] if patterns else None, table))
        return self

    def add_processor(
        self, name: str, supplier: AnyProcessorSupplier, *parents: str, stores: Iterable[str] = ()
    ) -> Topology:
        """Add a node that runs user code (KIP-820).

        Args:
            name: unique in the topology.
            supplier: f() -> a new Processor or FixedKeyProcessor, called once per task; often the class itself. The
                stores in its attribute `stores` are added and connected (KIP-401).
            parents: names of the nodes whose records the new node gets; at least one.
            stores: names of further stores that it uses; they are in the topology already.
        """
        check_supplier(f"Processor '{name}'", supplier)
        check_supply(name, supplier)
        self.add_body(name, ProcessorBody(supplier), parents)
        for builder in supplied_stores(supplier):
            self.add_state_store(builder, name)
        self.connect(name, *stores)
        return self

    def add_body(self, name: str, body: Body, parents: Iterable[str], *, table: bool = False) -> Topology:
        """Add a node that runs a body, as the DSL does.

        Args:
            name: unique in the topology.
            body: the logic of the node.
            parents: names of the nodes whose records the new node gets; at least one.
            table: whether its children are called with (key, new, old, timestamp).
        """
        self._check_new(name)
        above = self._check_parents(name, tuple(parents))
        stores: tuple[Any, ...] = ()
        if self._wrapper is not None:
            changes = any(isinstance(node, ProcessorNode) and node.table for node in map(self._nodes.get, above))
            body, stores = wrapped_body(self._wrapper, name, body, from_table=changes, table=table)
        self._add(ProcessorNode(name, body, above, (), table))
        for builder in stores:
            self.add_state_store(builder, name)
        return self

    def add_sink(
        self,
        name: str,
        topic: str | TopicNameExtractor,
        *parents: str,
        key: Serde[Any] | None = None,
        value: Serde[Any] | None = None,
        partitioner: StreamPartitioner | None = None,
    ) -> Topology:
        """Add a node that writes to a topic.

        Args:
            name: unique in the topology.
            topic: a topic's name, or f(key, value, context) -> the name of the record's topic (KIP-303).
            parents: names of the nodes whose records the sink writes; at least one.
            key: serde of the keys; None uses `default.key.serde`.
            value: serde of the values; None uses `default.value.serde`.
            partitioner: f(topic, key, value, number of partitions) -> the partitions to write to (KIP-837): several are
                a multicast, none drops the record, and None is the default, murmur2 of the key's bytes.
        """
        self._check_new(name)
        if isinstance(topic, str):
            validate_topic(topic)
        elif not callable(topic):
            raise TopologyError(
                f"Sink '{name}' needs a topic's name, or a function of (key, value, context) that returns one, not "
                f"{kind_of(topic)}."
            )
        else:
            check_function(f"Sink '{name}'", topic, "key", "value", "context")
        if partitioner is not None:
            check_function(f"Sink '{name}'", partitioner, "topic", "key", "value", "partitions")
        self._add(SinkNode(name, topic, self._check_parents(name, parents), key, value, partitioner))
        return self

    def add_state_store(self, builder: StoreBuilder, *processors: str) -> Topology:
        """Add a store and connect it to processors. If the same builder was added before, it is only connected."""
        name = validate_name(builder.name, "store")
        known = self._stores.get(name)
        if known is not None and known != builder:
            raise TopologyError(f"Another store is already called '{name}'; rename one of the two.")
        if name in self._global_stores:
            raise TopologyError(f"A global store is already called '{name}'; rename one of the two.")
        self._stores[name] = builder
        self._store_users.setdefault(name, [])
        for processor in processors:
            self.connect(processor, name)
        return self

    def add_global_store(  # noqa: PLR0913 - options are keywords
        self,
        builder: StoreBuilder,
        topic: str,
        processor: AnyProcessorSupplier | Body,
        *,
        source_name: str,
        processor_name: str,
        key: Serde[Any] | None = None,
        value: Serde[Any] | None = None,
        timestamp: TimestampOf[Any] | None = None,
    ) -> Topology:
        """Add a store that every worker fills from all partitions of `topic`. Every processor may read it.

        Args:
            builder: has logging=False, because the topic is the changelog.
            topic: the topic's name; nothing else in this topology reads it.
            processor: puts records into the store; it forwards nothing.
            source_name: name of the node that reads the topic.
            processor_name: name of the node that fills the store.
            key: serde of the topic's keys.
            value: serde of the topic's values.
            timestamp: see `add_source`.
        """
        store = validate_name(builder.name, "store")
        self._check_new(source_name)
        self._check_new(processor_name)
        if source_name == processor_name:
            raise TopologyError(f"The source and the processor of global store '{store}' need different names.")
        self._check_store_is_new(store)
        if builder.logging:
            raise TopologyError(
                f"Global store '{store}' cannot have a changelog, because its topic '{topic}' is one; "
                "build it with logging=False."
            )
        self._check_topic_is_free(validate_topic(topic), source_name)
        self._source_topics[topic] = source_name
        self._add(SourceNode(source_name, (topic,), key, value, timestamp_extractor(timestamp), None, None, table=True))
        if isinstance(processor, ProcessorBody):
            check_supply(processor_name, processor.supplier)
        elif not hasattr(processor, "bind"):
            check_supplier(f"Global store '{store}'", processor)
            check_supply(processor_name, processor)
            processor = ProcessorBody(processor)
        body = cast("Body", processor)
        if self._wrapper is not None and isinstance(processor, ProcessorBody):
            body, _ = wrapped_body(self._wrapper, processor_name, processor, from_table=False, table=False)
        self._add(ProcessorNode(processor_name, body, (source_name,), (store,)))
        self._global_stores[store] = (source_name, processor_name, builder)
        return self

    def add_read_only_state_store(  # noqa: PLR0913 - options are keywords
        self,
        builder: StoreBuilder,
        topic: str,
        processor: AnyProcessorSupplier,
        *,
        source_name: str,
        processor_name: str,
        key: Serde[Any] | None = None,
        value: Serde[Any] | None = None,
        timestamp: TimestampOf[Any] | None = None,
    ) -> Topology:
        """Add a store that tasks fill from `topic`, which is also its changelog (KIP-813).

        Other processors may be connected to the store, and only read it; their other inputs need the same keys and as
        many partitions. The topic is read from its beginning, and should be compacted. The store is restored with
        the topic's own bytes, so the processor has to put each record as it is: key, value and timestamp.

        Args:
            builder: the store; its changelog is the topic, whatever its `logging` says.
            topic: the topic's name; no other source in this topology reads it.
            processor: makes the Processor that puts records into the store.
            source_name: name of the node that reads the topic.
            processor_name: name of the node that fills the store.
            key: serde of the topic's keys, and of the store's.
            value: serde of the topic's values, and of the store's.
            timestamp: see `add_source`.
        """
        store = validate_name(builder.name, "store")
        self._check_store_is_new(store)
        if builder.source_topic is not None:
            raise TopologyError(
                f"Read-only store '{store}' has the source topic '{builder.source_topic}' already; leave it out, since "
                f"the store is restored from '{topic}'."
            )
        check_supplier(f"Read-only store '{store}'", processor)
        self.add_source(source_name, topic, key=key, value=value, timestamp=timestamp, reset="earliest", table=True)
        self.add_processor(processor_name, processor, source_name)
        self.add_state_store(builder.restored_from(topic), processor_name)
        self._read_only_stores.add(store)
        return self

    def connect(self, processor: str, *stores: str) -> Topology:
        """Connect a processor to stores. Processors that share a store are in one sub-topology."""
        for store in stores:
            if store in self._global_stores:
                raise TopologyError(
                    f"Store '{store}' is global: every processor may read it, so do not connect it to '{processor}'."
                )
            if store not in self._stores:
                raise TopologyError(
                    f"Processor '{processor}' uses store '{store}', which does not exist; call add_state_store() first."
                )
            node = self._nodes.get(processor)
            if node is None:
                raise TopologyError(
                    f"Store '{store}' is connected to '{processor}', which does not exist; add it first."
                )
            if not isinstance(node, ProcessorNode):
                raise TopologyError(
                    f"Store '{store}' cannot be connected to '{processor}', which is not a processor; name a processor."
                )
            users = self._store_users[store]
            self._groups.unite(processor, users[:1])
            if processor not in users:
                users.append(processor)
                read_only = {store} if store in self._read_only_stores else set()
                self._nodes[processor] = replace(
                    node, stores=(*node.stores, store), read_only=node.read_only | read_only
                )
        return self

    def add_repartition_topic(self, name: str, partitions: int | None = None) -> Topology:
        """Declare an internal topic. The runtime creates it with the name `<application.id>-<name>`.

        Args:
            name: logical name.
            partitions: number of partitions; None for as many as its co-partitioned topics, or those upstream, have.
        """
        if not isinstance(partitions, int | None):
            raise TopologyError(f"Repartition topic '{name}' needs a number of partitions, not {kind_of(partitions)}.")
        if partitions is not None and partitions < 1:
            raise TopologyError(f"Repartition topic '{name}' needs at least one partition, not {partitions}.")
        self._repartition_topics[validate_topic(name)] = RepartitionTopic(name, partitions)
        return self

    def copartition(self, sources: Iterable[str]) -> Topology:
        """Require that all topics of these source nodes have the same number of partitions."""
        group = frozenset(sources)
        if group not in self._copartitioned:
            self._copartitioned.append(group)
        return self

    # Reading

    @property
    def nodes(self) -> Mapping[str, Node]:
        """All nodes by name, parents first, those of global stores included."""
        return MappingProxyType(self._nodes)

    @property
    def repartition_topics(self) -> Mapping[str, RepartitionTopic]:
        """Internal topics by logical name."""
        return MappingProxyType(self._repartition_topics)

    @property
    def stores(self) -> Mapping[str, StoreBuilder]:
        """Builders of the stores of tasks, by name, without global stores."""
        return MappingProxyType(self._stores)

    @property
    def global_stores(self) -> list[GlobalStore]:
        """Global stores in the order in which they were added."""
        found = []
        for number, names in enumerate(self._groups.together()):
            for source_name, processor_name, builder in self._global_stores.values():
                if source_name in names:
                    source, processor = self._nodes[source_name], self._nodes[processor_name]
                    assert isinstance(source, SourceNode)
                    assert isinstance(processor, ProcessorNode)
                    found.append(GlobalStore(number, source, processor, builder))
        return found

    @property
    def copartition_groups(self) -> list[frozenset[str]]:
        """Sets of logical topic names that need the same number of partitions."""
        return [topics for group in self._copartitioned if len(topics := self._topics_of(group)) > 1]

    def subtopologies(self) -> list[Subtopology]:
        """Return the parts that tasks run, with their numbers in Kafka Streams.

        Raises:
            TopologyError: co-partitioned repartition topics have different numbers of partitions.
        """
        groups = self.copartition_groups
        check_partition_counts(groups, self._repartition_topics)
        found = []
        for number, names in enumerate(self._groups.together()):
            if any(source in names for source, _, _ in self._global_stores.values()):
                continue
            nodes = [self._nodes[name] for name in names]
            sources = tuple(node for node in nodes if isinstance(node, SourceNode))
            processors = tuple(node for node in nodes if isinstance(node, ProcessorNode))
            stores = tuple(
                self._stores[store] for store in dict.fromkeys(s for node in processors for s in node.stores)
            )
            topics = {topic for source in sources for topic in source.topics}
            found.append(
                Subtopology(
                    number,
                    sources,
                    processors,
                    tuple(node for node in nodes if isinstance(node, SinkNode)),
                    stores,
                    tuple(group for group in groups if group & topics),
                    {
                        store.name: store.source_topic or changelog_topic(store.name)
                        for store in stores
                        if store.logging or store.source_topic
                    },
                    tuple(names),
                )
            )
        return found

    def describe(self) -> TopologyDescription:
        """Return the sub-topologies and global stores; `str()` of it is Kafka Streams' text, byte for byte."""
        globals_ = self.global_stores
        numbers = {store.id for store in globals_}
        return TopologyDescription(
            tuple(
                SubtopologyDescription(number, [self._nodes[name] for name in names])
                for number, names in enumerate(self._groups.together())
                if number not in numbers
            ),
            tuple(GlobalStoreDescription(store) for store in globals_),
        )

    def mermaid(self) -> str:
        """Return the graph as the text of a Mermaid flowchart."""
        return mermaid(self.subtopologies(), self.global_stores, self.repartition_topics)

    def _repr_mermaid_(self) -> str:
        """Return the graph for notebooks that draw Mermaid."""
        return self.mermaid()

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        """Return what a notebook shows: a picture, if the graph is not too large for one; else a Mermaid flowchart."""
        return {"text/plain": str(self.describe()), "text/vnd.mermaid": self.mermaid(), **picture_of(self)}

    # Checks

    def _add(self, node: Node) -> None:
        self._nodes[node.name] = node
        self._groups.add(node.name)
        if not isinstance(node, SourceNode):
            self._groups.unite(node.name, node.parents)

    def _check_new(self, name: str) -> None:
        validate_name(name)
        if name in self._nodes:
            raise TopologyError(f"Another node is already called '{name}'; rename one of the two.")

    def _check_store_is_new(self, store: str) -> None:
        if store in self._stores or store in self._global_stores:
            raise TopologyError(f"Another store is already called '{store}'; rename one of the two.")

    def _check_parents(self, name: str, parents: tuple[str, ...]) -> tuple[str, ...]:
        if not parents:
            raise TopologyError(f"Node '{name}' has no parent; name at least one node whose records it gets.")
        for parent in parents:
            if parent == name:
                raise TopologyError(f"Node '{name}' cannot be its own parent; name another node.")
            node = self._nodes.get(parent)
            if node is None:
                raise TopologyError(f"Node '{name}' has the unknown parent '{parent}'; add '{parent}' first.")
            if isinstance(node, SinkNode):
                raise TopologyError(
                    f"Node '{name}' cannot follow sink '{parent}', which forwards nothing; name another parent."
                )
        return parents

    def _check_topic_is_free(self, topic: str, source: str) -> None:
        if topic in self._source_topics:
            raise TopologyError(
                f"Topic '{topic}' is already read by source '{self._source_topics[topic]}'; "
                f"use that node's output in place of source '{source}'."
            )
        for reader, pattern in self._patterns.items():
            if pattern.fullmatch(topic):
                raise TopologyError(
                    f"Topic '{topic}' of source '{source}' matches pattern {pattern.pattern!r} of source '{reader}'; "
                    "make the pattern narrower."
                )

    def _topics_of(self, sources: Iterable[str]) -> frozenset[str]:
        nodes = (self._nodes.get(name) for name in sources)
        return frozenset(topic for node in nodes if isinstance(node, SourceNode) for topic in node.topics)
