"""The drawing of a topology, without figures: what a worker sends to its coordinator for people to look at."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from millpond.topology import Node, SinkNode, SourceNode, Topology

from .overview import EdgeOverview, NodeOverview, TopologyOverview

__all__ = ("MAX_NODES", "topology_overview")

MAX_NODES = 1_000
"""A larger topology is not sent: nobody can read its drawing, and every worker would send it."""
_MAX_BYTES = 160 * 1024
"""The same for long names: the coordinator drops drawings above 192 KiB, and rejects heartbeats above 256 KiB plus 384
bytes per task (1 MiB while it does not know the topology)."""


def topology_overview(topology: Topology, real_topic: Callable[[str], str] = str) -> TopologyOverview | None:
    """Return the nodes and edges of a topology; None if it is too large to send.

    Args:
        topology: the topology.
        real_topic: returns the name in Kafka of a topic of the topology.
    """
    drawing = _Drawing(real_topic)
    for part in topology.subtopologies():
        nodes: tuple[Node, ...] = (*part.sources, *part.processors, *part.sinks)
        for node in nodes:
            drawing.add(node, part.id)
        for store in part.stores:
            drawing.store(store.name, part.id)
    for table in topology.global_stores:
        drawing.add(table.source, table.id)
        drawing.add(table.processor, table.id)
        drawing.store(table.store.name, table.id)
    if len(drawing.nodes) > MAX_NODES:
        return None
    found = TopologyOverview(nodes=tuple(drawing.nodes.values()), edges=tuple(drawing.edges))
    return found if len(msgspec.json.encode(found)) <= _MAX_BYTES else None


class _Drawing:
    def __init__(self, real_topic: Callable[[str], str]) -> None:
        self.nodes: dict[str, NodeOverview] = {}
        self.edges: list[EdgeOverview] = []
        self._real_topic = real_topic

    def add(self, node: Node, subtopology: int) -> None:
        """Add a node, and its edges from its parents, and to or from its topics and stores."""
        self._node(NodeOverview(name=node.name, kind="processor", subtopology=subtopology, label=node.name))
        if isinstance(node, SourceNode):
            names = node.topics or ((node.pattern.pattern if node.pattern is not None else ""),)
            for name in names:
                topic = self._topic(name)
                self.edges.append(EdgeOverview(source=f"topic {topic}", target=node.name, topic=topic))
            return
        self.edges += [EdgeOverview(source=parent, target=node.name) for parent in node.parents]
        if isinstance(node, SinkNode):
            topic = self._topic(node.topic if isinstance(node.topic, str) else f"chosen per record by {node.name}")
            self.edges.append(EdgeOverview(source=node.name, target=f"topic {topic}", topic=topic))
        else:
            self.edges += [EdgeOverview(source=node.name, target=f"store {store}") for store in node.stores]

    def store(self, name: str, subtopology: int) -> None:
        self._node(NodeOverview(name=f"store {name}", kind="store", subtopology=subtopology, label=name))

    def _topic(self, name: str) -> str:
        """Add a topic; return its name in Kafka."""
        topic = self._real_topic(name)
        self._node(NodeOverview(name=f"topic {topic}", kind="topic", label=topic))
        return topic

    def _node(self, node: NodeOverview) -> None:
        self.nodes.setdefault(node.name, node)
