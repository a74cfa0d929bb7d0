"""The output topics of tables: a reset leaves rows in them that the replay does not yield any more."""

from __future__ import annotations

from collections.abc import Mapping

from millpond.topology import Node, ProcessorNode, SinkNode, SourceNode, Topology

__all__ = ("table_outputs",)


def table_outputs(topology: Topology) -> list[str]:
    """Return the topics to which the rows of a table are written, sorted, without those that are chosen per record.

    Steps without stores may be between the table and its topic, such as `to_stream()`, `map()` and repartition topics.
    """
    nodes, internal = topology.nodes, topology.repartition_topics.keys()
    writers: dict[str, list[str]] = {}
    sinks = [node for node in nodes.values() if isinstance(node, SinkNode) and isinstance(node.topic, str)]
    for sink in sinks:
        if sink.topic in internal:
            writers.setdefault(str(sink.topic), []).append(sink.name)
    return sorted({str(sink.topic) for sink in sinks if sink.topic not in internal and _has_rows(sink, nodes, writers)})


def _has_rows(sink: SinkNode, nodes: Mapping[str, Node], writers: Mapping[str, list[str]]) -> bool:
    """Return whether a table is above a sink, with only steps without stores in between."""
    above, seen = list(sink.parents), set(sink.parents)
    while above:
        node = nodes[above.pop()]
        if isinstance(node, ProcessorNode) and node.table:
            return True
        if isinstance(node, SourceNode):
            parents = [name for topic in node.topics for name in writers.get(topic, ())]
        elif isinstance(node, ProcessorNode) and node.stores:
            parents = []  # a join or a processor of the user: what comes out of it are no rows of the table
        else:
            parents = list(node.parents)
        above += [name for name in parents if name not in seen]
        seen.update(parents)
    return False
