"""KStream.join, left_join and outer_join, with streams and with tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar, Unpack, cast, overload

from millpond.calls import checked
from millpond.checks import check_function, kind_of
from millpond.errors import TopologyError
from millpond.serdes import Serde

from .functions import check_same_builder, check_value_function
from .joining.options import StreamJoined
from .joining.streams import join_streams
from .joining.tables import join_global_table, join_table
from .joining.windows import JoinWindows
from .steps.batches import BatchSteps

if TYPE_CHECKING:
    from .global_table import GlobalKTable
    from .kstream import KStream
    from .ktable import KTable

__all__ = ("TableJoins",)

K = TypeVar("K")
V = TypeVar("V")
VR = TypeVar("VR")
VO = TypeVar("VO")
KG = TypeVar("KG")


@checked
class TableJoins(BatchSteps[K, V], Generic[K, V]):
    """The part of KStream that joins it with streams and tables."""

    @overload
    def join(
        self,
        stream: KStream[K, VO],
        with_: Callable[[V, VO], VR],
        windows: JoinWindows,
        /,
        *,
        with_key: Literal[False] = False,
        key: Serde[K] | None = None,
        value: Serde[VR] | None = None,
        name: str | None = None,
        **joined: Unpack[StreamJoined[V, VO]],
    ) -> KStream[K, VR]: ...
    @overload
    def join(
        self,
        stream: KStream[K, VO],
        with_: Callable[[K, V, VO], VR],
        windows: JoinWindows,
        /,
        *,
        with_key: Literal[True],
        key: Serde[K] | None = None,
        value: Serde[VR] | None = None,
        name: str | None = None,
        **joined: Unpack[StreamJoined[V, VO]],
    ) -> KStream[K, VR]: ...
    @overload
    def join(
        self,
        table: KTable[K, VO],
        with_: Callable[[V, VO], VR],
        *,
        with_key: Literal[False] = False,
        grace: timedelta | None = None,
        key: Serde[K] | None = None,
        value: Serde[VR] | None = None,
        name: str | None = None,
    ) -> KStream[K, VR]: ...
    @overload
    def join(
        self,
        table: KTable[K, VO],
        with_: Callable[[K, V, VO], VR],
        *,
        with_key: Literal[True],
        grace: timedelta | None = None,
        key: Serde[K] | None = None,
        value: Serde[VR] | None = None,
        name: str | None = None,
    ) -> KStream[K, VR]: ...
    @overload
    def join(
        self,
        table: GlobalKTable[KG, VO],
        with_: Callable[[V, VO], VR],
        *,
        on: Callable[[K, V], KG | None],
        with_key: Literal[False] = False,
        value: Serde[VR] | None = None,
        name: str | None = None,
    ) -> KStream[K, VR]: ...
    @overload
    def join(
        self,
        table: GlobalKTable[KG, VO],
        with_: Callable[[K, V, VO], VR],
        *,
        on: Callable[[K, V], KG | None],
        with_key: Literal[True],
        value: Serde[VR] | None = None,
        name: str | None = None,
    ) -> KStream[K, VR]: ...
    def join(  # noqa: PLR0913 - options are keywords
        self,
        table: Any,
        with_: Callable[..., VR],
        windows: JoinWindows | None = None,
        *,
        on: Callable[[K, V], Any] | None = None,
        grace: timedelta | None = None,
        with_key: bool = False,
        key: Serde[K] | None = None,
        value: Serde[VR] | None = None,
        name: str | None = None,
        **joined: Unpack[StreamJoined[Any, Any]],
    ) -> KStream[K, VR]:
        """Join each record with the table's row of its key, or with the other stream's records of its key and time.

        *With a table*: records without such a row are dropped. *With a stream*: there is one result for each pair of
        records with the same key whose times are within `windows`. It has the larger of the two timestamps.

            orders.join(payments, Paid, mp.JoinWindows.of_time_difference_with_no_grace(timedelta(hours=1)))

        Records without a value, or without a key to look up, are dropped, and counted as dropped.

        Args:
            table: a KTable with the same keys and the same number of partitions, or a GlobalKTable; or a KStream with
                the same keys and the same number of partitions.
            with_: f(stream's value, other value) -> value of the result; with `with_key=True` the key comes first.
            windows: for a KStream: how far apart the times of two records may be.
            on: for a GlobalKTable: f(key, value) -> the table's key, or None for no row.
            grace: for a versioned KTable: how long, in stream time, a record waits in a store for late rows (KIP-923),
                before it is joined with the row at its own time; at most the table's history retention. Default: it is
                joined at once.
            with_key: whether `with_` takes the stream's key too.
            key: serde of the stream's keys, in case the stream is repartitioned for the join, and of a join's stores.
            value: serde of the result's values.
            name: name of the node and of the repartition topic; for a KStream the beginning of these names.
            joined: for a KStream: see `StreamJoined`.

        Raises:
            TopologyError: the other side is of another type or StreamsBuilder, or an argument is missing or not needed.

        Example:
            >>> lines.join(customers, lambda line, customer: f"{customer}: {line}", value=mp.String).to("signed")
            >>> placed = lines.join(countries, lambda line, name: f"{line} ({name})", on=lambda key, line: line[:2])
            >>> windows = mp.JoinWindows.of_time_difference_with_no_grace(timedelta(minutes=5))
            >>> paid = lines.join(amounts, lambda line, amount: f"{line}: {amount}", windows)
            >>> paid.to("paid", value=mp.String)
        """
        if isinstance(table, TableJoins):
            _check_no_grace("join()", grace)
            return join_streams("join()", self, table, with_, windows, on, key, value, name, joined, with_key=with_key)
        _check_no_windows("join()", windows, joined)
        return self._join(table, with_, on, grace, key, value, name, with_key=with_key, left=False)

    @overload
    def left_join(
        self,
        stream: KStream[K, VO],
        with_: Callable[[V, VO | None], VR],
        windows: JoinWindows,
        /,
        *,
        with_key: Literal[False] = False,
        key: Serde[K] | None = None,
        value: Serde[VR] | None = None,
        name: str | None = None,
        **joined: Unpack[StreamJoined[V, VO]],
    ) -> KStream[K, VR]: ...
    @overload
    def left_join(
        self,
        stream: KStream[K, VO],
        with_: Callable[[K, V, VO | None], VR],
        windows: JoinWindows,
        /,
        *,
        with_key: Literal[True],
        key: Serde[K] | None = None,
        value: Serde[VR] | None = None,
        name: str | None = None,
        **joined: Unpack[StreamJoined[V, VO]],
    ) -> KStream[K, VR]: ...
    @overload
    def left_join(
        self,
        table: KTable[K, VO],
        with_: Callable[[V, VO | None], VR],
        *,
        with_key: Literal[False] = False,
        grace: timedelta | None = None,
        key: Serde[K] | None = None,
        value: Serde[VR] | None = None,
        name: str | None = None,
    ) -> KStream[K, VR]: ...
    @overload
    def left_join(
        self,
        table: KTable[K, VO],
        with_: Callable[[K, V, VO | None], VR],
        *,
        with_key: Literal[True],
        grace: timedelta | None = None,
        key: Serde[K] | None = None,
        value: Serde[VR] | None = None,
        name: str | None = None,
    ) -> KStream[K, VR]: ...
    @overload
    def left_join(
        self,
        table: GlobalKTable[KG, VO],
        with_: Callable[[V, VO | None], VR],
        *,
        on: Callable[[K, V], KG | None],
        with_key: Literal[False] = False,
        value: Serde[VR] | None = None,
        name: str | None = None,
    ) -> KStream[K, VR]: ...
    @overload
    def left_join(
        self,
        table: GlobalKTable[KG, VO],
        with_: Callable[[K, V, VO | None], VR],
        *,
        on: Callable[[K, V], KG | None],
        with_key: Literal[True],
        value: Serde[VR] | None = None,
        name: str | None = None,
    ) -> KStream[K, VR]: ...
    def left_join(  # noqa: PLR0913 - options are keywords
        self,
        table: Any,
        with_: Callable[..., VR],
        windows: JoinWindows | None = None,
        *,
        on: Callable[[K, V], Any] | None = None,
        grace: timedelta | None = None,
        with_key: bool = False,
        key: Serde[K] | None = None,
        value: Serde[VR] | None = None,
        name: str | None = None,
        **joined: Unpack[StreamJoined[Any, Any]],
    ) -> KStream[K, VR]:
        """Join each record as `join` does, and with None if there is nothing to join it with.

        *With a table*: a record is joined with None if the table has no row of its key. *With a stream*: a record of
        this stream that no record of the other one joins is joined with None, once its window and the grace have passed
        in stream time. Such a result has the record's time, and comes before the result of the record that moved
        stream time on; while a worker runs, they are looked for once a second at most.

        Records without a key are joined with None at once (KIP-962). Records without a value are dropped, and counted
        as dropped. See `join` for the arguments.

        Example:
            >>> signed = lines.left_join(customers, lambda line, customer: f"{customer or 'unknown'}: {line}")
            >>> signed.to("signed", value=mp.String)
        """
        if isinstance(table, TableJoins):
            _check_no_grace("left_join()", grace)
            return join_streams(
                "left_join()", self, table, with_, windows, on, key, value, name, joined,
                with_key=with_key, left_outer=True,
            )  # fmt: skip
        _check_no_windows("left_join()", windows, joined)
        return self._join(table, with_, on, grace, key, value, name, with_key=with_key, left=True)

    @overload
    def outer_join(
        self,
        stream: KStream[K, VO],
        with_: Callable[[V | None, VO | None], VR],
        windows: JoinWindows,
        /,
        *,
        with_key: Literal[False] = False,
        key: Serde[K] | None = None,
        value: Serde[VR] | None = None,
        name: str | None = None,
        **joined: Unpack[StreamJoined[V, VO]],
    ) -> KStream[K, VR]: ...
    @overload
    def outer_join(
        self,
        stream: KStream[K, VO],
        with_: Callable[[K, V | None, VO | None], VR],
        windows: JoinWindows,
        /,
        *,
        with_key: Literal[True],
        key: Serde[K] | None = None,
        value: Serde[VR] | None = None,
        name: str | None = None,
        **joined: Unpack[StreamJoined[V, VO]],
    ) -> KStream[K, VR]: ...
    def outer_join(  # noqa: PLR0913 - options are keywords
        self,
        stream: KStream[K, Any],
        with_: Callable[..., VR],
        windows: JoinWindows,
        /,
        *,
        with_key: bool = False,
        key: Serde[K] | None = None,
        value: Serde[VR] | None = None,
        name: str | None = None,
        **joined: Unpack[StreamJoined[Any, Any]],
    ) -> KStream[K, VR]:
        """Join the records of both streams as `left_join` does; those of the other stream are joined with None, too.

            orders.outer_join(payments, matched, mp.JoinWindows.of_time_difference_with_no_grace(timedelta(hours=1)))

        Args:
            stream: a KStream with the same keys and the same number of partitions.
            with_: f(value or None, other value or None) -> value of the result; with `with_key=True` the key comes
                first. At most one of the values is None.
            windows: how far apart the times of two records may be.
            with_key: whether `with_` takes the key, too.
            key: serde of the keys, in case a stream is repartitioned for the join, and of the join's stores.
            value: serde of the result's values.
            name: the beginning of the names of the nodes and of the repartition topics.
            joined: see `StreamJoined`.

        Raises:
            TopologyError: the other side is no stream of the same StreamsBuilder, or an option is wrong.

        Example:
            >>> windows = mp.JoinWindows.of_time_difference_and_grace(timedelta(minutes=5), timedelta(minutes=1))
            >>> either = lines.outer_join(amounts, lambda line, amount: f"{line}: {amount}", windows)
            >>> either.to("either", value=mp.String)
        """
        if not isinstance(stream, TableJoins):
            raise TopologyError(
                f"outer_join() of a stream needs another KStream, not {kind_of(stream)}; a stream joins a table with "
                "join() or left_join()."
            )
        return join_streams(
            "outer_join()", self, stream, with_, windows, None, key, value, name, joined,
            with_key=with_key, left_outer=True, right_outer=True,
        )  # fmt: skip

    def _join(  # noqa: PLR0913 - the arguments of join()
        self,
        table: Any,
        with_: Callable[..., Any],
        on: Callable[[K, V], Any] | None,
        grace: timedelta | None,
        key: Serde[K] | None,
        value: Serde[Any] | None,
        name: str | None,
        *,
        with_key: bool,
        left: bool,
    ) -> KStream[K, Any]:
        from .global_table import GlobalKTable
        from .ktable import KTable

        what = "left_join()" if left else "join()"
        stream = cast("KStream[K, V]", self)
        if isinstance(table, GlobalKTable):
            if grace is not None:
                raise TopologyError(
                    f"{what} with a global table takes no grace=, because it is not versioned; leave grace= out."
                )
            if on is None:
                raise TopologyError("A join with a global table needs on=, a function that returns the table's key.")
            check_same_builder("The stream and the global table", stream, table)
            check_function(f"{what}'s on", on, "key", "value")
            check_value_function(what, with_, "value", "table's value", with_key=with_key)
            return join_global_table(stream, table, on, with_, value, name, with_key=with_key, left=left)
        if not isinstance(table, KTable):
            raise TopologyError(_no_table(what, table))
        if on is not None:
            raise TopologyError(
                "A join with a KTable takes no on=: it is by the stream's key; use select_key(), or a global table."
            )
        check_value_function(what, with_, "value", "table's value", with_key=with_key)
        return join_table(what, stream, table, with_, grace, key, value, name, with_key=with_key, left=left)


def _check_no_grace(what: str, grace: object) -> None:
    if grace is not None:
        raise TopologyError(
            f"{what} of two streams takes no grace=: it belongs to the windows; use "
            "JoinWindows.of_time_difference_and_grace(…)."
        )


def _check_no_windows(what: str, windows: object, joined: Mapping[str, object]) -> None:
    if windows is not None:
        raise TopologyError(
            f"{what} with a table takes no windows, but was given {kind_of(windows)}: it joins with the table's "
            "current row; leave the windows out, or join with a stream."
        )
    for name in joined:
        raise TopologyError(f"{what} with a table has no argument '{name}', because it has no store; leave it out.")


def _no_table(what: str, given: object) -> str:
    hint = f"; builder.table({given!r}) reads a topic as one" if isinstance(given, str) else ""
    return f"{what} needs a KTable, a GlobalKTable or a KStream, not {kind_of(given)}{hint}."
