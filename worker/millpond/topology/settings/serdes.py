"""Finds the steps of a topology that lack a serde, before anything runs.

A serde may come from the configuration, so this is known as soon as topology and configuration meet: when a worker or a
test driver is made.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from millpond.errors import TopologyError
from millpond.topology.nodes import Node, ProcessorNode, SinkNode, SourceNode
from millpond.topology.topology import Topology

__all__ = ("check_serdes",)

_SHOWN = 3
_COUNTING = ("CountStream", "CountWindows", "CountSessions")


def check_serdes(topology: Topology, default_key: object, default_value: object) -> None:
    """Check that each step of a topology has its serdes.

    Args:
        topology: the topology.
        default_key: the value of `default.key.serde`; None without one.
        default_value: the value of `default.value.serde`; None without one.

    Raises:
        TopologyError: a step has no serde, and there is no default. The message names the steps and their topics.
    """
    missing = [
        (step, part, cure)
        for step, key, value, cure in _steps(topology)
        for part, serde, default in (("key", key, default_key), ("value", value, default_value))
        if serde is None and default is None
    ]
    if not missing:
        return
    step, part, cure = missing[0]
    others = [f"{other} (its {name})" for other, name, _ in missing[1 : _SHOWN + 1]]
    if len(missing) > _SHOWN + 1:
        others.append(f"{len(missing) - _SHOWN - 1} more")
    also = f" Others without one: {', '.join(others)}." if others else ""
    raise TopologyError(
        f"{step} has no {part} serde: {cure.format(part)}, or set 'default.{part}.serde' in the configuration.{also}"
    )


def _steps(topology: Topology) -> Iterator[tuple[str, Any, Any, str]]:
    """Yield each step with its key serde, its value serde, and the cure if one of them is missing."""
    nodes, internal = topology.nodes, topology.repartition_topics
    sinks = [node for node in nodes.values() if isinstance(node, SinkNode)]
    everywhere = {each.source.name for each in topology.global_stores}
    for node in nodes.values():
        if isinstance(node, SourceNode) and node.name not in everywhere and internal.keys().isdisjoint(node.topics):
            yield _source(node, "table" if node.table else "stream")
    for each in topology.global_stores:
        yield _source(each.source, "global_table")
    for sink in sinks:
        if sink.topic in internal:
            step = f"the repartition topic '{sink.topic}' of topic {_inputs(sink, nodes)}"
            yield step, sink.key, sink.value, "give {0}=… to the step that changes the key, such as group_by()"
    builders = [*topology.stores.values(), *(each.store for each in topology.global_stores)]
    yield from (_store(each, nodes) for each in builders if hasattr(each, "key") and hasattr(each, "value"))
    for sink in sinks:
        if not isinstance(sink.topic, str):
            yield f"to() of sink '{sink.name}'", sink.key, sink.value, "give {0}=… to it"
        elif sink.topic not in internal:
            step = f"to('{sink.topic}')"
            yield step, sink.key, sink.value, f"write to('{sink.topic}', {{0}}=…), such as {{0}}=mp.String"


def _source(node: SourceNode, operator: str) -> tuple[str, Any, Any, str]:
    topics = node.pattern.pattern if node.pattern is not None else "', '".join(node.topics)
    call = f"{operator}('{topics}'"
    return f"{call})", node.key, node.value, f"write {call}, {{0}}=…), such as {{0}}=mp.String"


def _store(builder: Any, nodes: Any) -> tuple[str, Any, Any, str]:
    users = [node for node in nodes.values() if isinstance(node, ProcessorNode) and builder.name in node.stores]
    step, cure = f"the store '{builder.name}'", "give {0}=… to it, or to the step above it"
    if users:
        body = users[0].body
        name = type(body).__name__
        what = f"step '{users[0].name}'"
        if name in _COUNTING or getattr(body, "counting", False):
            what = "count()"
        elif name.startswith("Reduce"):
            what = "reduce()"
        elif name.startswith("Aggregate") and name != "AggregateTable":  # a table's count() is one, too
            what = "aggregate()"
        elif name == "JoinTableWithGrace":  # the store has what waits for the join, whose value= is for its result
            cure = "give {0}=… to the step above the join"
        step = f"{what} of topic {_inputs(users[0], nodes)} (store '{builder.name}')"
    value = builder.value if getattr(builder, "right", builder.value) is not None else None
    return step, builder.key, value, cure


def _inputs(node: Node, nodes: Any) -> str:
    """Return the names of the topics above a node."""
    writers: dict[str, list[str]] = {}
    for each in nodes.values():
        if isinstance(each, SinkNode) and isinstance(each.topic, str):
            writers.setdefault(each.topic, []).append(each.name)
    found: dict[str, None] = {}
    above = [node.name]
    seen = set(above)
    while above:
        each = nodes[above.pop()]
        if isinstance(each, SourceNode):
            if not any(topic in writers for topic in each.topics):
                found.update(dict.fromkeys(each.topics or (each.pattern.pattern if each.pattern else "",)))
            parents = tuple(name for topic in each.topics for name in writers.get(topic, ()))
        else:
            parents = each.parents
        above += [name for name in parents if name not in seen]
        seen.update(parents)
    return ", ".join(f"'{topic}'" for topic in found)
