"""Final results of windows: which windows have not been sent yet, and when they are sent (KIP-825).

Kafka Streams looks for closed windows in its store. Here the windows that have not been sent are kept in memory by
their time, as serialised keys, and found in the store when the task starts. The close time up to which all windows have
been sent is committed with the task's offsets, so that a restart sends no window twice. Kafka Streams' own commits have
it, too, under the name of the store.

Closed windows are sent at most once per interval of wall-clock time. A window that the store would lose until then is
sent before the put that deletes it. Kafka Streams does not send windows that have left the store's retention.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heapify, heappop, heappush
from typing import Any

from millpond.topology import NodeContext

__all__ = ("EMIT_INTERVAL", "FinalResults", "Send")

EMIT_INTERVAL = "__emit.interval.ms.kstreams.windowed.aggregation__"
"""The setting of Kafka Streams for the time between two searches for closed windows, in ms."""

_DEFAULT_INTERVAL_MS = 1000

Send = Callable[[int, set[Any]], None]
"""f(time, places): sends the results of all windows with this time, in their order."""


class FinalResults:
    """The windows of one task that have not been sent, by start; sessions by end.

    Attributes:
        times: a heap of the times that have windows; some may be left without.
        first_unsent: the smallest time of a window that may not have been sent; None if the strategy is new here.
        note: f(time, place) adds a window that has not been sent.
        by_time: the windows by their time.
    """

    __slots__ = (
        "_interval",
        "_loses",
        "_next_ms",
        "_now",
        "_reach",
        "_send",
        "by_time",
        "first_unsent",
        "last_close",
        "note",
        "times",
    )

    def __init__(self, node: NodeContext, store: Any, reach: int, send: Send) -> None:
        """Make it empty; `restore` finds the windows in the store.

        Args:
            node: the node of the aggregation.
            store: its store.
            reach: a window has closed if its time is at most the close time less this, in ms.
            send: see `Send`.
        """
        self.by_time: dict[int, set[Any]] = {}
        self.times: list[int] = []
        self.note: Callable[[int, Any], None] = _noting(self.by_time, self.times)
        interval = node.task.config.get(EMIT_INTERVAL, _DEFAULT_INTERVAL_MS)
        self._interval: int = interval if isinstance(interval, int) else _DEFAULT_INTERVAL_MS
        self._now: Callable[[], int] = node.task.now_ms
        self._next_ms = 0
        self._reach = reach
        self._send = send
        self._loses: Callable[[int, int], bool] = store.loses
        restored = node.share(store.name, lambda: self.last_close)
        self.last_close: int = -1 if restored is None else restored
        self.first_unsent: int | None = None if restored is None else restored - reach + 1

    def restore(self, windows: list[tuple[int, Any]]) -> None:
        """Add the windows that the store has, each with its time."""
        for time, place in windows:
            self.by_time.setdefault(time, set()).add(place)
        self.times[:] = self.by_time
        heapify(self.times)

    def check(self, close: int) -> None:
        """Send the windows that have closed, unless it is too early.

        Args:
            close: stream time less grace; windows that end at it or before have closed.
        """
        interval = self._interval
        if interval:
            now = self._now()
            if now < self._next_ms:
                return
            self._next_ms = now + interval
        if self.last_close < close or self.last_close == -1:
            self._emit(close)

    def save(self, newest: int, close: int) -> None:
        """Send the windows that have closed if a put at this time makes the store lose one of them."""
        if self._loses(self.times[0], newest):
            self._emit(close)

    def _emit(self, close: int) -> None:
        last = close - self._reach
        if last < 0:
            return
        self.last_close = close
        times, by_time, send = self.times, self.by_time, self._send
        while times and times[0] <= last:
            time = heappop(times)
            send(time, by_time.pop(time))


def _noting(by_time: dict[int, set[Any]], times: list[int]) -> Callable[[int, Any], None]:
    def note(time: int, place: Any) -> None:
        places = by_time.get(time)
        if places is None:
            by_time[time] = {place}
            heappush(times, time)
        else:
            places.add(place)

    return note
