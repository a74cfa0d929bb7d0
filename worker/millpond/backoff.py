"""Back-off: the wait before the next attempt, which grows with each failure in a row."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta

__all__ = ("Backoff",)

_MOST_DOUBLINGS = 60


@dataclass(frozen=True, slots=True)
class Backoff:
    """The waits between attempts; each is twice as long as the one before it.

    Iterating yields the waits in seconds, without end: `waits = iter(backoff)`, then `next(waits)` after each failure.
    """

    first: timedelta
    """The wait after the first failure."""
    longest: timedelta
    """The maximum wait."""
    jitter: float = 0.0
    """The random part of each wait, 0 to 1, so that many clients do not retry at the same moment."""

    def wait_s(self, failures: int, chance: random.Random | None = None) -> float:
        """Return the wait after a number of failures in a row, in seconds.

        Args:
            failures: 1 or more.
            chance: the random generator for the jitter; None for the shared one.
        """
        doubled = self.first.total_seconds() * 2.0 ** min(failures - 1, _MOST_DOUBLINGS)
        wait_s = min(doubled, self.longest.total_seconds())
        if not self.jitter:
            return wait_s
        return wait_s * (chance or random).uniform(1 - self.jitter, 1.0)

    def __iter__(self) -> Iterator[float]:
        failures = 0
        while True:
            failures += 1
            yield self.wait_s(failures)
