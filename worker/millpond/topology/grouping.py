"""Connected components of nodes, in the order in which their first nodes were added, and groups of topics."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from millpond.errors import TopologyError

from .nodes import RepartitionTopic

__all__ = ("Groups", "check_partition_counts")


class Groups:
    """Disjoint sets of names, in order of first appearance.

    A node is united with its parents and with the other users of its stores. Topics unite nothing, so a repartition
    topic separates sub-topologies.
    """

    def __init__(self) -> None:
        self._parent: dict[str, str] = {}

    def add(self, name: str) -> None:
        """Add a set with one member."""
        self._parent[name] = name

    def unite(self, name: str, others: Iterable[str]) -> None:
        """Merge the sets of `name` and `others`."""
        for other in others:
            self._parent[self._root(other)] = self._root(name)

    def _root(self, name: str) -> str:
        parent = self._parent
        while parent[name] != name:
            parent[name] = parent[parent[name]]
            name = parent[name]
        return name

    def together(self) -> list[list[str]]:
        """Return all sets in the order in which their first members were added, and members in their order."""
        groups: dict[str, list[str]] = {}
        for name in self._parent:
            groups.setdefault(self._root(name), []).append(name)
        return list(groups.values())


def check_partition_counts(
    groups: Iterable[frozenset[str]], repartition_topics: Mapping[str, RepartitionTopic]
) -> None:
    """Check that topics that need the same number of partitions are not given different ones.

    Raises:
        TopologyError: repartition topics of a group have different numbers.
    """
    for group in groups:
        counts = {
            topic: declared.partitions
            for topic in sorted(group)
            if (declared := repartition_topics.get(topic)) is not None and declared.partitions is not None
        }
        if len(set(counts.values())) > 1:
            listed = ", ".join(f"'{topic}' {count}" for topic, count in counts.items())
            raise TopologyError(
                f"Topics that are joined or merged by key need equal partition counts, but these differ: {listed}; "
                "give their repartition(partitions=…) the same number."
            )
