"""CogroupedKStream and its windowed forms: several grouped streams, to be aggregated into one table (KIP-150)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, TypeVar, Unpack, overload

from millpond.calls import checked
from millpond.checks import check_function, kind_of
from millpond.dsl.aggregators import check_aggregator
from millpond.dsl.cogroups.cogrouping import Cogrouping
from millpond.dsl.functions import check_initializer
from millpond.dsl.materialized import Materialized, MaterializedWindows
from millpond.dsl.operators.lookup import StoreLookup, WindowLookup
from millpond.dsl.operators.sessions.aggregation import AggregateSessions, SessionLookup
from millpond.dsl.operators.stream_aggregation import AggregateStream
from millpond.dsl.operators.windowing.bodies import aggregation
from millpond.dsl.sessions.windows import SessionWindows
from millpond.dsl.windows import FixedWindows, check_fixed_windows
from millpond.errors import TopologyError
from millpond.serdes import SessionWindowedSerde, Windowed
from millpond.serdes.windowed import time_windowed
from millpond.topology import Body

if TYPE_CHECKING:
    from millpond.dsl.grouped_stream import KGroupedStream
    from millpond.dsl.ktable import KTable

__all__ = ("CogroupedKStream", "SessionWindowedCogroupedKStream", "TimeWindowedCogroupedKStream")

K = TypeVar("K")
V = TypeVar("V")
VR = TypeVar("VR")


@checked
class CogroupedKStream(Generic[K, VR]):
    """Streams that are grouped by the same keys, and aggregated into one table with one store (KIP-150).

    `KGroupedStream.cogroup()` makes one. VR is the type of the aggregates. Records without a key or a value are
    dropped, and counted as dropped.

    The number of clicks and the sum of purchases of each customer:

        >>> import millpond as mp
        >>> builder = mp.StreamsBuilder()
        >>> clicks = builder.stream("clicks", key=mp.String, value=mp.String).group_by_key()
        >>> purchases = builder.stream("purchases", key=mp.String, value=mp.Long).group_by_key()
        >>> customers = (
        ...     clicks.cogroup(lambda key, click, total: total + 1)
        ...     .cogroup(purchases, lambda key, amount, total: total + amount)
        ...     .aggregate(lambda: 0, value=mp.Long)
        ... )
        >>> customers.to_stream().to("customers")
    """

    def __init__(self, cogrouping: Cogrouping) -> None:
        self._cogrouping = cogrouping

    def cogroup(
        self, grouped: KGroupedStream[K, V], aggregator: Callable[[K, V, VR], VR | None]
    ) -> CogroupedKStream[K, VR]:
        """Add a grouped stream, and return this same object.

        Args:
            grouped: a stream grouped by keys of the same type; its topics need as many partitions as those of the
                other streams, unless it is repartitioned.
            aggregator: f(key, value, aggregate) -> new aggregate; it may change and return the old one.
                None deletes the row.

        Raises:
            TopologyError: the stream comes from another StreamsBuilder, or is cogrouped already.

        Example:
            >>> cogrouped = amounts.group_by_key().cogroup(lambda key, amount, total: total + amount)
            >>> cogrouped = cogrouped.cogroup(lines.group_by_key(), lambda key, line, total: total + len(line))
            >>> both = cogrouped.aggregate(lambda: 0, store="both", value=mp.Long)
        """
        from millpond.dsl.grouped_stream import KGroupedStream

        if not isinstance(grouped, KGroupedStream):
            raise TopologyError(
                f"cogroup() needs a grouped stream, such as stream.group_by_key(), not {kind_of(grouped)}."
            )
        aggregator = check_aggregator("cogroup()", aggregator)
        self._cogrouping.add(grouped._grouping, aggregator)  # noqa: SLF001 - what a user sees has no grouping
        return self

    def aggregate(
        self, initializer: Callable[[], VR], *, name: str | None = None, **materialized: Unpack[Materialized[K, VR]]
    ) -> KTable[K, VR]:
        """Aggregate all streams per key, each with its own aggregator.

        Args:
            initializer: f() -> the aggregate before a key's first value.
            name: name of the nodes: `<name>-cogroup-agg-0` and so on, and `<name>-cogroup-merge`.
            materialized: see `Materialized`; `value=` is the serde of the aggregates, and `key=` is that of the first
                stream by default.

        Example:
            >>> cogrouped = amounts.group_by_key().cogroup(lambda key, amount, total: total + amount)
            >>> totals = cogrouped.aggregate(lambda: 0, store="totals", value=mp.Long)
        """
        check_initializer("aggregate()", initializer)
        storage = self._cogrouping.storage(materialized)

        def make(aggregator: Callable[[Any, Any, Any], Any], *, send_old: bool) -> Body:
            return AggregateStream(storage.name, initializer, aggregator, send_old)

        builder = storage.key_value()
        return self._cogrouping.aggregate(name, storage, builder, StoreLookup(storage.name), make, storage.key)

    @overload
    def windowed_by(self, windows: FixedWindows) -> TimeWindowedCogroupedKStream[K, VR]: ...

    @overload
    def windowed_by(self, windows: SessionWindows) -> SessionWindowedCogroupedKStream[K, VR]: ...

    def windowed_by(
        self, windows: FixedWindows | SessionWindows
    ) -> TimeWindowedCogroupedKStream[K, VR] | SessionWindowedCogroupedKStream[K, VR]:
        """Group by window too, so that each aggregate is of one key and one window of event time.

        Args:
            windows: tumbling, hopping, sliding or unlimited windows, or sessions.

        Raises:
            TopologyError: the argument is none of these windows.

        Example:
            >>> cogrouped = amounts.group_by_key().cogroup(lambda key, amount, total: total + amount)
            >>> per_minute = cogrouped.windowed_by(minutes).aggregate(lambda: 0, store="per-minute", value=mp.Long)
        """
        if isinstance(windows, SessionWindows):
            return SessionWindowedCogroupedKStream(self._cogrouping, windows)
        check_fixed_windows(windows)
        return TimeWindowedCogroupedKStream(self._cogrouping, windows)


@checked
class TimeWindowedCogroupedKStream(Generic[K, VR]):
    """Streams that are grouped by the same keys and by window; VR is the type of the aggregates.

    Records are dropped as by a `TimeWindowedKStream`. Each stream has a stream time of its own, so that the records of
    one stream do not make those of another one late.
    """

    def __init__(self, cogrouping: Cogrouping, windows: FixedWindows) -> None:
        self._cogrouping = cogrouping
        self._windows = windows

    def aggregate(
        self,
        initializer: Callable[[], VR],
        *,
        name: str | None = None,
        **materialized: Unpack[MaterializedWindows[K, VR]],
    ) -> KTable[Windowed[K], VR]:
        """Aggregate all streams per key and window, each with its own aggregator.

        Args:
            initializer: f() -> the aggregate before a window's first value.
            name: name of the nodes: `<name>-cogroup-agg-0` and so on, and `<name>-cogroup-merge`.
            materialized: see `MaterializedWindows`; `value=` is the serde of the aggregates, and `key=` is that of the
                first stream by default.

        Example:
            >>> cogrouped = amounts.group_by_key().cogroup(lambda key, amount, total: total + amount)
            >>> per_minute = cogrouped.windowed_by(minutes).aggregate(lambda: 0, store="per-minute", value=mp.Long)
        """
        check_initializer("aggregate()", initializer)
        windows = self._windows
        storage = self._cogrouping.storage(materialized)
        builder = storage.windows(windows)

        def make(aggregator: Callable[[Any, Any, Any], Any], *, send_old: bool) -> Body:
            return aggregation(storage.name, windows, initializer, aggregator, send_old=send_old)

        key = None if storage.key is None else time_windowed(storage.key, windows.size_ms)
        return self._cogrouping.aggregate(
            name, storage, builder, WindowLookup(storage.name), make, key, windows.open_ms
        )


@checked
class SessionWindowedCogroupedKStream(Generic[K, VR]):
    """Streams that are grouped by the same keys and by session; VR is the type of the aggregates.

    A session has the records of all streams. Records are dropped as by a `SessionWindowedKStream`. Each stream has a
    stream time of its own, so that the records of one stream do not make those of another one late.
    """

    def __init__(self, cogrouping: Cogrouping, windows: SessionWindows) -> None:
        self._cogrouping = cogrouping
        self._windows = windows

    def aggregate(
        self,
        initializer: Callable[[], VR],
        session_merger: Callable[[K, VR, VR], VR],
        *,
        name: str | None = None,
        **materialized: Unpack[MaterializedWindows[K, VR]],
    ) -> KTable[Windowed[K], VR]:
        """Aggregate all streams per key and session, each with its own aggregator.

        Args:
            initializer: f() -> the aggregate before a session's first value; it is called for each record.
            session_merger: f(key, aggregate, aggregate) -> the aggregate of two sessions. It is called for each session
                that a record joins, from the initializer's aggregate on, before the aggregator.
            name: name of the nodes: `<name>-cogroup-agg-0` and so on, and `<name>-cogroup-merge`.
            materialized: see `MaterializedWindows`; `value=` is the serde of the aggregates, and `key=` is that of the
                first stream by default.

        Example:
            >>> cogrouped = amounts.group_by_key().cogroup(lambda key, amount, total: total + amount)
            >>> sessions = cogrouped.windowed_by(mp.SessionWindows(timedelta(minutes=30)))
            >>> totals = sessions.aggregate(lambda: 0, lambda key, one, two: one + two, store="totals", value=mp.Long)
        """
        check_initializer("aggregate()", initializer)
        check_function("aggregate()", session_merger, "key", "aggregate", "aggregate")
        windows = self._windows
        storage = self._cogrouping.storage(materialized)
        builder = storage.sessions(windows)

        def make(aggregator: Callable[[Any, Any, Any], Any], *, send_old: bool) -> Body:
            return AggregateSessions(storage.name, windows, initializer, aggregator, session_merger, send_old)

        key = None if storage.key is None else SessionWindowedSerde(storage.key)
        return self._cogrouping.aggregate(
            name, storage, builder, SessionLookup(storage.name), make, key, windows.open_ms
        )
