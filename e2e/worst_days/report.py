"""The table of the worst days. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from bench.statistics import percentile

__all__ = ("Day", "table")


@dataclass(frozen=True)
class Day:
    """What one fault did to the application."""

    fault: str
    lasted_s: float
    """From the fault until its cause was gone."""
    ready_s: float
    """From the fault until the application was Ready with all standbys, and nothing was in progress."""
    pauses: Mapping[str, float]
    """The longest pause of each task, in seconds."""
    path: float
    """The longest gap of the input itself, in seconds."""
    conditions: Mapping[str, float]
    """Conditions that were not as in a healthy application, and for how many seconds."""

    @property
    def longest(self) -> float:
        """The longest pause of a task."""
        return max(self.pauses.values())


def table(days: Iterable[Day]) -> str:
    """Return a table with a line for each fault, followed by the conditions that it caused."""
    days = list(days)
    width = max((len(day.fault) for day in days), default=0)
    tasks = sorted({task for day in days for task in day.pauses})
    columns = "".join(f"{task:>6}" for task in tasks)
    lines = [
        "worst days: longest pause of each task, in seconds",
        f"{'':{width}}  {'lasted':>7}{'Ready':>7}  {columns}  {'p50':>6}{'max':>6}  {'path':>5}",
    ]
    for day in days:
        pauses = "".join(f"{day.pauses.get(task, 0.0):6.2f}" for task in tasks)
        middle = percentile(list(day.pauses.values()), 50)
        lines.append(
            f"{day.fault:{width}}  {day.lasted_s:7.1f}{day.ready_s:7.1f}  {pauses}  {middle:6.2f}{day.longest:6.2f}"
            f"  {day.path:5.2f}"
        )
    lines += ["", "conditions seen, with the seconds for which they were seen"]
    lines += [f"{day.fault:{width}}  {_told(day.conditions)}" for day in days]
    return "\n".join(lines)


def _told(conditions: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {seconds:.0f}" for name, seconds in conditions.items()) or "none"
