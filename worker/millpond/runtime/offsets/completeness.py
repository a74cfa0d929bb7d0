"""Until when a copy is known to have had everything: what a broker said, and when it was asked.

A copy that has applied all up to the end that a broker told has all that was there when the broker was asked. Nothing else
proves that: an end that the client remembers may be as old as the last answer, and a copy that is cut off from the brokers
stands at such an end for as long as it is cut off.
"""

from __future__ import annotations

import time
from collections import deque
from typing import NamedTuple

__all__ = ("Completeness", "Moment")

_MOST_OPEN = 64


class Moment(NamedTuple):
    """A moment on both clocks."""

    monotonic: float
    """Seconds."""
    wall_ms: int
    """Epoch milliseconds."""

    @classmethod
    def now(cls) -> Moment:
        """This one."""
        return cls(time.monotonic(), int(time.time() * 1000))


class Completeness:
    """What is known of one copy of a topic partition.

    Attributes:
        at: the newest moment at which nothing was in the partition that the copy does not have now, in monotonic seconds;
            None when there is none in the life of this process.
        as_of_ms: the same by the wall clock, in epoch milliseconds; it may be from before this process.
        heard_at: when a broker was asked whose answer is the newest, in monotonic seconds; None for never.
    """

    def __init__(self, as_of_ms: int) -> None:
        self.at: float | None = None
        self.as_of_ms = as_of_ms
        self.heard_at: float | None = None
        self._open: deque[tuple[Moment, int]] = deque()

    def heard(self, asked: Moment, end: int, position: int) -> None:
        """A broker that was asked at some moment said that the partition ends at `end`; the copy is at `position`."""
        self.heard_at = asked.monotonic
        if len(self._open) >= _MOST_OPEN:
            # A copy that is far behind: every second answer will do.
            self._open = deque(list(self._open)[::2])
        self._open.append((asked, end))
        self.moved(position)

    def moved(self, position: int) -> None:
        """The copy has everything below `position`."""
        while self._open and self._open[0][1] <= position:
            moment, _ = self._open.popleft()
            self.at = moment.monotonic
            self.as_of_ms = moment.wall_ms  # whatever the clock said before: this is what it is compared with
