"""KTable.join, left_join and outer_join."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar, Unpack, cast, overload

from millpond.calls import checked
from millpond.checks import kind_of
from millpond.dsl.materialized import Materialized
from millpond.errors import TopologyError

from .foreign_key import join_by_foreign_key
from .options import TableJoined
from .primary_key import join_tables

if TYPE_CHECKING:
    from millpond.dsl.ktable import KTable

__all__ = ("TableTableJoins",)

K = TypeVar("K")
V = TypeVar("V")
VO = TypeVar("VO")
VR = TypeVar("VR")
KO = TypeVar("KO")


@checked
class TableTableJoins(Generic[K, V]):
    """The part of KTable that joins it with other tables."""

    @overload
    def join(
        self,
        table: KTable[K, VO],
        with_: Callable[[V, VO], VR | None],
        *,
        with_key: Literal[False] = False,
        name: str | None = None,
        **materialized: Unpack[Materialized[K, VR]],
    ) -> KTable[K, VR]: ...
    @overload
    def join(
        self,
        table: KTable[K, VO],
        with_: Callable[[K, V, VO], VR | None],
        *,
        with_key: Literal[True],
        name: str | None = None,
        **materialized: Unpack[Materialized[K, VR]],
    ) -> KTable[K, VR]: ...
    @overload
    def join(
        self,
        table: KTable[KO, VO],
        with_: Callable[[V, VO], VR | None],
        *,
        on: Callable[[V], KO | None],
        name: str | None = None,
        **joined: Unpack[TableJoined[K, VR]],
    ) -> KTable[K, VR]: ...
    @overload
    def join(
        self,
        table: KTable[KO, VO],
        with_: Callable[[V, VO], VR | None],
        *,
        on: Callable[[K, V], KO | None],
        name: str | None = None,
        **joined: Unpack[TableJoined[K, VR]],
    ) -> KTable[K, VR]: ...
    def join(
        self,
        table: Any,
        with_: Callable[..., VR | None],
        *,
        on: Callable[..., Any] | None = None,
        with_key: bool = False,
        name: str | None = None,
        **joined: Unpack[TableJoined[K, VR]],
    ) -> KTable[K, VR]:
        """Join the rows of two tables that have the same key. A key that one of them has not is not in the result.

        Each change of a row on either side gives a new result, with the later one of both rows' timestamps. A deletion
        deletes the result. Both tables get a store. Changes without a key are dropped, and counted as dropped::

            addresses = customers.join(cities, lambda customer, city: f"{customer.street}, {city.name}")

        With `on=` the rows are joined by a *foreign key*, a key of the other table (KIP-213)::

            shipments = orders.join(customers, Shipment, on=lambda order: order.customer_id)

        The result has the keys of this table. Many of its rows may join one row of the other table, and each change of
        that row changes all their results; such a result has the timestamp of that change. Rows whose foreign key is
        None are dropped and counted. The rows meet by way of two internal topics, so their results come later, and the
        result of a row that has changed again meanwhile is left out. The tables may have different numbers of
        partitions.

        Args:
            table: a table with the same keys and the same number of partitions; any table with `on=`.
            with_: f(value, other table's value) -> value of the result, or None for no row; with `with_key=True` the
                key comes first.
            on: f(value) or f(key, value) (KIP-1104) -> the key of the other table's row, or None.
            with_key: whether `with_` takes the key too; not with `on=`.
            name: name of the node; the nodes of the two sides are called `<name>-join-this` and `<name>-join-other`.
                With `on=`, the beginning of the names of all nodes, internal topics and the store of the join.
            joined: see `Materialized`; without options the result has no store. With `on=` also `partitioner` and
                `other_partitioner`, see `TableJoined`.

        Raises:
            TopologyError: `table` is no KTable, or comes from another StreamsBuilder.

        Example:
            >>> limited = customers.join(limits, lambda name, limit: f"{name}: {limit}", value=mp.String)
            >>> named = limits.join(
            ...     customers, lambda limit, name: f"{name}: {limit}", on=lambda key, limit: key, value=mp.String
            ... )
        """
        return self._join("inner", table, with_, on, name, joined, with_key=with_key)

    @overload
    def left_join(
        self,
        table: KTable[K, VO],
        with_: Callable[[V, VO | None], VR | None],
        *,
        with_key: Literal[False] = False,
        name: str | None = None,
        **materialized: Unpack[Materialized[K, VR]],
    ) -> KTable[K, VR]: ...
    @overload
    def left_join(
        self,
        table: KTable[K, VO],
        with_: Callable[[K, V, VO | None], VR | None],
        *,
        with_key: Literal[True],
        name: str | None = None,
        **materialized: Unpack[Materialized[K, VR]],
    ) -> KTable[K, VR]: ...
    @overload
    def left_join(
        self,
        table: KTable[KO, VO],
        with_: Callable[[V, VO | None], VR | None],
        *,
        on: Callable[[V], KO | None],
        name: str | None = None,
        **joined: Unpack[TableJoined[K, VR]],
    ) -> KTable[K, VR]: ...
    @overload
    def left_join(
        self,
        table: KTable[KO, VO],
        with_: Callable[[V, VO | None], VR | None],
        *,
        on: Callable[[K, V], KO | None],
        name: str | None = None,
        **joined: Unpack[TableJoined[K, VR]],
    ) -> KTable[K, VR]: ...
    def left_join(
        self,
        table: Any,
        with_: Callable[..., VR | None],
        *,
        on: Callable[..., Any] | None = None,
        with_key: bool = False,
        name: str | None = None,
        **joined: Unpack[TableJoined[K, VR]],
    ) -> KTable[K, VR]:
        """Join each row with the other table's row of its key, or with None if it has no such row. See `join`.

        With `on=` a row whose foreign key is None is joined with None, too.

        Example:
            >>> named = customers.left_join(limits, lambda name, limit: f"{name}: {limit or 0}", value=mp.String)
            >>> named.to_stream().to("limits-by-name")
        """
        return self._join("left", table, with_, on, name, joined, with_key=with_key)

    @overload
    def outer_join(
        self,
        table: KTable[K, VO],
        with_: Callable[[V | None, VO | None], VR | None],
        *,
        with_key: Literal[False] = False,
        name: str | None = None,
        **materialized: Unpack[Materialized[K, VR]],
    ) -> KTable[K, VR]: ...
    @overload
    def outer_join(
        self,
        table: KTable[K, VO],
        with_: Callable[[K, V | None, VO | None], VR | None],
        *,
        with_key: Literal[True],
        name: str | None = None,
        **materialized: Unpack[Materialized[K, VR]],
    ) -> KTable[K, VR]: ...
    def outer_join(
        self,
        table: Any,
        with_: Callable[..., VR | None],
        *,
        with_key: bool = False,
        name: str | None = None,
        **materialized: Unpack[Materialized[K, VR]],
    ) -> KTable[K, VR]:
        """Join the rows of both tables by key; None stands for a row that one of them has not. See `join`.

        Example:
            >>> either = customers.outer_join(limits, lambda name, limit: f"{name}: {limit}", value=mp.String)
            >>> either.to_stream().to("either")
        """
        this, other = self._this(), _other("outer_join()", table)
        return join_tables(this, other, "outer", with_, name, materialized, with_key=with_key)

    def _join(  # noqa: PLR0913 - the arguments of join()
        self,
        kind: Literal["inner", "left"],
        table: Any,
        combine: Callable[..., Any],
        on: Callable[..., Any] | None,
        name: str | None,
        options: Any,
        *,
        with_key: bool,
    ) -> KTable[K, Any]:
        what = "join()" if kind == "inner" else "left_join()"
        this, other = self._this(), _other(what, table)
        if on is not None:
            if with_key:
                raise TopologyError(
                    f"{what} by a foreign key calls with_ with the two values only; leave out with_key=True. on= takes "
                    "the key, if it has two parameters."
                )
            return join_by_foreign_key(this, other, combine, on, name, options, is_left=kind == "left")
        for option in ("partitioner", "other_partitioner"):
            if option in options:
                raise TopologyError(
                    f"{what} of two tables takes {option}= only for a join by a foreign key; give on=, or leave it out."
                )
        return join_tables(this, other, kind, combine, name, options, with_key=with_key)

    def _this(self) -> KTable[K, V]:
        return cast("KTable[K, V]", self)


def _other(what: str, given: object) -> KTable[Any, Any]:
    from millpond.dsl.global_table import GlobalKTable
    from millpond.dsl.kstream import KStream
    from millpond.dsl.ktable import KTable

    if isinstance(given, KTable):
        return given
    hint = ""
    if isinstance(given, KStream):
        hint = "; make a table of the stream with to_table(), or join the stream with this table"
    elif isinstance(given, GlobalKTable):
        hint = "; read its topic with table(), or join a stream with it"
    elif isinstance(given, str):
        hint = f"; builder.table({given!r}) reads a topic as one"
    raise TopologyError(f"{what} of a table needs another KTable, not {kind_of(given)}{hint}.")
