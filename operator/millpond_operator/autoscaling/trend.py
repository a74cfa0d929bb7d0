"""Whether the load has been growing, and how far it will grow if it goes on like that."""

from __future__ import annotations

from collections import deque
from datetime import datetime, timedelta

__all__ = ("Trend",)

_SPAN = timedelta(minutes=20)
_INTERVAL = timedelta(minutes=1)
_MEAN_OF = 3
"""The number of loads of which each mean is taken, against noise."""
_NOISE = 0.05
"""The growth within 20 minutes, as a share of the load, up to which it may be noise."""
_MOST = 1.5
"""The greatest factor by which growth is anticipated."""


class Trend:
    """The loads of the last 20 minutes, one a minute."""

    def __init__(self) -> None:
        self._loads: deque[tuple[datetime, float]] = deque()

    def add(self, now: datetime, load: float) -> None:
        """Remember the present load, in workers."""
        if not self._loads or now - self._loads[-1][0] >= _INTERVAL:
            self._loads.append((now, load))
        while now - self._loads[0][0] > _SPAN + _INTERVAL:
            self._loads.popleft()

    def factor(self, horizon: timedelta) -> float:
        """Return by which factor the load grows within a time if it goes on growing as it does.

        The slower of the growths in the two halves of the last 20 minutes counts, so a jump is no trend. The factor is
        from 1 to 1.5.
        """
        loads = [load for _, load in self._loads]
        span = self._loads[-1][0] - self._loads[0][0] if loads else timedelta(0)
        if len(loads) < 3 * _MEAN_OF or span < _SPAN / 2:
            return 1.0
        middle = (len(loads) - _MEAN_OF) // 2
        first, half, last = (sum(loads[i : i + _MEAN_OF]) / _MEAN_OF for i in (0, middle, len(loads) - _MEAN_OF))
        growth = 2 * min(half - first, last - half)
        if growth <= _NOISE * last or last <= 0:
            return 1.0
        return min(1 + growth / last * (horizon / span), _MOST)
