"""The schedules of punctuators: a heap for each kind of time (Kafka Streams' `PunctuationQueue`).

Stream-time schedules are aligned to zero, and fire as soon as stream time is known; a task that continues at a
committed stream time has fired them up to it. Wall-clock schedules first fire after one interval. A schedule with a
start is aligned to it, and first fires at it, or at the next of its times if it has passed (KIP-1146). After a late
firing, missed firings are skipped, so that no burst follows a gap. Schedules that are due at the same time fire in
the order of Java's heap.
"""

from __future__ import annotations

from collections.abc import Callable

from .java_heap import JavaHeap

__all__ = ("PunctuationQueue", "Schedule", "WallClockQueue")

Punctuator = Callable[[int], None]


class Schedule:
    """One scheduled punctuator. `cancel()` may be called at any time, also in the punctuator itself.

    Attributes:
        start_ms: the time that all its times are aligned to, in epoch milliseconds.
        interval_ms: the time between two of them.
        fixed: whether it has a start of its own, which stays where it is when the clock is set back.
        due_ms: its next time.
    """

    __slots__ = ("cancelled", "due_ms", "fixed", "interval_ms", "punctuator", "start_ms")

    def __init__(self, start_ms: int, interval_ms: int, punctuator: Punctuator, *, fixed: bool = False) -> None:
        self.start_ms: int = start_ms
        self.interval_ms: int = interval_ms
        self.punctuator: Punctuator = punctuator
        self.fixed: bool = fixed
        self.due_ms: int = start_ms
        self.cancelled: bool = False

    def skip(self, now_ms: int) -> None:
        """Be due at the first of its times after `now_ms`."""
        passed = (now_ms - self.start_ms) // self.interval_ms + 1
        self.due_ms = self.start_ms + max(0, passed) * self.interval_ms

    def cancel(self) -> None:
        """Never fire again."""
        self.cancelled = True


class PunctuationQueue:
    """Schedules of one kind of time, for one task."""

    __slots__ = ("_heap",)

    def __init__(self) -> None:
        self._heap = JavaHeap[Schedule](lambda schedule: schedule.due_ms)

    def schedule(self, first_ms: int, interval_ms: int, punctuator: Punctuator) -> Schedule:
        """Call `punctuator(now_ms)` every `interval_ms`, first at `first_ms`."""
        schedule = Schedule(first_ms, interval_ms, punctuator)
        self._heap.offer(schedule)
        return schedule

    def schedule_from(self, start_ms: int, interval_ms: int, now_ms: int, punctuator: Punctuator) -> Schedule:
        """Call `punctuator(now_ms)` at `start_ms` and every `interval_ms` after it, but at no time before `now_ms`."""
        schedule = Schedule(start_ms, interval_ms, punctuator, fixed=True)
        if start_ms < now_ms:
            schedule.skip(now_ms)
        self._heap.offer(schedule)
        return schedule

    def resume(self, now_ms: int) -> None:
        """Let all schedules continue as if they had last fired at `now_ms`; -1 stands for never."""
        for schedule in self._heap:
            schedule.skip(now_ms)
        self._sort()

    def _sort(self) -> None:
        schedules, self._heap = list(self._heap), JavaHeap[Schedule](lambda schedule: schedule.due_ms)
        for schedule in schedules:
            self._heap.offer(schedule)

    def next_due(self) -> int | None:
        """Return the time of the next firing in epoch milliseconds; None without a schedule."""
        first = self._heap.first()
        return None if first is None else first.due_ms

    def fire(self, now_ms: int) -> int:
        """Fire all punctuators that are due at `now_ms`; return how many fired."""
        fired = 0
        heap = self._heap
        while (schedule := heap.first()) is not None and schedule.due_ms <= now_ms:
            heap.poll()
            if schedule.cancelled:
                continue
            try:
                schedule.punctuator(now_ms)
            finally:
                if not schedule.cancelled:
                    schedule.skip(now_ms)
                    heap.offer(schedule)
            fired += 1
        return fired


class WallClockQueue(PunctuationQueue):
    """Schedules of the wall clock. If the clock is set back, they go on after the rest of their intervals.

    Those with a start stay at its times, and come to one a second time only if the clock is set back by more than an
    interval. In Kafka Streams all wait until the clock has caught up (docs/differences.md).
    """

    __slots__ = ("_last_ms",)

    def __init__(self) -> None:
        super().__init__()
        self._last_ms = 0

    def fire(self, now_ms: int) -> int:
        """Fire all punctuators that are due at `now_ms`; return how many fired."""
        back_ms = self._last_ms - now_ms
        if back_ms > 0:
            self._set_back(back_ms, now_ms)
        self._last_ms = now_ms
        return super().fire(now_ms)

    def _set_back(self, back_ms: int, now_ms: int) -> None:
        for schedule in self._heap:
            if not schedule.fixed:
                schedule.start_ms -= back_ms
                schedule.due_ms -= back_ms
            elif back_ms > schedule.interval_ms:
                schedule.skip(now_ms)
        if any(schedule.fixed for schedule in self._heap):
            self._sort()  # the others keep their order
