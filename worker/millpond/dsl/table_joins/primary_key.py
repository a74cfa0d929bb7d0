"""The logic and the nodes of a join of two tables with the same keys."""

# ruff: noqa: SLF001 - this is a part of KTable, in a module of its own

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from millpond.dsl.functions import check_join_keys, check_same_builder, check_value_function
from millpond.dsl.graph import GraphNode
from millpond.dsl.materialized import Storage
from millpond.dsl.operators.table_joins.primary_key import (
    JoinedLookup,
    JoinKind,
    JoinTables,
    MergeJoined,
    StoreJoined,
)
from millpond.dsl.tables import Parent, View, stored_view
from millpond.topology import Body, Topology

if TYPE_CHECKING:
    from millpond.dsl.ktable import KTable

__all__ = ("join_tables",)


def join_tables(  # noqa: PLR0913 - the arguments of join()
    left: KTable[Any, Any],
    right: KTable[Any, Any],
    kind: JoinKind,
    combine: Callable[..., Any],
    name: str | None,
    options: Any,
    *,
    with_key: bool,
) -> KTable[Any, Any]:
    """Add a join by the key of both tables, which need the same number of partitions.

    Raises:
        TopologyError: `combine` cannot be called with two values, or the tables come from different StreamsBuilders.
    """
    from millpond.dsl.ktable import KTable

    what = "join()" if kind == "inner" else f"{kind}_join()"
    check_same_builder(f"The two tables of {what}", left, right)
    check_join_keys(what, left._key, right._key)
    check_value_function(what, combine, "value", "other table's value", with_key=with_key)
    graph = left._graph
    storage = Storage.of(options, graph, "KTABLE-MERGE-", left._key) if options else None
    merge = graph.name_or(name, "KTABLE-MERGE-")
    sources = left._sources | right._sources
    graph.copartition(sources)
    if kind != "inner":
        left.send_old_values(materialize=True)
    if kind == "outer":
        right.send_old_values(materialize=True)
    logic = _JoinedTables(left, right, kind, combine, storage, with_key=with_key)
    node = _JoinNode(
        merge,
        graph.name_or(name, "KTABLE-JOINTHIS-", "-join-this"),
        graph.name_or(name, "KTABLE-JOINOTHER-", "-join-other"),
        left._node.name,
        right._node.name,
        logic,
    )
    node.output_versioned = storage is not None and storage.history_ms is not None
    graph.add(node, left._node, right._node)
    key, value = (left._key, None) if storage is None else (storage.key, storage.value)
    return KTable(graph, merge, node, key, value, sources, logic, storage)


class _JoinedTables:
    """The rows of two tables, joined by key. It has a store only if there is an option of one."""

    def __init__(  # noqa: PLR0913 - the arguments of join()
        self,
        left: Parent,
        right: Parent,
        kind: JoinKind,
        combine: Callable[..., Any],
        storage: Storage | None,
        *,
        with_key: bool,
    ) -> None:
        self._left, self._right = left, right
        self._left_view, self._right_view = left.view(), right.view()
        self._kind: JoinKind = kind
        self._combine = combine
        self._with_key = with_key
        self._storage = storage
        self._send_old = False

    def send_old_values(self, *, materialize: bool) -> bool:
        """See `TableLogic`. Both tables have a store, so old values are always known."""
        del materialize
        self._left.send_old_values(materialize=True)
        self._right.send_old_values(materialize=True)
        self._send_old = True
        return True

    def view(self) -> View:
        """See `TableLogic`."""
        if self._storage is not None:
            return stored_view(self._storage)
        left, right = self._left_view, self._right_view
        lookup = JoinedLookup(left.lookup, right.lookup, self._combine, self._with_key, self._kind)
        return View(lookup, tuple(dict.fromkeys((*left.stores, *right.stores))))

    def write(self, topology: Topology, node: _JoinNode) -> None:
        """Add the three nodes, and the store if there is one."""
        this, other = self._left_view, self._right_view
        left = self._side(other, mirrored=False, versioned=node.parents[0].is_versioned)
        right = self._side(this, mirrored=True, versioned=node.parents[-1].is_versioned)
        topology.add_body(node.this, left, (node.left,), table=True)
        topology.add_body(node.other, right, (node.right,), table=True)
        merge: Body = MergeJoined() if self._storage is None else StoreJoined(self._storage.name)
        topology.add_body(node.name, merge, (node.this, node.other), table=True)
        topology.connect(node.this, *other.stores)
        topology.connect(node.other, *this.stores)
        if self._storage is not None:
            topology.add_state_store(self._storage.key_value(), node.name)

    def _side(self, other: View, *, mirrored: bool, versioned: bool) -> Body:
        return JoinTables(other.lookup, self._combine, self._with_key, self._kind, mirrored, self._send_old, versioned)


class _JoinNode(GraphNode):
    """The three nodes of a join; it has the name of the last one, which is the parent of its children."""

    def __init__(  # noqa: PLR0913 - the names of three nodes and their parents
        self, name: str, this: str, other: str, left: str, right: str, logic: _JoinedTables
    ) -> None:
        super().__init__(name)
        self.this = this
        self.other = other
        self.left = left
        self.right = right
        self._logic = logic

    def write(self, topology: Topology) -> None:
        """Add the nodes and the store."""
        self._logic.write(topology, self)
