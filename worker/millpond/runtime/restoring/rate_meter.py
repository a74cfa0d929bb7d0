"""The measurement of the restore rate, while many records are restored. Pure."""

from __future__ import annotations

__all__ = ("RateMeter",)

_WINDOW_S = 2.0
_MAX_GAP_S = 0.5
_MIN_RECORDS = 50_000


class RateMeter:
    """A meter of records per second, over windows of some seconds without a long gap.

    Attributes:
        rate: records per second in the last window with enough records; None before the first one.
    """

    def __init__(self) -> None:
        self.rate: float | None = None
        self._started: float | None = None
        self._last = 0.0
        self._count = 0

    def add(self, records: int, now: float) -> None:
        """Count records that were restored just before `now` (monotonic seconds)."""
        started = self._started
        if started is None or now - self._last > _MAX_GAP_S:
            # The start of these records is unknown: they are not counted, and the window starts after them.
            self._started, self._last, self._count = now, now, 0
            return
        self._last = now
        self._count += records
        if now - started >= _WINDOW_S:
            if self._count >= _MIN_RECORDS:
                self.rate = self._count / (now - started)
            self._started, self._count = now, 0
