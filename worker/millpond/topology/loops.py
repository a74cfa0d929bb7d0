"""Topics whose records come back to them: a topology that writes to a topic what it has read from that topic."""

from __future__ import annotations

from collections import defaultdict

from .nodes import SinkNode, SourceNode
from .topology import Topology

__all__ = ("looping_topics",)


def looping_topics(topology: Topology) -> list[str]:
    """Return the topics that a topology writes to with records that it has made of the same topic's records.

    Topics that are chosen per record, and repartition topics, are not among them. A topic that is written from others
    and then read, as `through()` did in Kafka Streams, is none either.
    """
    children: dict[str, list[str]] = defaultdict(list)
    sources: list[SourceNode] = []
    sinks: list[SinkNode] = []
    for each in topology.subtopologies():
        sources += each.sources
        sinks += each.sinks
        for name, parents in [(node.name, node.parents) for node in each.processors] + [
            (sink.name, sink.parents) for sink in each.sinks
        ]:
            for parent in parents:
                children[parent].append(name)
    readers = {sink.name: [each.name for each in sources if _reads(each, sink.topic)] for sink in sinks}
    for sink_name, names in readers.items():
        children[sink_name] += names
    own = topology.repartition_topics
    return sorted(
        {
            sink.topic
            for sink in sinks
            if isinstance(sink.topic, str) and sink.topic not in own and _leads_to(sink.name, children)
        }
    )


def _reads(source: SourceNode, topic: object) -> bool:
    if not isinstance(topic, str):
        return False
    return topic in source.topics or (source.pattern is not None and source.pattern.fullmatch(topic) is not None)


def _leads_to(start: str, children: dict[str, list[str]]) -> bool:
    """Return whether a record at a node can lead to another record at the same node."""
    seen: set[str] = set()
    ahead = list(children[start])
    while ahead:
        name = ahead.pop()
        if name == start:
            return True
        if name not in seen:
            seen.add(name)
            ahead += children.get(name, ())
    return False
