"""KGroupedTable: a table's rows under other keys, to be aggregated."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, TypeVar, Unpack, cast

from millpond.calls import checked
from millpond.checks import check_function
from millpond.dsl.aggregators import check_aggregator
from millpond.dsl.operators.table_aggregation import AggregateTable, ReduceTable
from millpond.serdes import Long, Serde
from millpond.topology import Body

from .functions import check_initializer
from .graph import Graph, GraphNode, OperatorNode, TableRepartitionGraphNode
from .materialized import Materialized, Storage
from .tables import Aggregated, stored_view

if TYPE_CHECKING:
    from .ktable import KTable

__all__ = ("KGroupedTable",)

K = TypeVar("K")
V = TypeVar("V")
VR = TypeVar("VR")

_AGGREGATE = "KTABLE-AGGREGATE-"


@checked
class KGroupedTable(Generic[K, V]):
    """A regrouped table. When a row changes, its old value is subtracted and then its new one is added."""

    def __init__(
        self, graph: Graph, node: GraphNode, key: Serde[K] | None, value: Serde[V] | None, topic_name: str | None
    ) -> None:
        self._graph = graph
        self._node = node
        self._key = key
        self._value = value
        self._topic_name = topic_name
        self._repartitioned: TableRepartitionGraphNode | None = None

    def count(self, *, name: str | None = None, **materialized: Unpack[Materialized[K, int]]) -> KTable[K, int]:
        """Count the rows of each key.

        Args:
            name: name of the node.
            materialized: see `Materialized`.

        Example:
            >>> by_name = customers.group_by(lambda customer, name: (name, customer), key=mp.String, value=mp.String)
            >>> namesakes = by_name.count(store="namesakes")
        """
        storage = self._storage(materialized, Long)
        return self._aggregate(
            name,
            _AGGREGATE,
            storage,
            lambda send_old: AggregateTable(storage.name, _zero, _one_more, _one_less, send_old),
        )

    def reduce(
        self,
        adder: Callable[[V, V], V | None],
        subtractor: Callable[[V, V], V | None],
        *,
        name: str | None = None,
        **materialized: Unpack[Materialized[K, V]],
    ) -> KTable[K, V]:
        """Combine the values of each key. The first value is the first aggregate.

        Args:
            adder: f(aggregate, value) -> new aggregate, with the row's new value added.
            subtractor: f(aggregate, value) -> new aggregate, with the row's old value subtracted; None deletes the row.
            name: name of the node.
            materialized: see `Materialized`.

        Example:
            >>> by_class = limits.group_by(lambda customer, limit: (customer[:1], limit), key=mp.String, value=mp.Long)
            >>> totals = by_class.reduce(lambda total, new: total + new, lambda total, old: total - old, store="totals")
        """
        for function in (adder, subtractor):
            check_function("reduce()", function, "aggregate", "value")
        storage = self._storage(materialized, self._value)
        return self._aggregate(
            name, "KTABLE-REDUCE-", storage, lambda send_old: ReduceTable(storage.name, adder, subtractor, send_old)
        )

    def aggregate(
        self,
        initializer: Callable[[], VR],
        adder: Callable[[K, V, VR], VR | None],
        subtractor: Callable[[K, V, VR], VR | None],
        *,
        name: str | None = None,
        **materialized: Unpack[Materialized[K, VR]],
    ) -> KTable[K, VR]:
        """Combine the values of each key into another type.

        Args:
            initializer: f() -> the aggregate before a key's first value.
            adder: f(key, value, aggregate) -> new aggregate, with the row's new value added.
            subtractor: f(key, value, aggregate) -> new aggregate, with the row's old value subtracted; None deletes the
                row.
            name: name of the node.
            materialized: see `Materialized`; `value=` is the serde of the aggregates.

        Example:
            >>> by_class = limits.group_by(lambda customer, limit: (customer[:1], limit), key=mp.String, value=mp.Long)
            >>> totals = by_class.aggregate(
            ...     lambda: 0,
            ...     lambda key, new, total: total + new,
            ...     lambda key, old, total: total - old,
            ...     store="totals",
            ...     value=mp.Long,
            ... )
        """
        check_initializer("aggregate()", initializer)
        for function in (adder, subtractor):
            check_aggregator("aggregate()", function)
        storage = self._storage(materialized, None)
        return self._aggregate(
            name,
            _AGGREGATE,
            storage,
            lambda send_old: AggregateTable(storage.name, initializer, adder, subtractor, send_old),
        )

    def _storage(self, options: Any, value: Serde[Any] | None) -> Storage:
        return Storage.of(cast("dict[str, Any]", options), self._graph, _AGGREGATE, self._key, value)

    def _aggregate(
        self, name: str | None, prefix: str, storage: Storage, make: Callable[[bool], Body]
    ) -> KTable[K, Any]:
        from .ktable import KTable

        graph = self._graph
        sink = graph.name_or(name, "KSTREAM-SINK-", "-sink")
        source = graph.name_or(name, "KSTREAM-SOURCE-", "-source")
        name = graph.name_or(name, prefix)
        if self._repartitioned is None or self._topic_name is None:
            topic = f"{self._topic_name or storage.name}-repartition"
            self._repartitioned = TableRepartitionGraphNode(source, sink, topic, self._key, self._value)
        graph.add(self._repartitioned, self._node)
        logic = Aggregated(stored_view(storage), make)
        node = OperatorNode(name, logic.body, store=storage.key_value, table=True)
        node.output_versioned = storage.history_ms is not None
        graph.add(node, self._repartitioned)
        sources = frozenset({self._repartitioned.name})
        return KTable(graph, name, node, storage.key, storage.value, sources, logic, storage)


def _zero() -> int:
    return 0


def _one_more(_key: Any, _value: Any, count: int) -> int:
    return count + 1


def _one_less(_key: Any, _value: Any, count: int) -> int:
    return count - 1
