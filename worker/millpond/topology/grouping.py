"""Which nodes belong together: connected components, numbered in the order their first node was added."""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ("Groups",)


class Groups:
    """Disjoint sets of names, in order of first appearance.

    Nodes are united with their parents and with the other users of their stores; a repartition topic unites
    nothing, so it cuts.
    """

    def __init__(self) -> None:
        self._parent: dict[str, str] = {}

    def add(self, name: str) -> None:
        """A new set with one member."""
        self._parent[name] = name

    def unite(self, name: str, others: Iterable[str]) -> None:
        """Make one set of those that `name` and `others` are in."""
        for other in others:
            self._parent[self._root(other)] = self._root(name)

    def _root(self, name: str) -> str:
        parent = self._parent
        while parent[name] != name:
            parent[name] = parent[parent[name]]
            name = parent[name]
        return name

    def together(self) -> list[list[str]]:
        """All sets; members, and sets by their first member, in the order they were added."""
        groups: dict[str, list[str]] = {}
        for name in self._parent:
            groups.setdefault(self._root(name), []).append(name)
        return list(groups.values())
