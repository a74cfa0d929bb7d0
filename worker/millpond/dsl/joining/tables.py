"""The nodes of a join of a stream with a table or a global table."""

# ruff: noqa: SLF001 - this is a part of KStream, in a module of its own

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from millpond.dsl.durations import milliseconds
from millpond.dsl.functions import check_join_keys, check_same_builder
from millpond.dsl.graph import OperatorNode
from millpond.dsl.operators.stream_join import JoinGlobalTable, JoinTable
from millpond.dsl.operators.versioned.grace_join import JoinTableWithGrace
from millpond.dsl.tables import View
from millpond.errors import TopologyError
from millpond.serdes import Serde
from millpond.state import JoinBufferBuilder
from millpond.topology import Body

if TYPE_CHECKING:
    from millpond.dsl.global_table import GlobalKTable
    from millpond.dsl.kstream import KStream
    from millpond.dsl.ktable import KTable

__all__ = ("join_global_table", "join_table")


def join_table(  # noqa: PLR0913 - the arguments of join()
    what: str,
    stream: KStream[Any, Any],
    table: KTable[Any, Any],
    combine: Callable[..., Any],
    grace: timedelta | None,
    key: Serde[Any] | None,
    value: Serde[Any] | None,
    name: str | None,
    *,
    with_key: bool,
    left: bool,
) -> KStream[Any, Any]:
    """Add a join by the stream's own key. Both inputs need the same number of partitions.

    Raises:
        TopologyError: the table comes from another StreamsBuilder, or has no history for the grace period.
    """
    from millpond.dsl.kstream import KStream

    graph = stream._graph
    check_same_builder("The stream and the table", stream, table)
    check_join_keys(what, key or stream._key, table._key)
    stream = stream._repartition_for_join(name, key)
    sources = stream._sources | table._sources
    graph.copartition(sources)
    view = table.view()
    named = name is not None
    name = graph.name_or(name, "KSTREAM-LEFTJOIN-" if left else "KSTREAM-JOIN-")
    buffer = None
    body: Body = JoinTable(view.lookup, combine, with_key, left, view.history_ms is not None)
    if grace is not None:
        grace_ms = _check_grace(f"{what} '{name}'", grace, view, table)
        buffer = JoinBufferBuilder(name=f"{name}-Buffer", key=key or stream._key, value=stream._value)
        if not named:
            graph.unnamed.add_store(buffer.name, logging=True)
        body = JoinTableWithGrace(view.lookup, combine, with_key, left, buffer.name, grace_ms)
    node = OperatorNode(name, lambda: body, store=lambda: buffer, uses=view.stores, relaxed_null_key=left)
    graph.add(node, stream._node)
    return KStream(graph, node.name, node, key or stream._key, value, sources, repartition=False)


def _check_grace(what: str, grace: timedelta, view: View, table: KTable[Any, Any]) -> int:
    """Return the grace period in ms; the table has to be versioned, with a history at least as long."""
    grace_ms = milliseconds(grace, "grace")
    if view.history_ms is None or table._node.output_versioned is False:
        raise TopologyError(
            f"{what} has a grace period, and so needs a versioned table, but '{table._name}' is not versioned; give "
            "history_retention= where the table is made, or leave out grace=."
        )
    if grace_ms > view.history_ms:
        raise TopologyError(
            f"{what} has a grace period of {grace_ms} ms, but the table '{table._name}' keeps its history for "
            f"{view.history_ms} ms only; give a longer history_retention=, or a shorter grace=."
        )
    return grace_ms


def join_global_table(  # noqa: PLR0913 - the arguments of join()
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
    """Add a join by a selected key. Every worker has the whole table, so partitions do not matter."""
    node = OperatorNode(
        stream._graph.name_or(name, "KSTREAM-LEFTJOIN-"),
        lambda: JoinGlobalTable(table.lookup, selector, combine, with_key, left),
        relaxed_null_key=left,
    )
    node.joins_globally = True
    node.value = value
    stream._graph.add(node, stream._node)
    return stream._below(node, stream._key, value)
