"""Connected components of nodes, in the order in which their first nodes were added."""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ("Groups",)


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
