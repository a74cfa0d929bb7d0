"""The graph of operators that the DSL collects until `build()` writes it into a Topology.

Nodes are written late because later calls change earlier ones: a join makes its table materialise, an aggregation makes
its input send old values, and a left join keeps records without a key upstream (KIP-962). The order of writing, and the
one index of all generated names, are those of Kafka Streams, so that names and sub-topology numbers are equal.
"""

from __future__ import annotations

import copy
import heapq
import re
from collections.abc import Callable, Iterable
from datetime import timedelta
from itertools import count
from typing import Any

from millpond.dsl.operators.conversion import DropNullKeys, PassThrough
from millpond.errors import TopologyError
from millpond.serdes import ChangeSerde, Serde
from millpond.topology import (
    Body,
    FailOnInvalidTimestamp,
    ProcessorWrapper,
    StoreBuilder,
    StreamPartitioner,
    TimestampOf,
    TopicNameExtractor,
    Topology,
)
from millpond.topology.naming import validate_name
from millpond.topology.processor_body import ProcessorBody
from millpond.topology.settings.unnamed import Unnamed

__all__ = (
    "Graph",
    "GraphNode",
    "OperatorNode",
    "ProcessorGraphNode",
    "RepartitionGraphNode",
    "SinkGraphNode",
    "SourceGraphNode",
    "StoreGraphNode",
    "TableRepartitionGraphNode",
)


class GraphNode:
    """An operator of the DSL.

    Attributes:
        name: its name in the topology, by which its children name their parent.
        relaxed_null_key: whether it is a left join, which joins records without a key too (KIP-962).
        open_ms: for windowed aggregations, how far stream time is beyond the end of a window that closes; None for
            other operators.
        key_changing: whether it changes keys, and a repartition topic can move to directly below it.
        rekeys: whether it may change keys.
        value_changing: whether it may change values, so that no repartition topic can move from below to above it.
        joins_globally: whether it joins a global table: it makes other values, but a repartition topic can move from
            below to above it.
        value: for operators that change keys, and joins of global tables, the serde of their values; None if not given.
        is_merge: whether it merges two streams.
        output_versioned: for tables with options of a store, whether that store is versioned (KIP-914); None for other
            operators, which are versioned if all their inputs are.
    """

    def __init__(self, name: str, *, relaxed_null_key: bool = False, open_ms: int | None = None) -> None:
        self.name = name
        self.relaxed_null_key = relaxed_null_key
        self.open_ms = open_ms
        self.output_versioned: bool | None = None
        self.key_changing = False
        self.rekeys = False
        self.value_changing = False
        self.joins_globally = False
        self.value: Serde[Any] | None = None
        self.is_merge = False
        self.parents: list[GraphNode] = []
        self.children: list[GraphNode] = []
        self.priority = -1

    def adopt(self, child: GraphNode) -> None:
        """Add a node as a child, unless it is a child already."""
        if child not in self.children:
            self.children.append(child)
            child.parents.append(self)

    def disown(self, child: GraphNode) -> None:
        """Remove a child; the inverse of `adopt`."""
        self.children.remove(child)
        child.parents.remove(self)

    @property
    def parent_names(self) -> list[str]:
        """The names of its parents, in the order in which they were connected."""
        return [parent.name for parent in self.parents]

    @property
    def is_versioned(self) -> bool:
        """Whether its changes are those of a versioned table, so that some are not the latest of their key."""
        if self.output_versioned is None:
            return bool(self.parents) and all(parent.is_versioned for parent in self.parents)
        return self.output_versioned

    def write(self, topology: Topology) -> None:
        """Add this operator to the topology; its parents are already there."""


class SourceGraphNode(GraphNode):
    """A source that reads topics as a stream."""

    def __init__(  # noqa: PLR0913 - the arguments of stream(), resolved
        self,
        name: str,
        topics: tuple[str, ...] | re.Pattern[str],
        key: Serde[Any] | None,
        value: Serde[Any] | None,
        timestamp: TimestampOf[Any] | None,
        reset: str | timedelta | None,
    ) -> None:
        super().__init__(name)
        self.topics = topics
        self.key = key
        self.value = value
        self.timestamp = timestamp
        self.reset = reset

    @property
    def identity(self) -> object:
        """A value that is equal for sources that become one node: those of the same topics or the same pattern."""
        if isinstance(self.topics, re.Pattern):
            return self.topics.pattern, self.topics.flags
        return frozenset(self.topics)

    def write(self, topology: Topology) -> None:
        """Add the source."""
        topics = (self.topics,) if isinstance(self.topics, re.Pattern) else self.topics
        topology.add_source(
            self.name, *topics, key=self.key, value=self.value, timestamp=self.timestamp, reset=self.reset
        )


class OperatorNode(GraphNode):
    """A processor, with its own store and the other stores that it uses."""

    def __init__(  # noqa: PLR0913 - options are keywords
        self,
        name: str,
        body: Callable[[], Body],
        *,
        store: Callable[[], StoreBuilder | None] | None = None,
        uses: Iterable[str] = (),
        adds: Iterable[StoreBuilder] = (),
        table: bool = False,
        relaxed_null_key: bool = False,
        open_ms: int | None = None,
    ) -> None:
        super().__init__(name, relaxed_null_key=relaxed_null_key, open_ms=open_ms)
        self.body = body
        self.store = store
        self.uses: tuple[str, ...] = tuple(uses)
        self.adds: tuple[StoreBuilder, ...] = tuple(adds)
        self.table = table

    def write(self, topology: Topology) -> None:
        """Add the processor and its stores."""
        topology.add_body(self.name, self.body(), self.parent_names, table=self.table)
        # In Kafka Streams' order, which is that of stores with equal hashes in a description.
        builder = None if self.store is None else self.store()
        if builder is not None:
            topology.add_state_store(builder, self.name)
        for each in self.adds:
            topology.add_state_store(each, self.name)
        topology.connect(self.name, *self.uses)


class ProcessorGraphNode(OperatorNode):
    """A user's processor, with the stores in its attribute `stores`."""

    def __init__(self, name: str, supplier: Callable[[], Any], stores: Iterable[str]) -> None:
        super().__init__(name, lambda: ProcessorBody(supplier), uses=stores)
        self._supplier = supplier

    def write(self, topology: Any) -> None:
        """Add the processor and its stores."""
        topology.add_processor(self.name, self._supplier, *self.parent_names, stores=self.uses)


class RepartitionGraphNode(GraphNode):
    """An internal topic for all records of a stream, so that one task gets all records of a key.

    It has the name of the source that reads the topic, since that is the parent of its children. `optimizable` topics
    may be merged by `merge.repartition.topics`; those of `repartition()` are not. `named` says whether the prefix comes
    from the user, or from a store that the user named.
    """

    def __init__(  # noqa: PLR0913 - the arguments of repartition(), resolved
        self,
        graph: Graph,
        prefix: str,
        key: Serde[Any] | None,
        value: Serde[Any] | None,
        partitioner: StreamPartitioner | None = None,
        partitions: int | None = None,
        *,
        named: bool,
        optimizable: bool = True,
    ) -> None:
        topic = prefix if prefix.endswith("-repartition") else f"{prefix}-repartition"
        if not named:
            graph.unnamed.repartition_topics.append(topic)
        # As in Kafka Streams, all three names take an index even when they are not used: later names depend on it.
        sink, filter_, source = (
            graph.generate("KSTREAM-SINK-"),
            graph.generate("KSTREAM-FILTER-"),
            graph.generate("KSTREAM-SOURCE-"),
        )
        if not re.fullmatch(r"KSTREAM.*-[0-9]{10}", prefix):
            sink, filter_, source = f"{topic}-sink", f"{topic}-filter", f"{topic}-source"
        super().__init__(source)
        self.topic: str = topic
        self.sink: str = sink
        self.filter: str = filter_
        self.key: Serde[Any] | None = key
        self.value: Serde[Any] | None = value
        self.partitioner: StreamPartitioner | None = partitioner
        self.partitions: int | None = partitions
        self.keep_null_keys = False
        self.optimizable: bool = optimizable

    def write(self, topology: Topology) -> None:
        """Add the internal topic, the filter that drops null keys, the sink and the source."""
        topology.add_repartition_topic(self.topic, self.partitions)
        topology.add_body(self.filter, PassThrough() if self.keep_null_keys else DropNullKeys(), self.parent_names)
        topology.add_sink(
            self.sink, self.topic, self.filter, key=self.key, value=self.value, partitioner=self.partitioner
        )
        topology.add_source(self.name, self.topic, key=self.key, value=self.value, timestamp=FailOnInvalidTimestamp())


class TableRepartitionGraphNode(GraphNode):
    """An internal topic for the changes of a regrouped table, with new and old value in one record."""

    def __init__(self, source: str, sink: str, topic: str, key: Serde[Any] | None, value: Serde[Any] | None) -> None:
        super().__init__(source)
        self.sink = sink
        self.topic = topic
        self.key = key
        self.value = value

    def write(self, topology: Topology) -> None:
        """Add the internal topic, the sink and the source.

        Raises:
            TopologyError: neither `group_by()` nor the table has a serde for the values.
        """
        if self.value is None:
            raise TopologyError(
                f"The values regrouped into topic '{self.topic}' have no serde; give value= to group_by()."
            )
        change = ChangeSerde(self.value)
        topology.add_repartition_topic(self.topic)
        topology.add_sink(self.sink, self.topic, *self.parent_names, key=self.key, value=change)
        topology.add_source(self.name, self.topic, key=self.key, value=change, timestamp=FailOnInvalidTimestamp())


class SinkGraphNode(GraphNode):
    """A sink that writes a stream to a topic."""

    def __init__(
        self,
        name: str,
        topic: str | TopicNameExtractor,
        key: Serde[Any] | None,
        value: Serde[Any] | None,
        partitioner: StreamPartitioner | None,
    ) -> None:
        super().__init__(name)
        self.topic: str | TopicNameExtractor = topic
        self.key: Serde[Any] | None = key
        self.value: Serde[Any] | None = value
        self.partitioner: StreamPartitioner | None = partitioner

    def write(self, topology: Topology) -> None:
        """Add the sink."""
        topology.add_sink(
            self.name, self.topic, *self.parent_names, key=self.key, value=self.value, partitioner=self.partitioner
        )


class StoreGraphNode(GraphNode):
    """A store that the user adds, for processors that name it."""

    def __init__(self, builder: StoreBuilder) -> None:
        super().__init__(builder.name)
        self.builder = builder

    def write(self, topology: Topology) -> None:
        """Add the store."""
        topology.add_state_store(self.builder)


class Graph:
    """The operators of one StreamsBuilder.

    Args:
        wrapper: wraps its processors and operators; None for none.
    """

    def __init__(self, wrapper: ProcessorWrapper | None = None) -> None:
        self._wrapper = wrapper
        self.root: GraphNode = GraphNode("root")
        self._index = count()
        self._priority = count()
        self._copartitioned: list[frozenset[str]] = []
        self._added: dict[GraphNode, None] = {}
        self._built: frozenset[str] = frozenset()
        #: Stores and internal topics whose names are generated.
        self.unnamed: Unnamed = Unnamed()
        #: Repartition topics that Kafka Streams would merge, although records would reach the task of another key.
        self.unmerged: list[str] = []

    @property
    def nodes(self) -> list[GraphNode]:
        """All nodes, in the order in which they were added."""
        return list(self._added)

    def generate(self, prefix: str) -> str:
        """Return the next generated name: the prefix and the index as 10 digits."""
        return f"{prefix}{next(self._index):010d}"

    def generate_store(self, prefix: str) -> str:
        """Return the next generated name of a store."""
        return self.generate(f"{prefix}STATE-STORE-")

    def name_or(self, name: str | None, prefix: str, suffix: str = "") -> str:
        """Return the user's name with a suffix, or a generated one. Both increment the index.

        Raises:
            TopologyError: the user's name is invalid.
        """
        generated = self.generate(prefix)
        return generated if name is None else validate_name(f"{name}{suffix}")

    def add(self, node: GraphNode, *parents: GraphNode) -> None:
        """Add a node as a child of its parents."""
        for parent in parents:
            parent.adopt(node)
            node.priority = next(self._priority)
            self._added.setdefault(node)

    def copartition(self, sources: Iterable[str]) -> None:
        """Require that the topics of these sources have the same number of partitions."""
        self._copartitioned.append(frozenset(sources))

    def replace_source(self, old: str, new: str) -> None:
        """Use another source wherever topics of this one need the same number of partitions as others."""
        self._copartitioned = [
            frozenset(new if source == old else source for source in group) for group in self._copartitioned
        ]

    def build(self, rules: frozenset[str] = frozenset()) -> Topology:
        """Return a new topology of all operators.

        Args:
            rules: names of the rewrites of `topology.optimization` to apply.

        Raises:
            TopologyError: the operators contradict each other, or an earlier call had other rewrites.
        """
        from .optimizing.rules import optimize

        self._merge_duplicate_sources()
        if self._built - rules:
            raise TopologyError(
                "build() was called before with other rewrites of topology.optimization, which cannot be undone; make "
                "the second topology with a StreamsBuilder of its own."
            )
        if rules - self._built:
            optimize(self, rules - self._built)
            self._built = rules
        self._keep_null_keys_for_relaxed_joins()
        topology = Topology(processor_wrapper=self._wrapper)
        topology.rewrites, topology.unnamed = rules, copy.deepcopy(self.unnamed)
        queue: list[tuple[int, GraphNode]] = [(child.priority, child) for child in self.root.children]
        written: set[GraphNode] = {self.root}
        pending = {id(child) for child in self.root.children}
        by_priority = _Queue(queue)
        while (node := by_priority.pop()) is not None:
            pending.discard(id(node))
            if node not in written and written.issuperset(node.parents):
                node.write(topology)
                written.add(node)
            for child in node.children:
                if child not in written and id(child) not in pending:
                    pending.add(id(child))
                    by_priority.push(child)
        for group in self._copartitioned:
            topology.copartition(group)
        return topology

    def _merge_duplicate_sources(self) -> None:
        first: dict[object, SourceGraphNode] = {}
        by_topic: dict[str, SourceGraphNode] = {}
        for node in list(self.root.children):
            if not isinstance(node, SourceGraphNode):
                continue
            main = first.setdefault(node.identity, node)
            if main is not node:
                _merge(main, node)
                self.root.disown(node)
                continue
            if isinstance(node.topics, re.Pattern):
                continue
            for topic in node.topics:
                if topic in by_topic:
                    raise TopologyError(
                        f"Topic '{topic}' is read by two streams whose other topics differ; "
                        "read it in a stream of its own and merge() that one."
                    )
                by_topic[topic] = node

    def _keep_null_keys_for_relaxed_joins(self) -> None:
        relaxed: dict[GraphNode, bool] = {}

        def needs_null_keys(node: GraphNode) -> bool:
            if node not in relaxed:
                relaxed[node] = False
                # Each child is visited, since what is below a relaxed join may have topics, too.
                found = [needs_null_keys(child) or child.relaxed_null_key for child in node.children]
                relaxed[node] = any(found)
            return relaxed[node]

        needs_null_keys(self.root)
        for node, needed in relaxed.items():
            if isinstance(node, RepartitionGraphNode):
                node.keep_null_keys = needed


class _Queue:
    """A queue of nodes, lowest priority number first."""

    def __init__(self, items: list[tuple[int, GraphNode]]) -> None:
        self._heap = [(priority, order, node) for order, (priority, node) in enumerate(items)]
        self._order = len(items)
        heapq.heapify(self._heap)

    def push(self, node: GraphNode) -> None:
        heapq.heappush(self._heap, (node.priority, self._order, node))
        self._order += 1

    def pop(self) -> GraphNode | None:
        return heapq.heappop(self._heap)[2] if self._heap else None


def _merge(main: SourceGraphNode, other: SourceGraphNode) -> None:
    if main.reset != other.reset:
        raise TopologyError(
            f"Topics {main.topics} are read twice with different reset= settings ({main.reset}, {other.reset}); "
            "use one for both."
        )
    for child in list(other.children):
        other.disown(child)
        main.adopt(child)
