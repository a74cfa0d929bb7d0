"""How long each task paused during an event, computed from the times of its output. Pure.

A task's output comes in bursts, one per commit. A **gap** is the time between two of them; its **pause** in an event is
the longest gap that touches the event, less the usual gap of that task.
"""

from __future__ import annotations

import itertools
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from statistics import median

from bench.statistics import percentile

__all__ = ("Arrivals", "Event", "table")

BURST_S = 0.02
"""Output with smaller gaps belongs to one commit."""
REST_S = 1.0
"""Output with a longer gap is not steady."""


class Arrivals:
    """The times of the output of each task, in monotonic seconds."""

    def __init__(self) -> None:
        self._at: dict[str, list[float]] = defaultdict(list)

    @property
    def tasks(self) -> list[str]:
        """The tasks that have had output."""
        return sorted(self._at)

    def add(self, task: str, at: float) -> None:
        """Add output of a task, not earlier than the last."""
        known = self._at[task]
        if known and at - known[-1] < BURST_S:
            known[-1] = at  # the burst continues; the next gap begins at its end
        else:
            known.append(at)

    def first(self, task: str) -> float:
        """Return the time of a task's first output."""
        return self._at[task][0]

    def usual(self, task: str, begin: float, end: float) -> float:
        """Return the median gap of a task between two moments; 0 when there is none."""
        return median(_gaps(self._at[task], begin, end)) if len(self._between(task, begin, end)) > 1 else 0.0

    def longest(self, task: str, begin: float, end: float) -> float:
        """Return the longest gap that touches the time between two moments, including one that continues at its end."""
        known = self._at[task]
        first = max(0, bisect_left(known, begin) - 1)
        moments = [*known[first : bisect_left(known, end)], end]
        return max(_gaps(moments, moments[0], end), default=0.0)

    def restless(self, path: str, tasks: Iterable[str], for_s: float, now: float) -> dict[str, float]:
        """Return the longest gap, in the last `for_s` seconds, of the input and of each task that is not steady.

        The input is steady without a gap longer than `REST_S`, and a task without one that is longer than the input's
        by as much: on a busy machine the input comes late as well. A gap is `inf` if the output began later.
        """
        begin = now - for_s
        gaps = {
            each: self.longest(each, begin, now) if each in self._at and self.first(each) <= begin else inf
            for each in (path, *tasks)
        }
        allowed = {each: REST_S + (0.0 if each == path else gaps[path]) for each in gaps}
        return {each: gap for each, gap in gaps.items() if gap > allowed[each]}

    def _between(self, task: str, begin: float, end: float) -> Sequence[float]:
        known = self._at[task]
        return known[bisect_left(known, begin) : bisect_left(known, end)]


def _gaps(moments: Sequence[float], begin: float, end: float) -> list[float]:
    inside = [each for each in moments if begin <= each <= end]
    return [after - before for before, after in itertools.pairwise(inside)]


@dataclass(frozen=True)
class Event:
    """An event of the application, and the pauses that it caused."""

    name: str
    took_s: float
    pauses: Mapping[str, float]
    """Seconds by task."""
    path: float
    """The longest gap of the input itself, read in the same way: the share of the broker and the network."""

    def at(self, percent: int) -> float:
        """Return a percentile of the tasks' pauses, by nearest rank."""
        return percentile(list(self.pauses.values()), percent)

    @property
    def longest(self) -> float:
        """The longest pause of a task."""
        return max(self.pauses.values())


def table(events: Iterable[Event]) -> str:
    """Return a table with a line for each event: the pause of each task in seconds."""
    events = list(events)
    tasks = sorted({task for event in events for task in event.pauses})
    width = max((len(event.name) for event in events), default=0)
    columns = "".join(f"{task:>6}" for task in tasks)
    head = f"{'':{width}} {'took':>6}  {columns}  {'p50':>6}{'p99':>6}{'max':>6}  {'path':>5}"
    lines = ["pause of each task, in seconds", head]
    for event in events:
        each = "".join(f"{event.pauses[task]:6.2f}" if task in event.pauses else f"{'':6}" for task in tasks)
        figures = f"{event.at(50):6.2f}{event.at(99):6.2f}{event.longest:6.2f}"
        lines.append(f"{event.name:{width}} {event.took_s:6.1f}  {each}  {figures}  {event.path:5.2f}")
    return "\n".join(lines)
