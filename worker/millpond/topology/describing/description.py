"""`Topology.describe()`: the text of Kafka Streams, byte for byte.

Tools draw it, tests compare it, and people diff it before an upgrade: the text is an interface.
"""

from __future__ import annotations

from dataclasses import dataclass

from millpond.topology.nodes import GlobalStore, Node, ProcessorNode, SourceNode, TopicNameExtractor

from .java_order import TreeSet, hash_order

__all__ = ("GlobalStoreDescription", "NodeDescription", "SubtopologyDescription", "TopologyDescription")


class NodeDescription:
    """A node with its neighbours.

    Attributes:
        node: the node itself.
        predecessors: its parents within the sub-topology.
        successors: its children within the sub-topology.
        size: 1 and the sizes of its successors; nodes are ordered by it.
    """

    def __init__(self, node: Node) -> None:
        self.node = node
        self.predecessors: TreeSet[NodeDescription] = TreeSet(_compare)
        self.successors: TreeSet[NodeDescription] = TreeSet(_compare)
        self.size: int = 1

    @property
    def name(self) -> str:
        """The node's name."""
        return self.node.name

    def _grow(self, delta: int) -> None:
        self.size += delta
        for predecessor in self.predecessors:
            predecessor._grow(delta)  # noqa: SLF001 - of the same class

    def follow(self, predecessor: NodeDescription) -> None:
        """Put this node below `predecessor`."""
        self.predecessors.add(predecessor)
        predecessor.successors.add(self)
        predecessor._grow(self.size)

    def __str__(self) -> str:
        node = self.node
        if isinstance(node, SourceNode):
            read = node.pattern.pattern if node.pattern is not None else _set(hash_order(node.topics, copied=True))
            return f"Source: {self.name} (topics: {read})\n      --> {_names(self.successors)}"
        if isinstance(node, ProcessorNode):
            stores = hash_order(hash_order(node.stores), copied=True)
            return (
                f"Processor: {self.name} (stores: {_set(stores)})\n      --> {_names(self.successors)}\n"
                f"      <-- {_names(self.predecessors)}"
            )
        where = f"topic: {node.topic}" if isinstance(node.topic, str) else f"extractor class: {_function(node.topic)}"
        return f"Sink: {self.name} ({where})\n      <-- {_names(self.predecessors)}"


def _compare(one: NodeDescription, other: NodeDescription) -> int:
    if one is other:
        return 0
    if one.size != other.size:
        return other.size - one.size
    return -1 if one.name < other.name else 1


def _names(nodes: TreeSet[NodeDescription]) -> str:
    return ", ".join(node.name for node in nodes) or "none"


def _set(items: list[str]) -> str:
    return f"[{', '.join(items)}]"


def _function(extractor: TopicNameExtractor) -> str:
    return getattr(extractor, "__qualname__", None) or repr(extractor)


class SubtopologyDescription:
    """One sub-topology: its id and its nodes, largest `size` first."""

    def __init__(self, id: int, nodes: list[Node]) -> None:
        self.id = id
        by_name = {node.name: NodeDescription(node) for node in nodes}
        # The order matters: a neighbour's place depends on the sizes when it is added. Java uses hash order.
        for name in hash_order(by_name):
            description = by_name[name]
            for parent in _parents(description.node):
                description.follow(by_name[parent])
        self.nodes: list[NodeDescription] = sorted(by_name.values(), key=lambda node: (-node.size, node.name))

    def __str__(self) -> str:
        lines = "".join(f"    {node}\n" for node in self.nodes)
        return f"Sub-topology: {self.id}\n{lines}\n"


class GlobalStoreDescription:
    """A global store: its source, and the processor that fills it."""

    def __init__(self, store: GlobalStore) -> None:
        self.id: int = store.id
        self.source: NodeDescription = NodeDescription(store.source)
        self.processor: NodeDescription = NodeDescription(store.processor)
        self.processor.follow(self.source)

    def __str__(self) -> str:
        return (
            f"Sub-topology: {self.id} for global store (will not generate tasks)\n"
            f"    {self.source}\n    {self.processor}\n"
        )


@dataclass(frozen=True)
class TopologyDescription:
    """The sub-topologies and global stores of a topology; `str()` returns Kafka Streams' text."""

    subtopologies: tuple[SubtopologyDescription, ...]
    global_stores: tuple[GlobalStoreDescription, ...]

    def __str__(self) -> str:
        parts: list[SubtopologyDescription | GlobalStoreDescription] = [*self.subtopologies, *self.global_stores]
        return "Topologies:\n " + "".join(f"  {part}" for part in sorted(parts, key=lambda part: part.id))


def _parents(node: Node) -> tuple[str, ...]:
    return () if isinstance(node, SourceNode) else node.parents
