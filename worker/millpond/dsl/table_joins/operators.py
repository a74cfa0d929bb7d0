"""KTable.join, left_join and outer_join."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar, Unpack, cast, overload

from millpond.calls import checked
from millpond.checks import kind_of
from millpond.dsl.materialized import Materialized
from millpond.errors import TopologyError

from .primary_key import join_tables

if TYPE_CHECKING:
    from millpond.dsl.ktable import KTable

__all__ = ("TableTableJoins",)

K = TypeVar("K")
V = TypeVar("V")
VO = TypeVar("VO")
VR = TypeVar("VR")


@checked
class TableTableJoins(Generic[K, V]):
    """The part of KTable that joins it with other tables."""

    @overload
    def join(
        self,
        table: KTable[K, VO],
        with_: Callable[[V, VO], VR],
        *,
        with_key: Literal[False] = False,
        name: str | None = None,
        **materialized: Unpack[Materialized[K, VR]],
    ) -> KTable[K, VR]: ...
    @overload
    def join(
        self,
        table: KTable[K, VO],
        with_: Callable[[K, V, VO], VR],
        *,
        with_key: Literal[True],
        name: str | None = None,
        **materialized: Unpack[Materialized[K, VR]],
    ) -> KTable[K, VR]: ...
    def join(
        self,
        table: Any,
        with_: Callable[..., VR],
        *,
        with_key: bool = False,
        name: str | None = None,
        **materialized: Unpack[Materialized[K, VR]],
    ) -> KTable[K, VR]:
        """Join the rows of two tables that have the same key. A key that one of them has not is not in the result.

        Each change of a row on either side gives a new result, with the later one of both rows' timestamps. A deletion
        deletes the result. Both tables get a store. Changes without a key are dropped, and counted as dropped::

            addresses = customers.join(cities, lambda customer, city: f"{customer.street}, {city.name}")

        Args:
            table: a table with the same keys and the same number of partitions.
            with_: f(value, other table's value) -> value of the result; with `with_key=True` the key comes first.
            with_key: whether `with_` takes the key too.
            name: name of the node; the nodes of the two sides are called `<name>-join-this` and `<name>-join-other`.
            materialized: see `Materialized`; without options the result has no store.

        Raises:
            TopologyError: `table` is no KTable, or comes from another StreamsBuilder.
        """
        return join_tables(self._this(), _other("join()", table), "inner", with_, name, materialized, with_key=with_key)

    @overload
    def left_join(
        self,
        table: KTable[K, VO],
        with_: Callable[[V, VO | None], VR],
        *,
        with_key: Literal[False] = False,
        name: str | None = None,
        **materialized: Unpack[Materialized[K, VR]],
    ) -> KTable[K, VR]: ...
    @overload
    def left_join(
        self,
        table: KTable[K, VO],
        with_: Callable[[K, V, VO | None], VR],
        *,
        with_key: Literal[True],
        name: str | None = None,
        **materialized: Unpack[Materialized[K, VR]],
    ) -> KTable[K, VR]: ...
    def left_join(
        self,
        table: Any,
        with_: Callable[..., VR],
        *,
        with_key: bool = False,
        name: str | None = None,
        **materialized: Unpack[Materialized[K, VR]],
    ) -> KTable[K, VR]:
        """Join each row with the other table's row of its key, or with None if it has no such row. See `join`.

        Example::

            profiles = users.left_join(photos, lambda user, photo: Profile(user.name, photo and photo.url))
        """
        this, other = self._this(), _other("left_join()", table)
        return join_tables(this, other, "left", with_, name, materialized, with_key=with_key)

    @overload
    def outer_join(
        self,
        table: KTable[K, VO],
        with_: Callable[[V | None, VO | None], VR],
        *,
        with_key: Literal[False] = False,
        name: str | None = None,
        **materialized: Unpack[Materialized[K, VR]],
    ) -> KTable[K, VR]: ...
    @overload
    def outer_join(
        self,
        table: KTable[K, VO],
        with_: Callable[[K, V | None, VO | None], VR],
        *,
        with_key: Literal[True],
        name: str | None = None,
        **materialized: Unpack[Materialized[K, VR]],
    ) -> KTable[K, VR]: ...
    def outer_join(
        self,
        table: Any,
        with_: Callable[..., VR],
        *,
        with_key: bool = False,
        name: str | None = None,
        **materialized: Unpack[Materialized[K, VR]],
    ) -> KTable[K, VR]:
        """Join the rows of both tables by key; None stands for a row that one of them has not. See `join`.

        Example::

            stock = ordered.outer_join(delivered, lambda out, in_: (in_ or 0) - (out or 0))
        """
        this, other = self._this(), _other("outer_join()", table)
        return join_tables(this, other, "outer", with_, name, materialized, with_key=with_key)

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
