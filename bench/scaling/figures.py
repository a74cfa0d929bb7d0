"""The speed-ups of runs. Pure functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from bench.scaling.placement import Placement


@dataclass(frozen=True, slots=True)
class Run:
    """The measurements of one drain of the input."""

    rps: float
    """Input records per second, all workers together."""
    worker_us: float
    """CPU time of the workers, microseconds per input record."""
    broker_us: float
    """CPU time of the broker, microseconds per input record."""


@dataclass(frozen=True, slots=True)
class Line:
    """One application in one placement: medians, and the speed-up compared with the worker alone."""

    application: str
    placement: str
    workers: int
    run: Run
    speed_up: float
    """Records per second divided by those of one worker `alone`, median of the repeats.

    Where workers share a core, multiplied by their number: what they would reach with a core each.
    """
    speed_ups: Sequence[float]
    cpu_speed_up: float
    """The speed-up that the workers' CPU time allows with a core each.

    It is their number, reduced by the additional CPU time per record compared with one worker alone. It ignores waits,
    but other programs on the machine disturb it less.
    """

    def to_json(self) -> dict[str, Any]:
        """Return the object of this line in `bench-scaling.json`."""
        return {
            "application": self.application,
            "placement": self.placement,
            "workers": self.workers,
            "rps": round(self.run.rps),
            "worker_us": round(self.run.worker_us, 3),
            "broker_us": round(self.run.broker_us, 3),
            "speed_up": round(self.speed_up, 3),
            "speed_ups": [round(each, 3) for each in self.speed_ups],
            "cpu_speed_up": round(self.cpu_speed_up, 3),
        }


def lines(application: str, placements: Mapping[str, Placement], runs: Mapping[str, Sequence[Run]]) -> list[Line]:
    """Return the lines of one application.

    Args:
        application: its name.
        placements: all measured placements, including `alone`.
        runs: the runs by placement; those with the same index followed each other.

    Raises:
        KeyError: there are no runs of `alone`.
    """
    alone = runs["alone"]
    found = []
    for name, mine in runs.items():
        placement = placements[name]
        speed_ups = [placement.shares * run.rps / base.rps for run, base in zip(mine, alone, strict=False)]
        workers = len(placement.workers)
        cpu = [workers * base.worker_us / run.worker_us for run, base in zip(mine, alone, strict=False)]
        middle = Run(
            median(run.rps for run in mine),
            median(run.worker_us for run in mine),
            median(run.broker_us for run in mine),
        )
        found.append(Line(application, name, workers, middle, median(speed_ups), speed_ups, median(cpu)))
    return found
