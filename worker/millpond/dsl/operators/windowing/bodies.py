"""The body of an aggregation, by the kind of its windows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from millpond.dsl.operators.window_aggregation import AggregateWindows, CountWindows, ReduceWindows
from millpond.dsl.windows import FixedWindows, SlidingWindows, TimeWindows, UnlimitedWindows
from millpond.topology import Body

from .final_windows import AggregateFinalWindows
from .sliding import AggregateSlidingWindows
from .unlimited import AggregateUnlimitedWindows

__all__ = ("aggregation", "counting", "reduction")


def counting(store: str, windows: FixedWindows, *, send_old: bool, final: bool = False) -> Body:
    """Return the body of `count()`."""
    if final and isinstance(windows, TimeWindows):
        return AggregateFinalWindows(store, windows, int, _count, counting=True)
    if isinstance(windows, TimeWindows):
        return CountWindows(store, windows)
    if isinstance(windows, SlidingWindows):
        return AggregateSlidingWindows(store, windows, int, _count, send_old, final, counting=True)
    return aggregation(store, windows, int, _count, send_old=send_old, final=final)


def reduction(
    store: str, windows: FixedWindows, reducer: Callable[[Any, Any], Any], *, send_old: bool, final: bool = False
) -> Body:
    """Return the body of `reduce()`; the first value is the first aggregate."""
    if not final and isinstance(windows, TimeWindows):
        return ReduceWindows(store, windows, reducer, send_old)
    return aggregation(store, windows, _nothing, _reducing(reducer), send_old=send_old, final=final)


def aggregation(  # noqa: PLR0913 - the functions and options of an aggregation
    store: str,
    windows: FixedWindows,
    initializer: Callable[[], Any],
    aggregator: Callable[[Any, Any, Any], Any],
    *,
    send_old: bool,
    final: bool = False,
) -> Body:
    """Return the body of `aggregate()`; `final` if it forwards final results only."""
    if final and isinstance(windows, TimeWindows):
        return AggregateFinalWindows(store, windows, initializer, aggregator)
    if isinstance(windows, TimeWindows):
        return AggregateWindows(store, windows, initializer, aggregator, send_old)
    if isinstance(windows, UnlimitedWindows):
        return AggregateUnlimitedWindows(store, windows, initializer, aggregator, send_old)
    return AggregateSlidingWindows(store, windows, initializer, aggregator, send_old, final)


def _count(_key: Any, _value: Any, aggregate: int) -> int:
    return aggregate + 1


def _nothing() -> None:
    return None


def _reducing(reducer: Callable[[Any, Any], Any]) -> Callable[[Any, Any, Any], Any]:
    def step(_key: Any, value: Any, aggregate: Any) -> Any:
        return value if aggregate is None else reducer(aggregate, value)

    return step
