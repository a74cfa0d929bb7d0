"""The schedules of punctuators: a heap for each kind of time (Kafka Streams' `PunctuationQueue`).

Stream-time schedules are aligned to zero, and fire as soon as stream time is known. Wall-clock schedules first fire
after one interval. After a late firing, missed firings are skipped, so that no burst follows a gap.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from itertools import count

__all__ = ("PunctuationQueue", "Schedule")

Punctuator = Callable[[int], None]


class Schedule:
    """One scheduled punctuator. `cancel()` may be called at any time, also in the punctuator itself."""

    __slots__ = ("cancelled", "interval_ms", "punctuator")

    def __init__(self, interval_ms: int, punctuator: Punctuator) -> None:
        self.interval_ms: int = interval_ms
        self.punctuator: Punctuator = punctuator
        self.cancelled: bool = False

    def cancel(self) -> None:
        """Never fire again."""
        self.cancelled = True


class PunctuationQueue:
    """Schedules of one kind of time, for one task."""

    __slots__ = ("_heap", "_order")

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Schedule]] = []
        self._order = count()

    def schedule(self, first_ms: int, interval_ms: int, punctuator: Punctuator) -> Schedule:
        """Call `punctuator(now_ms)` every `interval_ms`, first at `first_ms`."""
        schedule = Schedule(interval_ms, punctuator)
        heapq.heappush(self._heap, (first_ms, next(self._order), schedule))
        return schedule

    def next_due(self) -> int | None:
        """Return the time of the next firing in epoch milliseconds; None without a schedule."""
        return self._heap[0][0] if self._heap else None

    def fire(self, now_ms: int) -> int:
        """Fire all punctuators that are due at `now_ms`; return how many fired."""
        fired = 0
        while self._heap and self._heap[0][0] <= now_ms:
            due, order, schedule = heapq.heappop(self._heap)
            if schedule.cancelled:
                continue
            interval = schedule.interval_ms
            missed = (now_ms - due) // interval
            heapq.heappush(self._heap, (due + (missed + 1) * interval, order, schedule))
            schedule.punctuator(now_ms)
            fired += 1
        return fired
