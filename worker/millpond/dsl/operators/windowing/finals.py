"""Final results of windows: which windows have not been sent yet, and when they are sent (KIP-825).

Kafka Streams looks for closed windows in its store. Here the windows that have not been sent are kept in memory by
their time, as serialised keys, and found in the store when the task starts. If they are too many, the later ones are
only in the store, and are read from it when their time comes. The close time up to which all windows have been sent is
committed with the task's offsets, so that a restart sends no window twice. Kafka Streams' own commits have it, too,
under the name of the store.

Closed windows are sent at most once per interval of wall-clock time. A window that the store would lose until then is
sent before the put that deletes it. Kafka Streams does not send windows that have left the store's retention.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from heapq import heappop, heappush
from typing import Any

from millpond.dsl.operators.guard import FATAL
from millpond.state.unreadable_rows import row_error
from millpond.topology import NodeContext

__all__ = ("EMIT_INTERVAL", "FinalResults", "Read")

EMIT_INTERVAL = "__emit.interval.ms.kstreams.windowed.aggregation__"
"""The setting of Kafka Streams for the time between two searches for closed windows, in ms."""

_DEFAULT_INTERVAL_MS = 1000
#: Windows that a task keeps in memory, some 100 bytes each; of more, the later ones are read from the store.
_MOST_WINDOWS = 250_000
_NEVER = 2**63

Read = Callable[[int, Any], tuple[Any, Any, int] | None]
"""f(time, place): reads the key, the value and the timestamp of a result; None for a window that was deleted."""

Unsent = Callable[[int | None, int], Iterator[tuple[int, Any]]]
"""f(first, last): reads the windows of these times, both inclusive, from the store: time and place. For one time, the
places are ascending. None is the first time that readers of the store see."""


def _sender(node: NodeContext, store: Any, read: Read) -> Callable[[int, Iterable[Any]], None]:
    """Return the function that sends the results of the windows of one time, in the given order.

    A result that cannot be read is given to the processing handler, and is not sent.
    """
    forward, task = node.forward, node.task

    def send(time: int, places: Iterable[Any]) -> None:
        before, task.released = task.released, True
        try:
            for place in places:
                try:
                    result = read(time, place)
                except FATAL:
                    raise
                except Exception as error:  # noqa: BLE001 - the serdes are the user's
                    node.failed(row_error(error, store, waited="final result"), None, None, time)
                    continue
                if result is not None:
                    key, value, timestamp = result
                    forward(key, value, None, timestamp)
        finally:
            task.released = before

    return send


class FinalResults:
    """The windows of one task that have not been sent, by start; sessions by end.

    Attributes:
        times: a heap of the times that have windows; some may be left without. The last one may stand for all later
            ones.
        first_unsent: the smallest time of a window that may not have been sent; None if the strategy is new here.
        by_time: the windows by their time, as far as they are in memory.
    """

    __slots__ = (
        "_in_order",
        "_interval",
        "_known_before",
        "_loses",
        "_most",
        "_next_ms",
        "_now",
        "_reach",
        "_room",
        "_send",
        "_unsent",
        "by_time",
        "first_unsent",
        "last_close",
        "times",
    )

    def __init__(  # noqa: PLR0913 - the parts of an aggregation
        self,
        node: NodeContext,
        store: Any,
        reach: int,
        read: Read,
        unsent: Unsent,
        in_order: Callable[[set[Any]], list[Any]] = sorted,
    ) -> None:
        """Find the windows that have not been sent in the store.

        Args:
            node: the node of the aggregation.
            store: its store.
            reach: a window has closed if its time is at most the close time less this, in ms.
            read: see `Read`.
            unsent: see `Unsent`.
            in_order: puts the places of one time in the order in which they are sent.
        """
        self.by_time: dict[int, set[Any]] = {}
        self.times: list[int] = []
        interval = node.task.config.get(EMIT_INTERVAL, _DEFAULT_INTERVAL_MS)
        self._interval: int = interval if isinstance(interval, int) else _DEFAULT_INTERVAL_MS
        self._now: Callable[[], int] = node.task.now_ms
        self._next_ms = 0
        self._reach = reach
        self._send = _sender(node, store, read)
        self._unsent = unsent
        self._in_order = in_order
        self._most = self._room = _MOST_WINDOWS
        #: Windows with this time or a later one are only in the store.
        self._known_before = _NEVER
        self._loses: Callable[[int, int], bool] = store.loses
        restored = node.share(store.name, lambda: self.last_close)
        self.last_close: int = -1 if restored is None else restored
        self.first_unsent: int | None = None if restored is None else restored - reach + 1
        self._read(self.first_unsent)

    def note(self, time: int, place: Any) -> None:
        """Add a window that has not been sent."""
        if time >= self._known_before:
            return
        places = self.by_time.get(time)
        if places is None:
            self.by_time[time] = {place}
            heappush(self.times, time)
        else:
            places.add(place)
        self._room -= 1
        if self._room <= 0:
            self._make_room()

    def _make_room(self) -> None:
        """Leave the later half of the windows to the store, if there are too many."""
        times, by_time, most = self.times, self.by_time, self._most
        count = len(times) + sum(map(len, by_time.values()))
        if count > most:
            times.sort()  # which is a heap
            while times and count > most // 2:
                time = self._known_before = times.pop()
                count -= 1 + len(by_time.pop(time))
            times.append(self._known_before)
            by_time[self._known_before] = set()
        self._room = max(most - count, most // 4, 1)

    def _read(self, first: int | None) -> None:
        """Find the windows from a time on in the store, as many as fit in memory. No later one may be in memory."""
        self.by_time.clear()
        self.times.clear()
        self._known_before, self._room = _NEVER, self._most
        note = self.note
        for time, place in self._unsent(first, _NEVER - 1):
            note(time, place)

    def check(self, close: int) -> None:
        """Send the windows that have closed, unless it is too early.

        Args:
            close: stream time less grace; windows that end at it or before have closed.
        """
        interval = self._interval
        if interval:
            now = self._now()
            if self._next_ms - interval <= now < self._next_ms:  # earlier: the clock was set back
                return
            self._next_ms = now + interval
        if self.last_close < close or self.last_close == -1:
            self._emit(close)

    def waiting(self, stream_time: int, grace: int) -> tuple[int, int, int] | None:
        """Return how many windows in memory wait, the stream time at which the first one is sent, and the present one.

        Args:
            stream_time: the stream time, in epoch ms.
            grace: stream time less the close time of `check`, in ms.
        """
        count = sum(map(len, self.by_time.values()))
        if not count:
            return None
        return count, min(time for time, places in self.by_time.items() if places) + self._reach + grace, stream_time

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
            time = times[0]
            if time < self._known_before:
                heappop(times)
                send(time, self._in_order(by_time.pop(time)))
                continue
            self._read(time)
            if times and times[0] == self._known_before <= last:
                # This time alone has more windows than fit in memory.
                time = times[0]
                send(time, (place for _, place in self._unsent(time, time)))
                self._read(time + 1)
