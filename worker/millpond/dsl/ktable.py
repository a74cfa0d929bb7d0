"""KTable: the latest value of each key."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, Generic, Literal, TypeGuard, TypeVar, Unpack, overload

from millpond.calls import checked
from millpond.checks import check_function, kind_of
from millpond.dsl.operators.conversion import ToStream
from millpond.dsl.operators.table_grouping import RegroupTable
from millpond.errors import TopologyError
from millpond.serdes import Serde
from millpond.topology import StoreBuilder
from millpond.topology.naming import validate_name
from millpond.topology.processor_body import supplied_stores
from millpond.topology.transformer import ValueTransformerWithKeySupplier, check_transformer_supplier

from .functions import check_stores, check_value_function
from .graph import Graph, GraphNode, OperatorNode
from .grouped_table import KGroupedTable
from .kstream import KStream
from .materialized import Materialized, Storage
from .suppressed import Suppressed, SuppressedTable, windows_open_ms
from .table_joins import TableTableJoins
from .tables import FilteredTable, MappedTable, TableLogic, TransformedTable, View

__all__ = ("KTable",)

K = TypeVar("K")
V = TypeVar("V")
VR = TypeVar("VR")
K1 = TypeVar("K1")
V1 = TypeVar("V1")


@checked
class KTable(TableTableJoins[K, V], Generic[K, V]):
    """A table with keys of type K and values of type V. `StreamsBuilder.table()` and aggregations make one.

    Operators that may store their result take the keyword arguments of `Materialized`; without `store=` the result is
    computed from the table above. All operators raise TopologyError for arguments that they cannot use.
    """

    def __init__(  # noqa: PLR0913 - where its rows come from
        self,
        graph: Graph,
        name: str,
        node: GraphNode,
        key: Serde[K] | None,
        value: Serde[V] | None,
        sources: frozenset[str],
        logic: TableLogic,
        storage: Storage | None,
    ) -> None:
        self._graph = graph
        self._name = name
        self._node = node
        self._key = key
        self._value = value
        self._sources = sources
        self._logic = logic
        self._storage = storage
        self._sends_old = False

    @property
    def store_name(self) -> str | None:
        """The name given by `store=`, under which the table can be queried; None without one."""
        return self._storage.name if self._storage is not None and self._storage.queryable else None

    @overload
    def filter(
        self,
        predicate: Callable[[K, V], TypeGuard[VR]],
        *,
        name: str | None = None,
        **materialized: Unpack[Materialized[K, VR]],
    ) -> KTable[K, VR]: ...
    @overload
    def filter(
        self,
        predicate: Callable[[K, V], object],
        *,
        name: str | None = None,
        **materialized: Unpack[Materialized[K, V]],
    ) -> KTable[K, V]: ...
    def filter(
        self,
        predicate: Callable[[K, V], object],
        *,
        name: str | None = None,
        **materialized: Unpack[Materialized[K, Any]],
    ) -> KTable[K, Any]:
        """Keep the rows for which `predicate(key, value)` is true; the result has no others.

        A predicate that is declared to return `TypeGuard[X]` says that such values are of type X, as those of the
        result are then.

        Example:
            >>> limits.filter(lambda customer, limit: limit > 0, store="open-limits").to_stream().to("open-limits")
        """
        check_function("filter()", predicate, "key", "value")
        return self._filter(predicate, name, materialized, negate=False)

    def filter_not(
        self,
        predicate: Callable[[K, V], object],
        *,
        name: str | None = None,
        **materialized: Unpack[Materialized[K, V]],
    ) -> KTable[K, V]:
        """Keep the rows for which `predicate(key, value)` is false; the result has no others.

        Example:
            >>> limits.filter_not(lambda customer, limit: limit > 0).to_stream().to("closed-limits")
        """
        check_function("filter_not()", predicate, "key", "value")
        return self._filter(predicate, name, materialized, negate=True)

    @overload
    def map_values(
        self,
        mapper: Callable[[V], VR | None],
        *,
        with_key: Literal[False] = False,
        name: str | None = None,
        **materialized: Unpack[Materialized[K, VR]],
    ) -> KTable[K, VR]: ...
    @overload
    def map_values(
        self,
        mapper: Callable[[K, V], VR | None],
        *,
        with_key: Literal[True],
        name: str | None = None,
        **materialized: Unpack[Materialized[K, VR]],
    ) -> KTable[K, VR]: ...
    def map_values(
        self,
        mapper: Callable[..., VR | None],
        *,
        with_key: bool = False,
        name: str | None = None,
        **materialized: Unpack[Materialized[K, VR]],
    ) -> KTable[K, VR]:
        """Replace each value by `mapper(value)`, or by `mapper(key, value)` with `with_key=True`.

        Where the mapper returns None, the result has no row. So the values of the result are never None, and its type
        has no None either.

        Example:
            >>> customers.map_values(str.upper, value=mp.String).to_stream().to("names")
        """
        check_value_function("map_values()", mapper, "value", with_key=with_key)
        storage = self._derived_storage(materialized, "KTABLE-MAPVALUES-", None)
        logic = MappedTable(self, storage, mapper, with_key=with_key)
        return self._derive(logic, storage, "KTABLE-MAPVALUES-", name, None)

    def transform_values(
        self,
        supplier: ValueTransformerWithKeySupplier[K, V, VR],
        *,
        stores: Iterable[str] = (),
        name: str | None = None,
        **materialized: Unpack[Materialized[K, VR]],
    ) -> KTable[K, VR]:
        """Replace each value by `transform(key, value)` of a ValueTransformerWithKey, which may use stores (KIP-149).

        It is also called with None, for a deletion, and may return a value then.

        Args:
            supplier: f() -> a new ValueTransformerWithKey, called once per task and once more for each join that reads
                the table; often the class itself. The stores in its attribute `stores` are added and connected.
            stores: names of further stores that it uses.
            name: name of the node.
            materialized: see `Materialized`; without `store=` rows are computed again when they are looked up.

        Raises:
            TopologyError: the supplier does not make a new transformer each time.

        Example:
            >>> class Numbered(mp.ValueTransformerWithKey[str, str, str]):
            ...     def transform(self, key, value):
            ...         return f"{key}: {value}"
            >>> named = customers.transform_values(Numbered, store="named", value=mp.String)
        """
        check_transformer_supplier("transform_values()", supplier)
        check_stores("transform_values()", stores)
        builders = supplied_stores(supplier)
        storage = None
        if materialized:
            # As in Kafka Streams, a store without a name takes no index here, as it does elsewhere.
            storage = Storage.of({"store": "unnamed", **materialized}, self._graph, "", self._key)
            storage = replace(storage, queryable="store" in materialized)
        used = tuple(dict.fromkeys((*(each.name for each in builders), *stores)))
        logic = TransformedTable(self, storage, supplier, used)
        return self._derive(logic, storage, "KTABLE-TRANSFORMVALUES-", name, None, used, builders)

    @overload
    def to_stream(self, *, name: str | None = None) -> KStream[K, V]: ...
    @overload
    def to_stream(self, selector: Callable[[K, V], K1], *, name: str | None = None) -> KStream[K1, V]: ...
    def to_stream(self, selector: Callable[[K, V], Any] | None = None, *, name: str | None = None) -> KStream[Any, V]:
        """Return the table's changes as a stream of new values; None is a deletion.

        `counts.to_stream(lambda window, count: window.key)` is short for `to_stream()` and `select_key()`.

        Args:
            selector: f(key, value) -> another key; None keeps keys.
            name: name of the node; that of the selector always has a generated one, as in Kafka Streams.

        Raises:
            TopologyError: the selector cannot be called with a key and a value.

        Example:
            >>> customers.to_stream().to("changes-of-customers")
        """
        if selector is not None:
            check_function("to_stream()", selector, "key", "value")
        node = OperatorNode(self._graph.name_or(name, "KTABLE-TOSTREAM-"), ToStream)
        self._graph.add(node, self._node)
        stream = KStream(self._graph, node.name, node, self._key, self._value, self._sources, repartition=False)
        return stream if selector is None else stream.select_key(selector)

    def suppress(self, suppressed: Suppressed[K], *, name: str | None = None) -> KTable[K, V]:
        """Hold changes back: `until_window_closes()` or `until_time_limit(duration)` (KIP-328).

        Args:
            suppressed: how long to hold changes back, and how many records or bytes at most.
            name: name of the node; its store is named `<name>-store`.

        Raises:
            TopologyError: the table is versioned or comes from a versioned one; or `until_window_closes()` for a table
                without windows, or without a serde of its keys.

        Example:
            >>> held = limits.suppress(mp.until_time_limit(timedelta(minutes=5), max_records=1000))
            >>> held.to_stream().to("settled-limits")
        """
        if not isinstance(suppressed, Suppressed):
            raise TopologyError(
                "suppress() needs the result of until_window_closes() or until_time_limit(…), not "
                f"{kind_of(suppressed)}."
            )
        graph = self._graph
        if self._node.is_versioned:
            raise TopologyError(
                f"suppress() cannot hold back the changes of '{self._name}', because it comes from a versioned table: "
                "leave out history_retention= above, or give a store without it to an operator in between."
            )
        open_ms = windows_open_ms(self._node) if suppressed.final else 0
        if suppressed.final and self._key is None:
            raise TopologyError(
                f"The windows of '{self._name}' cannot be held back without the serde of their keys; give key= where "
                "the stream is grouped."
            )
        given = name if name is None else validate_name(name)
        name = graph.generate("KTABLE-SUPPRESS-") if name is None else name
        store = graph.generate_store("KTABLE-SUPPRESS-") if given is None else f"{given}-store"
        if given is None and suppressed.logging is not False:
            graph.unnamed.add_suppressed(store)
        logic = SuppressedTable(self, suppressed, store, open_ms, self._key, self._value)
        node = OperatorNode(name, logic.body, store=logic.store, table=True)
        graph.add(node, self._node)
        return KTable(graph, name, node, self._key, self._value, self._sources, logic, None)

    def group_by(
        self,
        selector: Callable[[K, V], tuple[K1, V1]],
        *,
        key: Serde[K1] | None = None,
        value: Serde[V1] | None = None,
        name: str | None = None,
    ) -> KGroupedTable[K1, V1]:
        """Group the rows by another key, to aggregate.

        Args:
            selector: f(key, value) -> a pair of the key to group by and the value to aggregate.
            key: serde of those keys.
            value: serde of those values.
            name: name of the node and of the repartition topic.

        Example:
            >>> by_name = customers.group_by(lambda customer, name: (name, customer), key=mp.String, value=mp.String)
            >>> namesakes = by_name.count(store="namesakes")
        """
        check_function("group_by()", selector, "key", "value")
        above = self._node
        node = OperatorNode(
            self._graph.name_or(name, "KTABLE-SELECT-"), lambda: RegroupTable(selector, above.is_versioned)
        )
        self._graph.add(node, self._node)
        self.send_old_values(materialize=True)
        return KGroupedTable(self._graph, node, key, value, name)

    # For derived tables and joins

    def send_old_values(self, *, materialize: bool) -> bool:
        """Make this table send old values too; see `TableLogic`. For operators, not for applications."""
        if not self._sends_old:
            self._sends_old = self._logic.send_old_values(materialize=materialize)
        return self._sends_old

    def view(self) -> View:
        """Return the lookup of its values; see `TableLogic`. For operators, not for applications."""
        return self._logic.view()

    def _filter(
        self, predicate: Callable[[K, V], object], name: str | None, options: Any, *, negate: bool
    ) -> KTable[K, V]:
        storage = self._derived_storage(options, "KTABLE-FILTER-", self._value)
        above = self._node
        logic = FilteredTable(self, storage, predicate, negate=negate, versioned=lambda: above.is_versioned)
        return self._derive(logic, storage, "KTABLE-FILTER-", name, self._value)

    def _derived_storage(self, options: Any, prefix: str, value: Serde[Any] | None) -> Storage | None:
        # As in Kafka Streams, the name of a store takes an index only if there is an option of the store, and then no
        # store has the name.
        return Storage.of(options, self._graph, prefix, self._key, value, named=True) if options else None

    def _derive(  # noqa: PLR0913 - names, serdes and stores of one table
        self,
        logic: FilteredTable | MappedTable | TransformedTable,
        storage: Storage | None,
        prefix: str,
        name: str | None,
        value: Serde[Any] | None,
        uses: Iterable[str] = (),
        adds: Iterable[StoreBuilder] = (),
    ) -> KTable[K, Any]:
        name = self._graph.name_or(name, prefix)
        node = OperatorNode(name, logic.body, store=logic.store, uses=uses, adds=adds, table=True)
        if storage is not None:
            node.output_versioned = storage.history_ms is not None
        self._graph.add(node, self._node)
        key = self._key if storage is None else storage.key
        value = value if storage is None else storage.value
        return KTable(self._graph, name, node, key, value, self._sources, logic, storage)
