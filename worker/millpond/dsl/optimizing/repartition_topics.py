"""The rewrite `merge.repartition.topics`: one topic below an operator that changes keys, for all that need one.

It has the names, internal topics and description of Kafka Streams. Where Kafka Streams would move a topic above an
operator that may change keys or values, or to where not all of its records pass, the topic stays as it is
(docs/differences.md).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from millpond.dsl.graph import Graph, GraphNode, RepartitionGraphNode
from millpond.serdes import Serde

__all__ = ("merge_repartition_topics",)


def merge_repartition_topics(graph: Graph) -> None:
    """Replace the repartition topics below each operator that changes keys by one topic directly below it."""
    for above, topics in _topics_to_merge(graph.nodes).items():
        moved, others = _sound(above, topics)
        graph.unmerged += [topic.topic for topic in topics if topic not in moved]
        if not moved:
            continue
        key = next((topic.key for topic in moved if topic.key is not None), None)
        value = next((value for topic in moved if (value := _value_above(topic, above)) is not None), above.value)
        merged = RepartitionGraphNode(graph, next(iter(moved)).topic, key, value, named=True)
        merged.priority = above.priority
        for topic, child in moved.items():
            merged.adopt(child)
            if child in above.children:
                above.disown(child)
            for parent in list(topic.parents):
                for each in list(topic.children):
                    parent.adopt(each)
                parent.disown(topic)
            for each in list(topic.children):
                topic.disown(each)
            graph.replace_source(topic.name, merged.name)
        above.adopt(merged)
        if others:
            graph.copartition({merged.name, *others})


def _sound(
    above: GraphNode, topics: Iterable[RepartitionGraphNode]
) -> tuple[dict[RepartitionGraphNode, GraphNode], set[str]]:
    """Return the topics that can move to below an operator, and the other sources of their records.

    Records that reach a topic without passing one of the operator's children that move must have the keys of their
    source, since they are not repartitioned any more.

    Returns:
        the topics, each with the child above it, and the names of the sources.
    """
    moved = {topic: _child_above(topic, above) for topic in topics}
    while moved:
        children, others = set(moved.values()), set[str]()
        unsound = [topic for topic in moved if not _keeps_keys(topic, above, children, others)]
        if not unsound:
            return moved, others
        for topic in unsound:
            del moved[topic]
    return {}, set()


def _keeps_keys(topic: GraphNode, above: GraphNode, children: set[GraphNode], others: set[str]) -> bool:
    """Return whether no operator changes keys on the other ways to a topic; add the sources of these to `others`."""
    pending, seen = [topic], {topic}
    while pending:
        node = pending.pop()
        for parent in node.parents:
            if node in children and parent is above:
                continue
            if parent.rekeys or node.rekeys:
                return False
            if isinstance(parent, RepartitionGraphNode) or not parent.parents:
                others.add(parent.name if parent.parents else node.name)
            elif parent not in seen:
                seen.add(parent)
                pending.append(parent)
    return True


def _value_above(topic: RepartitionGraphNode, above: GraphNode) -> Serde[Any] | None:
    """Return the serde of a topic's values, unless it is that of a join that the topic moves above."""
    pending, seen = list(topic.parents), {above}
    while pending:
        node = pending.pop()
        if node in seen:
            continue
        if node.joins_globally and node.value is topic.value:
            return None
        seen.add(node)
        pending += node.parents
    return topic.value


def _topics_to_merge(nodes: Iterable[GraphNode]) -> dict[GraphNode, list[RepartitionGraphNode]]:
    """Return the optimizable topics below each operator that changes keys, or below each merge of such operators."""
    found: dict[GraphNode, list[RepartitionGraphNode]] = {}
    merges: list[GraphNode] = []
    for node in nodes:
        if node.key_changing:
            found[node] = []
        elif isinstance(node, RepartitionGraphNode):
            above = _key_changing_parent(node) if node.optimizable else None
            if above is not None:
                found[above].append(node)
        elif node.is_merge:
            merges.append(node)
    claimed: dict[GraphNode, list[RepartitionGraphNode]] = {}
    taken: set[GraphNode] = set()
    for merge in reversed(merges):  # the lowest merge first: above it, records of other streams would be missing
        changers = [
            above
            for above, topics in found.items()
            if above not in taken and all(_is_below(topic, merge) for topic in topics) and _is_below(merge, above)
        ]
        claimed[merge] = [topic for above in changers for topic in found[above]]
        taken.update(changers)
    for merge in merges:
        found[merge] = claimed[merge]
    return {above: topics for above, topics in found.items() if topics and above not in taken}


def _key_changing_parent(topic: GraphNode) -> GraphNode | None:
    """Return the nearest operator above that changes keys; None if one below it changes values."""
    nearest = _search(topic, lambda node: node.key_changing or node.value_changing)
    return nearest if nearest is not None and nearest is _search(topic, lambda node: node.key_changing) else None


def _child_above(topic: GraphNode, above: GraphNode) -> GraphNode:
    child = _search(topic, lambda node: above in node.parents)
    assert child is not None, f"'{topic.name}' is not below '{above.name}'"
    return child


def _is_below(node: GraphNode, above: GraphNode) -> bool:
    return _search(node, lambda each: above in each.parents) is not None


def _search(start: GraphNode, matches: Callable[[GraphNode], bool]) -> GraphNode | None:
    """Return a node that matches: this one, or one above it, in the order in which Kafka Streams searches."""
    known: dict[GraphNode, GraphNode | None] = {}

    def above(node: GraphNode) -> GraphNode | None:
        if node in known:
            return known[node]
        found = node if matches(node) else None
        if found is None:
            for parent in node.parents:
                if matches(parent):
                    found = parent
                    break
                found = above(parent)
        known[node] = found
        return found

    return above(start)
