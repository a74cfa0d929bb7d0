"""Measures how many records a second are restored while there are many. Pure."""

from __future__ import annotations

__all__ = ("RateMeter",)

_WINDOW_S = 2.0
_LONGEST_GAP_S = 0.5
_FEWEST = 50_000


class RateMeter:
    """Counts over windows of some seconds without a longer gap.

    Attributes:
        rate: of the last window with enough records, per second; None before the first one.
    """

    def __init__(self) -> None:
        self.rate: float | None = None
        self._began: float | None = None
        self._last = 0.0
        self._count = 0

    def add(self, records: int, now: float) -> None:
        """So many records were restored just before `now` (monotonic seconds)."""
        began = self._began
        if began is None or now - self._last > _LONGEST_GAP_S:
            # When these were begun is not known: they start the window.
            self._began, self._last, self._count = now, now, 0
            return
        self._last = now
        self._count += records
        if now - began >= _WINDOW_S:
            if self._count >= _FEWEST:
                self.rate = self._count / (now - began)
            self._began, self._count = now, 0
