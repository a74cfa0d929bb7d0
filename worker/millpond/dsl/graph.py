"""What the DSL remembers until `build()`: a graph of operators, each able to write itself into a Topology.

Nodes are written late because later calls change earlier ones: a join makes its table materialise, an
aggregation makes its input send old values, a left join keeps null keys alive upstream. The order of writing,
and the one index behind all generated names, are Kafka Streams', so that names and sub-topology numbers agree.
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Callable, Iterable
from itertools import count
from typing import Any

from millpond.dsl.operators.conversion import DropNullKeys, PassThrough
from millpond.errors import TopologyError
from millpond.serdes import ChangeSerde, Serde
from millpond.topology import (
    Body,
    FailOnInvalidTimestamp,
    StoreBuilder,
    StreamPartitioner,
    TimestampOf,
    TopicNameExtractor,
    Topology,
)
from millpond.topology.naming import validate_name

__all__ = (
    "Graph",
    "GraphNode",
    "OperatorNode",
    "RepartitionGraphNode",
    "SinkGraphNode",
    "SourceGraphNode",
    "StoreGraphNode",
    "TableRepartitionGraphNode",
)


class GraphNode:
    """An operator of the DSL.

    Attributes:
        name: as in the topology; children name it as their parent.
        relaxed_null_key: a left join that joins records without a key too, so they must not be dropped upstream.
        grace_ms: how long windows stay open after their end, for windowed aggregations; None for others.
    """

    def __init__(self, name: str, *, relaxed_null_key: bool = False, grace_ms: int | None = None) -> None:
        self.name = name
        self.relaxed_null_key = relaxed_null_key
        self.grace_ms = grace_ms
        self.parents: list[GraphNode] = []
        self.children: list[GraphNode] = []
        self.priority = -1

    def adopt(self, child: GraphNode) -> None:
        """Put `child` below this node; doing it twice changes nothing."""
        if child not in self.children:
            self.children.append(child)
            child.parents.append(self)

    def disown(self, child: GraphNode) -> None:
        """Undo `adopt`."""
        self.children.remove(child)
        child.parents.remove(self)

    @property
    def parent_names(self) -> list[str]:
        """Names of the nodes above, in the order they were connected."""
        return [parent.name for parent in self.parents]

    def write(self, topology: Topology) -> None:
        """Add what this operator consists of to the topology; parents are in it already."""


class SourceGraphNode(GraphNode):
    """Reads topics as a stream."""

    def __init__(
        self,
        name: str,
        topics: tuple[str, ...] | re.Pattern[str],
        key: Serde[Any] | None,
        value: Serde[Any] | None,
        timestamp: TimestampOf[Any] | None,
        reset: str | None,
    ) -> None:
        super().__init__(name)
        self.topics = topics
        self.key = key
        self.value = value
        self.timestamp = timestamp
        self.reset = reset

    @property
    def identity(self) -> object:
        """Equal for sources that can be one node: the same topics, or the same pattern."""
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
    """A processor, with the stores it brings or uses."""

    def __init__(
        self,
        name: str,
        body: Callable[[], Body],
        *,
        store: Callable[[], StoreBuilder | None] | None = None,
        uses: Iterable[str] = (),
        table: bool = False,
        relaxed_null_key: bool = False,
        grace_ms: int | None = None,
    ) -> None:
        super().__init__(name, relaxed_null_key=relaxed_null_key, grace_ms=grace_ms)
        self.body = body
        self.store = store
        self.uses = tuple(uses)
        self.table = table

    def write(self, topology: Topology) -> None:
        """Add the processor and its stores."""
        topology.add_body(self.name, self.body(), self.parent_names, table=self.table)
        topology.connect(self.name, *self.uses)
        builder = None if self.store is None else self.store()
        if builder is not None:
            topology.add_state_store(builder, self.name)


class RepartitionGraphNode(GraphNode):
    """Sends a stream through an internal topic, so that equal keys meet in one task.

    Its node name is that of the source that reads the topic, since that is what children follow.
    """

    def __init__(
        self,
        graph: Graph,
        prefix: str,
        key: Serde[Any] | None,
        value: Serde[Any] | None,
        partitioner: StreamPartitioner | None = None,
        partitions: int | None = None,
    ) -> None:
        topic = prefix if prefix.endswith("-repartition") else f"{prefix}-repartition"
        # The index moves on for all three names even when they are not used: later names depend on it.
        sink, filter_, source = (
            graph.generate("KSTREAM-SINK-"),
            graph.generate("KSTREAM-FILTER-"),
            graph.generate("KSTREAM-SOURCE-"),
        )
        if not re.fullmatch(r"KSTREAM.*-[0-9]{10}", prefix):
            sink, filter_, source = f"{topic}-sink", f"{topic}-filter", f"{topic}-source"
        super().__init__(source)
        self.topic, self.sink, self.filter = topic, sink, filter_
        self.key, self.value, self.partitioner, self.partitions = key, value, partitioner, partitions
        self.keep_null_keys = False

    def write(self, topology: Topology) -> None:
        """Add the internal topic, the filter for null keys, the sink and the source."""
        topology.add_repartition_topic(self.topic, self.partitions)
        topology.add_body(self.filter, PassThrough() if self.keep_null_keys else DropNullKeys(), self.parent_names)
        topology.add_sink(
            self.sink, self.topic, self.filter, key=self.key, value=self.value, partitioner=self.partitioner
        )
        topology.add_source(self.name, self.topic, key=self.key, value=self.value, timestamp=FailOnInvalidTimestamp())


class TableRepartitionGraphNode(GraphNode):
    """Sends the changes of a regrouped table through an internal topic, new and old value in one record."""

    def __init__(self, source: str, sink: str, topic: str, key: Serde[Any] | None, value: Serde[Any] | None) -> None:
        super().__init__(source)
        self.sink = sink
        self.topic = topic
        self.key = key
        self.value = value

    def write(self, topology: Topology) -> None:
        """Add the internal topic, the sink and the source.

        Raises:
            TopologyError: the serde of the values is not known.
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
    """Writes a stream to a topic."""

    def __init__(
        self,
        name: str,
        topic: str | TopicNameExtractor,
        key: Serde[Any] | None,
        value: Serde[Any] | None,
        partitioner: StreamPartitioner | None,
    ) -> None:
        super().__init__(name)
        self.topic, self.key, self.value, self.partitioner = topic, key, value, partitioner

    def write(self, topology: Topology) -> None:
        """Add the sink."""
        topology.add_sink(
            self.name, self.topic, *self.parent_names, key=self.key, value=self.value, partitioner=self.partitioner
        )


class StoreGraphNode(GraphNode):
    """A store added by the user, to be connected by name."""

    def __init__(self, builder: StoreBuilder) -> None:
        super().__init__(builder.name)
        self.builder = builder

    def write(self, topology: Topology) -> None:
        """Add the store."""
        topology.add_state_store(self.builder)


class Graph:
    """The operators of one StreamsBuilder."""

    def __init__(self) -> None:
        self.root = GraphNode("root")
        self._index = count()
        self._priority = count()
        self._copartitioned: list[frozenset[str]] = []

    def generate(self, prefix: str) -> str:
        """The next generated name: the prefix and the index, ten digits wide."""
        return f"{prefix}{next(self._index):010d}"

    def generate_store(self, prefix: str) -> str:
        """The next generated name for a store."""
        return self.generate(f"{prefix}STATE-STORE-")

    def name_or(self, name: str | None, prefix: str, suffix: str = "") -> str:
        """The user's name with a suffix, or a generated one. The index moves on in both cases.

        Raises:
            TopologyError: the user's name is not legal.
        """
        generated = self.generate(prefix)
        return generated if name is None else validate_name(f"{name}{suffix}")

    def add(self, node: GraphNode, *parents: GraphNode) -> None:
        """Put a node below its parents."""
        for parent in parents:
            parent.adopt(node)
            node.priority = next(self._priority)

    def copartition(self, sources: Iterable[str]) -> None:
        """Require that the topics of these sources have equally many partitions."""
        self._copartitioned.append(frozenset(sources))

    def build(self) -> Topology:
        """Write all operators into a new topology."""
        self._merge_duplicate_sources()
        self._keep_null_keys_for_relaxed_joins()
        topology = Topology()
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
                found = [child.relaxed_null_key or needs_null_keys(child) for child in node.children]
                relaxed[node] = any(found)
            return relaxed[node]

        needs_null_keys(self.root)
        for node, needed in relaxed.items():
            if isinstance(node, RepartitionGraphNode):
                node.keep_null_keys = needed


class _Queue:
    """Nodes by build priority."""

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
