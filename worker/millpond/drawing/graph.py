"""What a picture shows, as plain data: from a topology in this process, or from one that a worker reported."""

from __future__ import annotations

import hashlib
import re
from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass

import msgspec

from millpond.protocol.overview import TopologyOverview
from millpond.topology import Node, ProcessorNode, SinkNode, SourceNode, Topology, is_repartition_topic

__all__ = ("DrawnGraph", "DrawnNode", "DrawnPart", "digest", "graph_of", "graph_of_overview")

_GLOBAL = "Global store, complete on every worker"
#: XML has no way to write these characters.
_UNWRITABLE = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


@dataclass(frozen=True)
class DrawnNode:
    """A node of a sub-topology."""

    name: str
    kind: str
    """`source`, `processor` or `sink`."""
    parents: tuple[str, ...] = ()
    stores: tuple[str, ...] = ()
    """The stores that it uses."""
    topics: tuple[str, ...] = ()
    """The topics that a source reads, or that a sink writes."""


@dataclass(frozen=True)
class DrawnPart:
    """A sub-topology, or a global store with the nodes that fill it."""

    id: int
    heading: str
    nodes: tuple[DrawnNode, ...]
    stores: tuple[str, ...] = ()


@dataclass(frozen=True)
class DrawnGraph:
    """A whole topology."""

    parts: tuple[DrawnPart, ...]
    internal: frozenset[str] = frozenset()
    """The topics that only the application itself uses."""


def graph_of(topology: Topology) -> DrawnGraph:
    """Return what a picture of a topology shows."""
    parts = [
        DrawnPart(
            part.id,
            f"Sub-topology {part.id}",
            tuple(_node(node) for nodes in (part.sources, part.processors, part.sinks) for node in nodes),
            tuple(store.name for store in part.stores),
        )
        for part in topology.subtopologies()
    ]
    parts += [
        DrawnPart(
            table.id,
            _GLOBAL,
            (_node(table.source), _node(table.processor)),
            (table.store.name,),
        )
        for table in topology.global_stores
    ]
    return DrawnGraph(tuple(parts), frozenset(topology.repartition_topics))


def _node(node: Node) -> DrawnNode:
    if isinstance(node, SourceNode):
        topics = node.topics or ((node.pattern.pattern if node.pattern else ""),)
        return DrawnNode(node.name, "source", topics=topics)
    if isinstance(node, SinkNode):
        topic = node.topic if isinstance(node.topic, str) else "chosen per record"
        return DrawnNode(node.name, "sink", node.parents, topics=(topic,))
    assert isinstance(node, ProcessorNode)
    return DrawnNode(node.name, "processor", node.parents, node.stores)


def graph_of_overview(overview: TopologyOverview, subtopologies: Collection[int] | None = None) -> DrawnGraph:
    """Return what a picture of a reported topology shows.

    Whatever a worker reports can be drawn: an edge whose ends do not exist is left out.

    Args:
        overview: the topology, as workers report it.
        subtopologies: the numbers of the sub-topologies, if they are known; other parts are global stores.
    """
    reported = _Reported(overview)
    drawn, tables = [], []
    for id, nodes in sorted(reported.parts().items()):
        if not any(node.topics for node in nodes):  # it cannot be placed, and no topology has such a part
            continue
        stores = tuple(name for name, part in reported.stores.values() if part == id)
        if subtopologies is None or id in subtopologies:
            drawn.append(DrawnPart(id, f"Sub-topology {id}", nodes, stores))
        else:
            tables.append(DrawnPart(id, _GLOBAL, nodes, stores))
    internal = frozenset(filter(is_repartition_topic, reported.topics.values()))
    return DrawnGraph((*drawn, *tables), internal)


class _Reported:
    """The nodes of a reported topology by kind, and the ends of its edges."""

    def __init__(self, overview: TopologyOverview) -> None:
        self.topics: dict[str, str] = {}
        self.stores: dict[str, tuple[str, int]] = {}
        self._nodes: dict[str, int] = {}
        for node in {node.name: node for node in overview.nodes}.values():
            name, part = _written(node.name), node.subtopology or 0
            if node.kind == "topic":
                self.topics[name] = _written(node.label)
            elif node.kind == "store":
                self.stores[name] = _written(node.label), part
            else:
                self._nodes[name] = part
        self._sources: dict[str, list[str]] = defaultdict(list)
        self._targets: dict[str, list[str]] = defaultdict(list)
        for edge in overview.edges:
            source, target = _written(edge.source), _written(edge.target)
            self._sources[target].append(source)
            self._targets[source].append(target)

    def parts(self) -> dict[int, tuple[DrawnNode, ...]]:
        """Return the nodes by sub-topology."""
        found: dict[int, list[DrawnNode]] = defaultdict(list)
        for name, part in self._nodes.items():
            found[part].append(self._node(name, part))
        return {part: tuple(nodes) for part, nodes in found.items()}

    def _node(self, name: str, part: int) -> DrawnNode:
        sources, targets = self._sources[name], self._targets[name]
        reads = _once(self.topics[each] for each in sources if each in self.topics)
        writes = _once(self.topics[each] for each in targets if each in self.topics)
        stores = _once(self.stores[each][0] for each in targets if each in self.stores)
        if reads:
            return DrawnNode(name, "source", (), stores, reads)
        parents = _once(each for each in sources if self._nodes.get(each) == part)
        return DrawnNode(name, "sink" if writes else "processor", parents, stores, writes)


def _written(name: str) -> str:
    return _UNWRITABLE.sub("\ufffd", name)


def _once(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(names))


def digest(overview: TopologyOverview) -> str:
    """Return a short digest of a reported topology without its figures: equal ones have the same picture."""
    edges = [(edge.source, edge.target) for edge in overview.edges]
    return hashlib.sha256(msgspec.json.encode((overview.nodes, edges))).hexdigest()[:16]
