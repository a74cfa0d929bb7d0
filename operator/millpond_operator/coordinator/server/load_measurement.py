"""Measures the CPU time that heartbeats take, and sets their interval."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from millpond.protocol import clock
from millpond_operator.coordinator.engine.engine import Engine
from millpond_operator.coordinator.engine.heartbeat_interval import CoordinatorLoad

__all__ = ("LoadMeasurement",)

_COUNT_INTERVAL_S = 1.0
_MEASURE_INTERVAL_S = 5.0
#: Fewer heartbeats say little: the CPU time is of the whole process.
_FEWEST = 100
_CHEAPEST_US, _DEAREST_US = 100.0, 2_000.0


class LoadMeasurement:
    """The load of one coordinator. CPU time is of the whole process: a process that is busy otherwise has less for
    heartbeats.

    Args:
        engines: returns the engines of all applications. They get the load.
        now: returns monotonic seconds.
        cpu: returns the CPU time of the process, in seconds.

    Attributes:
        load: the last measurement.
    """

    def __init__(
        self,
        engines: Callable[[], Iterable[Engine]],
        now: Callable[[], float] = clock.monotonic,
        cpu: Callable[[], float] = clock.cpu_time,
    ) -> None:
        self.load: CoordinatorLoad = CoordinatorLoad()
        self._engines = engines
        self._now = now
        self._cpu = cpu
        self._began = now(), cpu(), 0
        self._next = 0.0

    def update(self, heartbeats: int) -> None:
        """Count the workers and measure the heartbeats when it is due.

        Args:
            heartbeats: the number of heartbeats so far.
        """
        now = self._now()
        if now < self._next:
            return
        self._next = now + _COUNT_INTERVAL_S
        engines = list(self._engines())
        self.load = CoordinatorLoad(sum(each.live for each in engines), self._cost_us(now, heartbeats))
        for each in engines:
            each.load = self.load

    def _cost_us(self, now: float, heartbeats: int) -> float:
        """Return the CPU time per heartbeat: the mean of the last measurements."""
        began, cpu, before = self._began
        known = self.load.cost_us
        if now - began < _MEASURE_INTERVAL_S:
            return known
        used, count = self._cpu() - cpu, heartbeats - before
        self._began = now, cpu + used, heartbeats
        if count < _FEWEST:
            return known
        return (known + min(max(used / count * 1e6, _CHEAPEST_US), _DEAREST_US)) / 2
