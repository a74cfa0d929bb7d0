"""The moment up to which a copy of a topic partition is known to be complete.

A copy that has applied everything up to the end offset that a broker returned is complete as of the time of the
request. Nothing else proves this: the client's cached end offset may be as old as the broker's last answer, and a copy
without a connection to the brokers stays at such an end for as long as the connection is lost.
"""

from __future__ import annotations

import time
from collections import deque
from typing import NamedTuple

__all__ = ("Completeness", "Moment")

_MAX_PENDING = 64


class Moment(NamedTuple):
    """A moment on both clocks."""

    monotonic: float
    """Seconds."""
    wall_ms: int
    """Epoch milliseconds."""

    @classmethod
    def now(cls) -> Moment:
        """Return the current moment."""
        return cls(time.monotonic(), int(time.time() * 1000))


class Completeness:
    """The completeness of one copy of a topic partition.

    Attributes:
        at: the newest moment up to which the copy is complete, in monotonic seconds; None if no moment is known
            since the start of this process.
        as_of_ms: the same by the wall-clock time, in epoch milliseconds; it may be from before this process.
        asked_at: when the newest end offset was requested, in monotonic seconds; None before the first answer.
    """

    def __init__(self, as_of_ms: int) -> None:
        self.at: float | None = None
        self.as_of_ms: int = as_of_ms
        self.asked_at: float | None = None
        self._pending: deque[tuple[Moment, int]] = deque()

    def record_end(self, asked: Moment, end: int, position: int) -> None:
        """Record a broker's answer to a request for end offsets.

        Args:
            asked: when the end offset was requested.
            end: the end offset.
            position: the offset below which the copy has all records.
        """
        self.asked_at = asked.monotonic
        if len(self._pending) >= _MAX_PENDING:
            # The copy is far behind: every second answer is enough.
            self._pending = deque(list(self._pending)[::2])
        self._pending.append((asked, end))
        self.advance(position)

    def advance(self, position: int) -> None:
        """Record that the copy has all records below `position`."""
        while self._pending and self._pending[0][1] <= position:
            moment, _ = self._pending.popleft()
            self.at = moment.monotonic
            self.as_of_ms = moment.wall_ms  # even if lower than before: it is compared with today's wall clock
