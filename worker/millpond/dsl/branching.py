"""The branches of `KStream.split()` (KIP-418): each record goes to at most one of them."""

# ruff: noqa: SLF001 - this is a part of KStream, in a module of its own

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Generic, TypeVar

from millpond.calls import checked
from millpond.checks import check_function
from millpond.dsl.operators.branching import Branch
from millpond.dsl.operators.conversion import PassThrough
from millpond.errors import TopologyError
from millpond.topology.naming import validate_name

from .graph import OperatorNode

if TYPE_CHECKING:
    from .kstream import KStream

__all__ = ("BranchedKStream",)

K = TypeVar("K")
V = TypeVar("V")


@checked
class BranchedKStream(Generic[K, V]):
    """The branches of a split. Each record goes to the first branch whose predicate is true (KIP-418).

    The name of a branch is the split's name followed by its own: `name=`, or its number, counted from 1; the default
    branch has the number 0.
    """

    def __init__(self, source: KStream[K, V], name: str | None) -> None:
        self._source = source
        graph = source._graph
        self._name = graph.name_or(name, "KSTREAM-BRANCH-")
        self._branches: list[tuple[Callable[[K, V], object], str]] = []
        self._default: str | None = None
        self._streams: dict[str, KStream[K, V]] = {}
        self._done = False
        self._node = OperatorNode(self._name, lambda: Branch(tuple(self._branches), self._default))
        graph.add(self._node, source._node)

    def branch(
        self,
        predicate: Callable[[K, V], object],
        *,
        name: str | None = None,
        chain: Callable[[KStream[K, V]], KStream[K, V] | None] | None = None,
    ) -> BranchedKStream[K, V]:
        """Add a branch for the records for which `predicate(key, value)` is true.

        Args:
            predicate: f(key, value) -> whether a record goes to this branch.
            name: the end of the branch's name, in the result of `default_branch` and in the topology.
            chain: called with the branch; the stream that it returns replaces the branch in the result, and with None
                the branch is missing from the result.

        Raises:
            TopologyError: two branches have the same name, or the split already has its default branch.

        Example:
            >>> branched = lines.split().branch(
            ...     lambda key, line: "error" in line, chain=lambda errors: errors.to("errors")
            ... )
        """
        check_function("branch()", predicate, "key", "value")
        child = self._add(str(len(self._branches) + 1) if name is None else name, chain)
        self._branches.append((predicate, child))
        return self

    def default_branch(
        self,
        *,
        name: str | None = None,
        chain: Callable[[KStream[K, V]], KStream[K, V] | None] | None = None,
    ) -> dict[str, KStream[K, V]]:
        """Add a branch for all other records, and return all branches by name. See `branch`.

        Example:
            >>> branched = lines.split().branch(lambda key, line: len(line) > 80, chain=lambda long: long.to("long"))
            >>> sorted(branched.default_branch(chain=lambda rest: rest.to("rest")))
            []
        """
        self._default = self._add("0" if name is None else name, chain)
        self._done = True
        return self._streams

    def no_default_branch(self) -> dict[str, KStream[K, V]]:
        """Drop all other records, and return the branches by name.

        Example:
            >>> branched = lines.split(name="is-").branch(lambda key, line: "error" in line, name="error")
            >>> sorted(branched.no_default_branch())
            ['is-error']
        """
        self._done = True
        return self._streams

    def _add(self, name: str, chain: Callable[[KStream[K, V]], KStream[K, V] | None] | None) -> str:
        if chain is not None:
            check_function("branch()'s chain", chain, "stream")
        if self._done:
            raise TopologyError(f"Split '{self._name}' is complete; add branches before its default branch.")
        graph, source = self._source._graph, self._source
        child = validate_name(f"{self._name}{name}")
        if child in self._streams or any(child == taken for _, taken in self._branches):
            raise TopologyError(f"Split '{self._name}' has two branches called '{name}'; rename one of the two.")
        graph.generate(child)
        node = OperatorNode(child, PassThrough)
        graph.add(node, self._node)
        stream = source._below(node, source._key, source._value)
        result = stream if chain is None else chain(stream)
        if result is not None:
            self._streams[child] = result
        return child
