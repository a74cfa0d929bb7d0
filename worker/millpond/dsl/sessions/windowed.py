"""SessionWindowedKStream: a stream grouped by key and session, to be aggregated."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, TypeVar, Unpack

from millpond.calls import checked
from millpond.checks import check_function
from millpond.dsl.aggregators import check_aggregator
from millpond.dsl.emit_strategy import EmitStrategy, check_strategy
from millpond.dsl.functions import check_initializer
from millpond.dsl.grouping import Grouping, resolve, resolve_count
from millpond.dsl.materialized import MaterializedWindows, Storage
from millpond.dsl.operators.sessions.aggregation import (
    AggregateSessions,
    CountSessions,
    ReduceSessions,
    SessionLookup,
    final_count,
    final_reduce,
)
from millpond.dsl.operators.sessions.final import AggregateFinalSessions
from millpond.serdes import SessionWindowedSerde, Windowed
from millpond.topology import Body

from .windows import SessionWindows

if TYPE_CHECKING:
    from millpond.dsl.ktable import KTable

__all__ = ("SessionWindowedKStream",)

K = TypeVar("K")
V = TypeVar("V")
VR = TypeVar("VR")


@checked
class SessionWindowedKStream(Generic[K, V]):
    """A stream grouped by key and session.

    A record merges all sessions of its key that are at most the gap away from it. If that changes a session, a deletion
    of each merged session is sent, and then the new session. A record without a key, and one whose session has closed
    (stream time has passed its end plus gap plus grace), is dropped, and counted as dropped.

    The number of clicks of each visit, where a visit ends after half an hour without a click:

        >>> from datetime import timedelta
        >>> import millpond as mp
        >>> builder = mp.StreamsBuilder()
        >>> clicks = builder.stream("clicks", key=mp.String, value=mp.String)
        >>> visits = clicks.group_by_key().windowed_by(mp.SessionWindows(timedelta(minutes=30))).count()
        >>> visits.to_stream().to("visits", key=mp.SessionWindowedSerde(mp.String), value=mp.Long)
    """

    def __init__(self, grouping: Grouping, windows: SessionWindows) -> None:
        self._grouping = grouping
        self._windows = windows
        self._final = False

    def emit_strategy(self, strategy: EmitStrategy) -> SessionWindowedKStream[K, V]:
        """Set when results are sent, and return this same object (KIP-825).

        Args:
            strategy: `EmitStrategy.on_window_update()`, which is the default, or `EmitStrategy.on_window_close()`.

        Raises:
            TopologyError: the argument is no strategy.

        Example:
            >>> sessions = lines.group_by_key().windowed_by(mp.SessionWindows(timedelta(minutes=30)))
            >>> ended = sessions.emit_strategy(mp.EmitStrategy.on_window_close()).count(store="ended-visits")
        """
        check_strategy(strategy)
        self._final = strategy.final
        return self

    def count(
        self, *, name: str | None = None, **materialized: Unpack[MaterializedWindows[K, int]]
    ) -> KTable[Windowed[K], int]:
        """Count the records of each key and session; records without a value count too.

        Args:
            name: name of the node.
            materialized: see `MaterializedWindows`.

        Example:
            >>> sessions = lines.group_by_key().windowed_by(mp.SessionWindows(timedelta(minutes=30)))
            >>> visits = sessions.count(store="visits")
        """
        storage, name = resolve_count(self._grouping, materialized, name)
        windows = self._windows
        if self._final:
            return self._aggregate(name, storage, lambda _send_old: final_count(storage.name, windows))
        return self._aggregate(name, storage, lambda _send_old: CountSessions(storage.name, windows))

    def reduce(
        self,
        reducer: Callable[[V, V], V | None],
        *,
        name: str | None = None,
        **materialized: Unpack[MaterializedWindows[K, V]],
    ) -> KTable[Windowed[K], V]:
        """Combine the values of each key and session. The first value is the first aggregate.

        Args:
            reducer: f(aggregate, value) -> new aggregate; it may change and return the old one. None deletes the row.
                It also combines the aggregates of two sessions that a record merges.
            name: name of the node.
            materialized: see `MaterializedWindows`.

        Example:
            >>> sessions = amounts.group_by_key().windowed_by(mp.SessionWindows(timedelta(minutes=30)))
            >>> totals = sessions.reduce(lambda one, two: one + two, store="totals")
        """
        check_function("reduce()", reducer, "aggregate", "value")
        storage, name = resolve(self._grouping, materialized, name, "KSTREAM-REDUCE-", self._grouping.value)
        windows = self._windows
        if self._final:
            return self._aggregate(name, storage, lambda _send_old: final_reduce(storage.name, windows, reducer))
        return self._aggregate(name, storage, lambda send_old: ReduceSessions(storage.name, windows, reducer, send_old))

    def aggregate(
        self,
        initializer: Callable[[], VR],
        aggregator: Callable[[K, V, VR], VR | None],
        session_merger: Callable[[K, VR, VR], VR],
        *,
        name: str | None = None,
        **materialized: Unpack[MaterializedWindows[K, VR]],
    ) -> KTable[Windowed[K], VR]:
        """Combine the values of each key and session into another type.

        Args:
            initializer: f() -> the aggregate before a session's first value; it is called for each record.
            aggregator: f(key, value, aggregate) -> new aggregate; it may change and return the old one.
                None deletes the row.
            session_merger: f(key, aggregate, aggregate) -> the aggregate of two sessions. It is called for each session
                that a record joins, from the initializer's aggregate on, before the aggregator.
            name: name of the node.
            materialized: see `MaterializedWindows`; `value=` is the serde of the aggregates.

        Example:
            >>> sessions = lines.group_by_key().windowed_by(mp.SessionWindows(timedelta(minutes=30)))
            >>> lengths = sessions.aggregate(
            ...     lambda: 0,
            ...     lambda key, line, total: total + len(line),
            ...     lambda key, one, two: one + two,
            ...     store="lengths",
            ...     value=mp.Long,
            ... )
        """
        check_initializer("aggregate()", initializer)
        aggregator = check_aggregator("aggregate()", aggregator)
        check_function("aggregate()", session_merger, "key", "aggregate", "aggregate")
        storage, name = resolve(self._grouping, materialized, name, "KSTREAM-AGGREGATE-", None)
        windows = self._windows
        if self._final:
            return self._aggregate(
                name,
                storage,
                lambda _send_old: AggregateFinalSessions(
                    storage.name, windows, initializer, aggregator, session_merger
                ),
            )
        return self._aggregate(
            name,
            storage,
            lambda send_old: AggregateSessions(
                storage.name, windows, initializer, aggregator, session_merger, send_old
            ),
        )

    def _aggregate(self, name: str, storage: Storage, make: Callable[[bool], Body]) -> KTable[Windowed[K], Any]:
        windows, final = self._windows, self._final
        storage.sessions(windows)  # raises for a retention that is too short here, and not only in build()
        key = None if storage.key is None else SessionWindowedSerde(storage.key)
        return self._grouping.aggregate(
            name,
            storage,
            lambda: storage.sessions(windows, final=final),
            SessionLookup(storage.name),
            make,
            key,
            windows.open_ms,
        )
