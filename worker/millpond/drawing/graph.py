"""What a picture shows, as plain data: from a topology in this process, or from one that a worker reported."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass

import msgspec

from millpond.protocol.overview import TopologyOverview
from millpond.topology import Node, ProcessorNode, SinkNode, SourceNode, Topology

__all__ = ("DrawnGraph", "DrawnNode", "DrawnPart", "digest", "graph_of", "graph_of_overview")


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
            "Global store, complete on every worker",
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
    named = {node.name: node for node in overview.nodes}
    topics = {name: node.label for name, node in named.items() if node.kind == "topic"}
    stores = {name: node.label for name, node in named.items() if node.kind == "store"}
    reads: dict[str, list[str]] = defaultdict(list)
    writes: dict[str, list[str]] = defaultdict(list)
    parents: dict[str, list[str]] = defaultdict(list)
    uses: dict[str, list[str]] = defaultdict(list)
    inner = {name: node for name, node in named.items() if name not in topics and name not in stores}
    for edge in overview.edges:
        source, target = edge.source, edge.target
        if source in topics and target in inner:
            reads[target].append(topics[source])
        elif source in inner and target in topics:
            writes[source].append(topics[target])
        elif source in inner and target in stores:
            uses[source].append(stores[target])
        elif source in inner and target in inner and inner[source].subtopology == inner[target].subtopology:
            parents[target].append(source)
    parts: dict[int, list[DrawnNode]] = defaultdict(list)
    for name, node in inner.items():
        kind = "source" if name in reads else "sink" if name in writes else "processor"
        parts[node.subtopology or 0].append(
            DrawnNode(
                name,
                kind,
                () if kind == "source" else _once(parents[name]),
                _once(uses[name]),
                _once(reads[name] if kind == "source" else writes[name]),
            )
        )
    drawn = []
    for id, nodes in sorted(parts.items()):
        if any(node.topics for node in nodes):  # a part without topics cannot be placed, and no topology has one
            own = tuple(node.label for node in named.values() if node.kind == "store" and node.subtopology == id)
            is_global = subtopologies is not None and id not in subtopologies
            heading = "Global store, complete on every worker" if is_global else f"Sub-topology {id}"
            drawn.append(DrawnPart(id, heading, tuple(nodes), own))
    return DrawnGraph(tuple(drawn), frozenset(each for each in topics.values() if each.endswith("-repartition")))


def _once(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(names))


def digest(overview: TopologyOverview) -> str:
    """Return a short digest of a reported topology without its figures: equal ones have the same picture."""
    edges = [(edge.source, edge.target) for edge in overview.edges]
    return hashlib.sha256(msgspec.json.encode((overview.nodes, edges))).hexdigest()[:16]
