"""Notices that the whole process stood still, as by SIGSTOP or on a frozen node: then no call of user code was slow."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import NamedTuple

__all__ = ("Standstills",)

_INTERVAL_S = 1.0
#: A longer time between two ticks is a standstill, if the process computed for less than this share of it. A call
#: that holds the GIL stops the ticks, too, but computes meanwhile.
_STANDSTILL_S = 2.0
_CPU_SHARE = 0.5


class _Tick(NamedTuple):
    at: float
    cpu: float


class Standstills:
    """The standstills of this process, as seen by a thread that ticks. Safe from any thread.

    Args:
        clock: seconds, from any origin.
        cpu: the CPU time of the process, in seconds.
    """

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, cpu: Callable[[], float] = time.process_time
    ) -> None:
        self._clock = clock
        self._cpu = cpu
        self._tick: _Tick | None = None
        self._last = (0.0, 0.0)

    async def run(self) -> None:
        """Tick once a second, until cancelled."""
        while True:
            self.tick()
            await asyncio.sleep(_INTERVAL_S)

    def tick(self) -> None:
        """Note that this thread runs."""
        now = self._now()
        self._last = self._ended(now) or self._last  # before the tick, so that another thread sees one of the two
        self._tick = now

    def since(self, at: float) -> float:
        """Return for how long the process stood still after `at`, in seconds; of several standstills, the last one."""
        now = self._now()
        began, ended = self._ended(now) or self._last
        return max(0.0, ended - max(at, began))

    def _now(self) -> _Tick:
        return _Tick(self._clock(), self._cpu())

    def _ended(self, now: _Tick) -> tuple[float, float] | None:
        """Return begin and end of the standstill between the last tick and `now`; None without one."""
        tick = self._tick
        if tick is None or now.at - tick.at < _STANDSTILL_S:
            return None
        return (tick.at, now.at) if now.cpu - tick.cpu < _CPU_SHARE * (now.at - tick.at) else None
