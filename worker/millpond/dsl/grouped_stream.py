"""KGroupedStream and TimeWindowedKStream: streams grouped by key, to be aggregated."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, TypeVar, Unpack, overload

from millpond.calls import checked
from millpond.checks import check_function
from millpond.dsl.aggregators import check_aggregator
from millpond.dsl.operators.lookup import StoreLookup, WindowLookup
from millpond.dsl.operators.stream_aggregation import AggregateStream, CountStream, ReduceStream
from millpond.dsl.operators.windowing.bodies import aggregation, counting, reduction
from millpond.errors import TopologyError
from millpond.serdes import Serde, Windowed
from millpond.serdes.windowed import time_windowed
from millpond.topology import Body

from .cogroups.cogrouping import Cogrouping
from .cogroups.streams import CogroupedKStream
from .emit_strategy import EmitStrategy, check_strategy
from .functions import check_initializer
from .graph import Graph, GraphNode
from .grouping import Grouping
from .grouping import resolve as _resolve
from .grouping import resolve_count as _resolve_count
from .grouping import resolve_sliding_count as _resolve_sliding_count
from .materialized import Materialized, MaterializedWindows, Storage
from .sessions.windowed import SessionWindowedKStream
from .sessions.windows import SessionWindows
from .windows import FixedWindows, SlidingWindows, UnlimitedWindows, check_fixed_windows

if TYPE_CHECKING:
    from .ktable import KTable

__all__ = ("KGroupedStream", "TimeWindowedKStream")

K = TypeVar("K")
V = TypeVar("V")
VR = TypeVar("VR")


@checked
class KGroupedStream(Generic[K, V]):
    """A stream grouped by key. Records without a key or a value are dropped, and counted as dropped."""

    def __init__(  # noqa: PLR0913 - the state of a KStream
        self,
        graph: Graph,
        name: str,
        node: GraphNode,
        key: Serde[K] | None,
        value: Serde[V] | None,
        sources: frozenset[str],
        *,
        repartition: bool,
        topic_name: str | None,
    ) -> None:
        self._grouping = Grouping(graph, name, node, key, value, sources, repartition, topic_name)

    def count(self, *, name: str | None = None, **materialized: Unpack[Materialized[K, int]]) -> KTable[K, int]:
        """Count the records of each key.

        Args:
            name: name of the node.
            materialized: see `Materialized`.

        Returns:
            a table of numbers from 1.

        Example:
            >>> counts = lines.group_by_key().count(store="counts")
            >>> counts.to_stream().to("counts", value=mp.Long)
        """
        storage, name = _resolve_count(self._grouping, materialized, name)
        return self._aggregate(name, storage, lambda _send_old: CountStream(storage.name))

    def reduce(
        self,
        reducer: Callable[[V, V], V | None],
        *,
        name: str | None = None,
        **materialized: Unpack[Materialized[K, V]],
    ) -> KTable[K, V]:
        """Combine the values of each key. The first value is the first aggregate.

        Args:
            reducer: f(aggregate, value) -> new aggregate; it may change and return the old one.
                None deletes the row.
            name: name of the node.
            materialized: see `Materialized`.

        Example:
            >>> largest = amounts.group_by_key().reduce(max, store="largest")
        """
        check_function("reduce()", reducer, "aggregate", "value")
        storage, name = _resolve(self._grouping, materialized, name, "KSTREAM-REDUCE-", self._grouping.value)
        return self._aggregate(name, storage, lambda send_old: ReduceStream(storage.name, reducer, send_old))

    def aggregate(
        self,
        initializer: Callable[[], VR],
        aggregator: Callable[[K, V, VR], VR | None],
        *,
        name: str | None = None,
        **materialized: Unpack[Materialized[K, VR]],
    ) -> KTable[K, VR]:
        """Combine the values of each key into another type.

        Args:
            initializer: f() -> the aggregate before a key's first value.
            aggregator: f(key, value, aggregate) -> new aggregate; it may change and return the old one.
                None deletes the row.
            name: name of the node.
            materialized: see `Materialized`; `value=` is the serde of the aggregates.

        Example:
            >>> lengths = lines.group_by_key().aggregate(
            ...     lambda: 0, lambda key, line, total: total + len(line), store="lengths", value=mp.Long
            ... )
        """
        check_initializer("aggregate()", initializer)
        aggregator = check_aggregator("aggregate()", aggregator)
        storage, name = _resolve(self._grouping, materialized, name, "KSTREAM-AGGREGATE-", None)
        return self._aggregate(
            name, storage, lambda send_old: AggregateStream(storage.name, initializer, aggregator, send_old)
        )

    def cogroup(self, aggregator: Callable[[K, V, VR], VR | None]) -> CogroupedKStream[K, VR]:
        """Begin an aggregate of several streams, of which this is the first (KIP-150).

        Args:
            aggregator: f(key, value, aggregate) -> new aggregate; it may change and return the old one.
                None deletes the row.

        Returns:
            an object to which `cogroup()` adds other grouped streams, each with its own aggregator.

        Example:
            >>> both = (
            ...     amounts.group_by_key()
            ...     .cogroup(lambda key, amount, total: total + amount)
            ...     .cogroup(lines.group_by_key(), lambda key, line, total: total + len(line))
            ...     .aggregate(lambda: 0, store="both", value=mp.Long)
            ... )
        """
        aggregator = check_aggregator("cogroup()", aggregator)
        return CogroupedKStream(Cogrouping(self._grouping, aggregator))

    @overload
    def windowed_by(self, windows: FixedWindows) -> TimeWindowedKStream[K, V]: ...

    @overload
    def windowed_by(self, windows: SessionWindows) -> SessionWindowedKStream[K, V]: ...

    def windowed_by(
        self, windows: FixedWindows | SessionWindows
    ) -> TimeWindowedKStream[K, V] | SessionWindowedKStream[K, V]:
        """Group by window too, so that each aggregate is of one key and one window of event time.

        Args:
            windows: tumbling, hopping, sliding or unlimited windows, or sessions.

        Raises:
            TopologyError: the argument is none of these windows.

        Example:
            >>> per_minute = lines.group_by_key().windowed_by(minutes).count(store="per-minute")
            >>> sessions = lines.group_by_key().windowed_by(mp.SessionWindows(timedelta(minutes=30)))
            >>> visits = sessions.count(store="visits")
        """
        if isinstance(windows, SessionWindows):
            return SessionWindowedKStream(self._grouping, windows)
        check_fixed_windows(windows)
        return TimeWindowedKStream(self._grouping, windows)

    def _aggregate(self, name: str, storage: Storage, make: Callable[[bool], Body]) -> KTable[K, Any]:
        return self._grouping.aggregate(name, storage, storage.key_value, StoreLookup(storage.name), make, storage.key)


@checked
class TimeWindowedKStream(Generic[K, V]):
    """A stream grouped by key and window.

    Records without a key, and those whose window has closed (stream time has reached its end plus grace), are dropped,
    and counted as dropped. Sliding windows drop records without a value, too, and close when stream time has passed
    their end, which is inclusive, plus grace.
    """

    def __init__(self, grouping: Grouping, windows: FixedWindows) -> None:
        self._grouping = grouping
        self._windows = windows
        self._final = False

    def emit_strategy(self, strategy: EmitStrategy) -> TimeWindowedKStream[K, V]:
        """Set when results are sent, and return this same object (KIP-825).

        Args:
            strategy: `EmitStrategy.on_window_update()`, which is the default, or `EmitStrategy.on_window_close()`.

        Raises:
            TopologyError: the windows never close, or the argument is no strategy.

        Example:
            >>> windowed = lines.group_by_key().windowed_by(minutes)
            >>> final = windowed.emit_strategy(mp.EmitStrategy.on_window_close()).count(store="final-counts")
        """
        check_strategy(strategy)
        if strategy.final and isinstance(self._windows, UnlimitedWindows):
            raise TopologyError(
                "emit_strategy() cannot wait until unlimited windows close, because they never do; use windows of a "
                "size, or EmitStrategy.on_window_update()."
            )
        self._final = strategy.final
        return self

    def count(
        self, *, name: str | None = None, **materialized: Unpack[MaterializedWindows[K, int]]
    ) -> KTable[Windowed[K], int]:
        """Count the records of each key and window; without a value they count too, but not in sliding windows.

        Args:
            name: name of the node.
            materialized: see `MaterializedWindows`.

        Example:
            >>> per_minute = lines.group_by_key().windowed_by(minutes).count(store="per-minute")
            >>> windowed = mp.TimeWindowedSerde(mp.String, timedelta(minutes=1))
            >>> per_minute.to_stream().to("per-minute", key=windowed, value=mp.Long)
        """
        # As in Kafka Streams, only sliding windows take no second index.
        resolve = _resolve_sliding_count if isinstance(self._windows, SlidingWindows) else _resolve_count
        storage, name = resolve(self._grouping, materialized, name)
        windows, final = self._windows, self._final
        return self._aggregate(
            name, storage, lambda send_old: counting(storage.name, windows, send_old=send_old, final=final)
        )

    def reduce(
        self,
        reducer: Callable[[V, V], V | None],
        *,
        name: str | None = None,
        **materialized: Unpack[MaterializedWindows[K, V]],
    ) -> KTable[Windowed[K], V]:
        """Combine the values of each key and window. The first value is the first aggregate.

        Args:
            reducer: f(aggregate, value) -> new aggregate; it may change and return the old one.
                None deletes the row.
            name: name of the node.
            materialized: see `MaterializedWindows`.

        Example:
            >>> largest = amounts.group_by_key().windowed_by(minutes).reduce(max, store="largest")
        """
        check_function("reduce()", reducer, "aggregate", "value")
        storage, name = _resolve(self._grouping, materialized, name, "KSTREAM-REDUCE-", self._grouping.value)
        windows, final = self._windows, self._final
        return self._aggregate(
            name, storage, lambda send_old: reduction(storage.name, windows, reducer, send_old=send_old, final=final)
        )

    def aggregate(
        self,
        initializer: Callable[[], VR],
        aggregator: Callable[[K, V, VR], VR | None],
        *,
        name: str | None = None,
        **materialized: Unpack[MaterializedWindows[K, VR]],
    ) -> KTable[Windowed[K], VR]:
        """Combine the values of each key and window into another type.

        Args:
            initializer: f() -> the aggregate before a window's first value.
            aggregator: f(key, value, aggregate) -> new aggregate; it may change and return the old one.
                None deletes the row.
            name: name of the node.
            materialized: see `MaterializedWindows`; `value=` is the serde of the aggregates.

        Example:
            >>> lengths = (
            ...     lines.group_by_key()
            ...     .windowed_by(minutes)
            ...     .aggregate(lambda: 0, lambda key, line, total: total + len(line), store="lengths", value=mp.Long)
            ... )
        """
        check_initializer("aggregate()", initializer)
        aggregator = check_aggregator("aggregate()", aggregator)
        storage, name = _resolve(self._grouping, materialized, name, "KSTREAM-AGGREGATE-", None)
        windows, final = self._windows, self._final
        return self._aggregate(
            name,
            storage,
            lambda send_old: aggregation(
                storage.name, windows, initializer, aggregator, send_old=send_old, final=final
            ),
        )

    def _aggregate(self, name: str, storage: Storage, make: Callable[[bool], Body]) -> KTable[Windowed[K], Any]:
        windows, final = self._windows, self._final
        storage.windows(windows)  # raises for a retention that is too short here, and not only in build()
        key = None if storage.key is None else time_windowed(storage.key, windows.size_ms)
        return self._grouping.aggregate(
            name,
            storage,
            lambda: storage.windows(windows, final=final),
            WindowLookup(storage.name),
            make,
            key,
            windows.open_ms,
        )
