"""Load traces: the records that arrive at each partition, as files. `python -m bench.autoscaling.traces` writes them.

A file has a row for each point in time, with straight lines between them: the seconds since the beginning, and for each
partition its records per second.
"""

from __future__ import annotations

import csv
import math
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

__all__ = ("FOLDER", "NAMES", "PARTITIONS", "Trace", "read", "write")

FOLDER = Path(__file__).parent / "traces"
PARTITIONS = 12
_HOUR = 3600
_UNIT = 1_000.0
"""Records per second, of all partitions, where a trace has 1."""


@dataclass(frozen=True)
class Trace:
    """The records that arrive."""

    name: str
    seconds: tuple[float, ...]
    rates: tuple[tuple[float, ...], ...]
    """For each of the seconds, records per second of each partition."""

    @property
    def length(self) -> float:
        """Its length in seconds."""
        return self.seconds[-1]

    @property
    def partitions(self) -> int:
        """The number of partitions."""
        return len(self.rates[0])

    def at(self, second: float) -> list[float]:
        """Return the records per second of each partition at a time."""
        after = bisect_right(self.seconds, second)
        if after >= len(self.seconds):
            return list(self.rates[-1])
        start, end = self.seconds[after - 1], self.seconds[after]
        part = (second - start) / (end - start)
        return [a + (b - a) * part for a, b in zip(self.rates[after - 1], self.rates[after], strict=True)]


def _even(load: float) -> list[float]:
    return [load * _UNIT / PARTITIONS] * PARTITIONS


def _skewed(load: float) -> list[float]:
    """One partition gets as much as four others."""
    weights = [4.0] + [1.0] * (PARTITIONS - 1)
    return [load * _UNIT * weight / sum(weights) for weight in weights]


def _day(hour: float) -> float:
    """A night at 1.5 and an evening at 7, with a smaller peak at noon."""
    wave = 0.5 - 0.5 * math.cos(2 * math.pi * (hour - 4) / 24)
    noon = math.exp(-(((hour - 12) / 2) ** 2))
    return float(1.5 + 5.2 * wave**1.5 + 0.6 * noon)


_Points = Sequence[tuple[float, float]]
_MADE: dict[str, tuple[_Points, Callable[[float], list[float]]]] = {
    "step": (((0, 1.8), (_HOUR, 1.8), (_HOUR + 1, 5.4), (3 * _HOUR, 5.4)), _even),
    "ramp": (((0, 1.2), (_HOUR, 1.2), (2.5 * _HOUR, 6.0), (4 * _HOUR, 6.0)), _even),
    "day": (tuple((quarter * 900, _day(quarter / 4)) for quarter in range(97)), _even),
    "spike": (
        ((0, 1.8), (_HOUR, 1.8), (_HOUR + 1, 5.4), (_HOUR + 600, 5.4), (_HOUR + 601, 1.8), (4 * _HOUR, 1.8)),
        _even,
    ),
    "skew": (((0, 0.7), (_HOUR, 0.7), (_HOUR + 1, 1.8), (3 * _HOUR, 1.8)), _skewed),
}
NAMES = tuple(_MADE)


def read(name: str) -> Trace:
    """Read a trace from its file."""
    with (FOLDER / f"{name}.csv").open(encoding="utf-8", newline="") as file:
        rows = [[float(cell) for cell in row] for row in list(csv.reader(file))[1:]]
    return Trace(name, tuple(row[0] for row in rows), tuple(tuple(row[1:]) for row in rows))


def write() -> None:
    """Write the files of all traces."""
    FOLDER.mkdir(exist_ok=True)
    for name, (points, spread) in _MADE.items():
        with (FOLDER / f"{name}.csv").open("w", encoding="utf-8", newline="") as file:
            rows = csv.writer(file, lineterminator="\n")
            rows.writerow(["seconds", *(f"partition_{number}" for number in range(PARTITIONS))])
            rows.writerows([f"{second:g}", *(f"{rate:.1f}" for rate in spread(load))] for second, load in points)


if __name__ == "__main__":
    write()
