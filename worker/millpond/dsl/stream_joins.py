"""Stream-table joins: the nodes they add."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from millpond.dsl.graph import OperatorNode
from millpond.dsl.operators.table_join import JoinGlobalTable, JoinTable
from millpond.errors import TopologyError
from millpond.serdes import Serde

if TYPE_CHECKING:
    from millpond.dsl.global_table import GlobalKTable
    from millpond.dsl.kstream import KStream
    from millpond.dsl.ktable import KTable

__all__ = ("join_global_table", "join_table")


def join_table(
    stream: KStream[Any, Any],
    table: KTable[Any, Any],
    combine: Callable[..., Any],
    key: Serde[Any] | None,
    value: Serde[Any] | None,
    name: str | None,
    *,
    with_key: bool,
    left: bool,
) -> KStream[Any, Any]:
    """Add a join by the stream's own key; both inputs have to be partitioned alike."""
    from millpond.dsl.kstream import KStream

    graph = stream._graph
    if table._graph is not graph:
        raise TopologyError("The stream and the table come from different StreamsBuilders; build both with one.")
    stream = stream._repartition_for_join(name, key)
    sources = stream._sources | table._sources
    graph.copartition(sources)
    view = table.view()
    node = OperatorNode(
        graph.name_or(name, "KSTREAM-LEFTJOIN-" if left else "KSTREAM-JOIN-"),
        lambda: JoinTable(view.lookup, combine, with_key, left),
        uses=view.stores,
        relaxed_null_key=left,
    )
    graph.add(node, stream._node)
    return KStream(graph, node.name, node, key or stream._key, value, sources, repartition=False)


def join_global_table(
    stream: KStream[Any, Any],
    table: GlobalKTable[Any, Any],
    selector: Callable[[Any, Any], Any],
    combine: Callable[..., Any],
    value: Serde[Any] | None,
    name: str | None,
    *,
    with_key: bool,
    left: bool,
) -> KStream[Any, Any]:
    """Add a join by a selected key; the table is everywhere, so nothing has to be partitioned alike."""
    node = OperatorNode(
        stream._graph.name_or(name, "KSTREAM-LEFTJOIN-"),
        lambda: JoinGlobalTable(table.lookup, selector, combine, with_key, left),
        relaxed_null_key=left,
    )
    stream._graph.add(node, stream._node)
    return stream._below(node, stream._key, value)
