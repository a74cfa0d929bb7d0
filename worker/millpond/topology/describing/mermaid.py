"""A topology as a Mermaid flowchart, for documentation and for `millpond topology`."""

from __future__ import annotations

import base64
import importlib
from collections.abc import Iterable, Mapping
from typing import Any

from millpond.topology.nodes import GlobalStore, ProcessorNode, RepartitionTopic, Subtopology

__all__ = ("mermaid", "picture_of")


def mermaid(  # noqa: C901 - one loop per kind of node
    subtopologies: Iterable[Subtopology],
    global_stores: Iterable[GlobalStore],
    repartition_topics: Mapping[str, RepartitionTopic],
) -> str:
    """Return the text of a flowchart: sub-topologies as boxes, topics as stadiums, stores as cylinders."""
    drawing = _Drawing(repartition_topics)
    for part in subtopologies:
        drawing.open(f"Sub-topology {part.id}")
        for source in part.sources:
            drawing.node(source.name)
        for processor in part.processors:
            drawing.processor(processor)
        for sink in part.sinks:
            drawing.node(sink.name)
        for store in part.stores:
            drawing.store(store.name)
        drawing.close()
        for source in part.sources:
            for topic in source.topics or ((source.pattern.pattern if source.pattern else ""),):
                drawing.edge(drawing.topic(topic), source.name)
        for sink in part.sinks:
            for parent in sink.parents:
                drawing.edge(parent, sink.name)
            target = sink.topic if isinstance(sink.topic, str) else f"chosen per record by {sink.name}"
            drawing.edge(sink.name, drawing.topic(target))
    for table in global_stores:
        drawing.open(f"Global store {table.store.name}")
        drawing.node(table.source.name)
        drawing.processor(table.processor)
        drawing.store(table.store.name)
        drawing.close()
        drawing.edge(drawing.topic(table.source.topics[0]), table.source.name)
    return drawing.text()


def picture_of(topology: object) -> dict[str, str]:
    """Return a topology as a picture for notebooks, by its kind of content; nothing for a graph that is too large."""
    # The picture's layer is above this one, and is needed in notebooks only.
    drawing: Any = importlib.import_module("millpond.drawing")
    graph = drawing.graph_of(topology)
    if drawing.places(graph) > drawing.MOST_PLACES:
        return {}
    # As an image, since the styles of a picture would apply to the whole page.
    picture = base64.b64encode(drawing.svg(graph, "topology").encode()).decode()
    return {"text/html": f'<img alt="The topology" src="data:image/svg+xml;base64,{picture}">'}


class _Drawing:
    def __init__(self, internal: Mapping[str, RepartitionTopic]) -> None:
        self._internal = internal
        self._parts: list[str] = []
        self._topics: dict[str, str] = {}
        self._edges: list[str] = []
        self._boxes = 0

    def open(self, title: str) -> None:
        self._parts.append(f'  subgraph box{self._boxes}["{title}"]')
        self._boxes += 1

    def close(self) -> None:
        self._parts.append("  end")

    def node(self, name: str) -> None:
        self._parts.append(f'    {_id(name)}["{name}"]')

    def processor(self, processor: ProcessorNode) -> None:
        self.node(processor.name)
        for parent in processor.parents:
            self.edge(parent, processor.name)
        self._edges += [f"  {_id(processor.name)} --- {_id('store ' + store)}" for store in processor.stores]

    def store(self, name: str) -> None:
        self._parts.append(f'    {_id("store " + name)}[("{name}")]')

    def topic(self, name: str) -> str:
        key = f"topic {name}"
        label = name.replace('"', "'")
        self._topics.setdefault(key, f'  {_id(key)}(["{label}"]){":::internal" if name in self._internal else ""}')
        return key

    def edge(self, start: str, end: str) -> None:
        self._edges.append(f"  {_id(start)} --> {_id(end)}")

    def text(self) -> str:
        lines = ["flowchart TD", *self._topics.values(), *self._parts, *self._edges]
        return "\n".join([*lines, "  classDef internal stroke-dasharray: 5 5", ""])


def _id(name: str) -> str:
    # In ids, Mermaid reads dashes as edges and words such as "end" as keywords; other characters need an escape.
    return "n_" + "".join(char if char.isascii() and char.isalnum() else f"_{ord(char):x}_" for char in name)
