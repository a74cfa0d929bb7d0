"""The changes that a caching window store forwards at a flush: one per key and window, in the order of last puts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from millpond.serdes import Windowed

from .flush_columns import Change
from .staged_store import FlushListener, Headers, StoreContext, forward_changes

__all__ = ("forward_window_changes", "keeping_records")

_MAX_LONG = 2**63 - 1

_Change = tuple[int, bytes, Any, Any, Any, int]
"""Window start, raw key, key, value at the last flush, new value, timestamp."""

_Place = tuple[int, bytes]
"""Window start and raw key."""


def _sort_by_last_put(changes: list[_Change], order: dict[_Place, int]) -> None:
    """Sort changes, which are listed by window, by the numbers of their last puts; those without a number come first.

    Empties `order`.
    """
    changes.sort(key=lambda change: order.get((change[0], change[1]), -1))
    order.clear()


def keeping_records(
    stage: Callable[..., None],
    context: StoreContext,
    headers: dict[_Place, Headers],
    origins: dict[_Place, Any] | None,
) -> Callable[..., None]:
    """Return a `stage` that also keeps the headers of the putting record, and its origin unless `origins` is None."""

    def stage_and_keep(  # noqa: PLR0913  # the hot path
        raw_key: bytes, start: int, key: Any, value: Any, timestamp: int, old: Any, /
    ) -> None:
        stage(raw_key, start, key, value, timestamp, old)
        if context.headers:
            headers[start, raw_key] = context.headers
        elif headers:
            headers.pop((start, raw_key), None)
        if origins is not None:
            origins[start, raw_key] = context.message if context.origin is None else context.origin

    return stage_and_keep


def forward_window_changes(  # noqa: PLR0913  # the columns, once per flush
    listener: FlushListener | None,
    context: StoreContext | None,
    changed: Sequence[tuple[int, Mapping[bytes, Change]]],
    *,
    size_ms: int,
    headers: dict[_Place, Headers],
    origins: dict[_Place, Any],
    order: dict[_Place, int],
    decode: Callable[[bytes], Any] | None,
) -> None:
    """Call the listener for each change, with a windowed key; see `forward_changes`.

    Empties `headers`, `origins` and `order`.

    Args:
        listener: the listener to call; None to call nothing.
        context: the context of the task.
        changed: the start and the changes of each window.
        size_ms: the size of the windows.
        headers: the headers of the record of the last put, by place.
        origins: the origin of the record of the last put, by place.
        order: the number of the last put, by place, once several windows have puts.
        decode: decodes values that are kept as bytes; None for objects.
    """
    changes: list[_Change] = [
        (start, raw_key, key, old, new, timestamp)
        for start, of_window in changed
        for raw_key, (key, old, _, new, timestamp, _) in of_window.items()
    ]
    if order:
        _sort_by_last_put(changes, order)
    records = None
    if headers or origins:
        places = [(start, raw_key) for start, raw_key, *_ in changes]
        records = list(zip(map(headers.get, places), map(origins.get, places), strict=True))
        headers.clear()
        origins.clear()
    if listener is None:
        return
    forward_changes(
        listener,
        context,
        [
            (Windowed(key, start, min(start + size_ms, _MAX_LONG)), old, new, timestamp)
            for start, _, key, old, new, timestamp in changes
        ],
        records,
        decode,
    )
