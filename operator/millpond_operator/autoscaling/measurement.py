"""What tasks demand, measured from the load reports of a window of time."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

import msgspec

from millpond.protocol.load_rates import TaskRates, WorkerRates, rates
from millpond.topology import is_repartition_topic

from .model import ReportedLoad

__all__ = ("WINDOW", "Measurement", "Meter", "TaskDemand", "Unmeasured")

WINDOW = timedelta(seconds=45)
"""Rates are means over this time or a little more."""
_OLDEST = 2 * WINDOW


class TaskDemand(msgspec.Struct, frozen=True, gc=False):
    """What one task demands of a worker."""

    task: str
    """Its id, such as `0_3`."""
    worker: str
    arriving: float
    """Records that arrive, per second."""
    lag: int
    """Records that wait."""
    cost: float
    """Seconds of a worker's time for one record."""

    @property
    def subtopology(self) -> int:
        """The number of its sub-topology."""
        return int(self.task.partition("_")[0])

    @property
    def load(self) -> float:
        """The share of one worker's time that the arriving records take."""
        return self.arriving * self.cost

    @property
    def lag_seconds(self) -> float:
        """About how long a record waits: the time in which as many records arrive as wait."""
        if self.lag <= 0:
            return 0.0
        return self.lag / self.arriving if self.arriving > 0 else float("inf")

    @property
    def lag_work_seconds(self) -> float:
        """The time that a worker takes for the records that wait."""
        return self.lag * self.cost

    def load_with_lag(self, within_s: float, target_s: float) -> float:
        """Return the share of one worker's time that it takes to work off the lag above the target within a time.

        Both times are in seconds: this is computed for each of very many tasks.
        """
        excess = self.lag - self.arriving * target_s
        return (self.arriving + excess / within_s) * self.cost if excess > 0 else self.arriving * self.cost


@dataclass(frozen=True)
class Measurement:
    """The demand of all tasks."""

    tasks: tuple[TaskDemand, ...]
    utilisation: float
    """The share of its time that the busiest worker spent on records, 0 to 1."""

    @property
    def load(self) -> float:
        """The number of workers, all of their time, that the arriving records take."""
        return sum(each.load for each in self.tasks)

    @property
    def lag_seconds(self) -> float:
        """The longest time that records of a task wait."""
        return max((each.lag_seconds for each in self.tasks), default=0.0)

    def lag_seconds_beyond(self, work_s: float) -> float:
        """Return the longest time that records of a task wait at a worker that takes longer than `work_s` for its lag.

        Where few records arrive, a single one that has just arrived counts as lag of minutes in `lag_seconds`.
        """
        work = defaultdict[str, float](float)
        for each in self.tasks:
            work[each.worker] += each.lag_work_seconds
        return max((each.lag_seconds for each in self.tasks if work[each.worker] > work_s), default=0.0)


@dataclass(frozen=True)
class Unmeasured:
    """Why the demand is not known."""

    message: str
    """One sentence."""
    idle: bool = False
    """Whether all is measured, and no records arrive."""
    still: bool = False
    """Whether all is measured, and no record was processed: none arrives, or those that wait have just arrived."""


class Meter:
    """Remembers load reports for the length of a window."""

    def __init__(self) -> None:
        self._samples: deque[tuple[datetime, Mapping[str, ReportedLoad]]] = deque()

    def clear(self) -> None:
        """Forget all reports: workers or tasks have moved."""
        self._samples.clear()

    def add(self, now: datetime, loads: Mapping[str, ReportedLoad]) -> None:
        """Remember the last reports of all workers."""
        self._samples.append((now, dict(loads)))
        while self._samples[0][0] < now - _OLDEST:
            self._samples.popleft()

    def measure(self, tasks: int) -> Measurement | Unmeasured:
        """Return the demand of all tasks, as means over the window.

        Args:
            tasks: the number of tasks of the topology.
        """
        if not self._samples:
            return Unmeasured("No worker has reported its load yet.")
        workers: dict[str, WorkerRates] = {}
        for worker in self._samples[-1][1]:
            found = self._rates(worker)
            if found is None:
                return Unmeasured(f"The rates of worker {worker} are known {WINDOW.seconds} s after its tasks started.")
            workers[worker] = found
        return _measured(workers, tasks)

    def _rates(self, worker: str) -> WorkerRates | None:
        """Return the rates of a worker over the shortest time that fills the window; None when none does."""
        last = self._samples[-1][1][worker]
        for _, loads in reversed(self._samples):
            earlier = loads.get(worker)
            if (
                earlier is None
                or earlier.incarnation != last.incarnation
                or earlier.load.tasks.keys() != last.load.tasks.keys()
            ):
                return None
            if last.load.measured_ms - earlier.load.measured_ms >= WINDOW.total_seconds() * 1000:
                return rates(earlier.load, last.load)
        return None


def _measured(workers: Mapping[str, WorkerRates], tasks: int) -> Measurement | Unmeasured:
    # Sorted worker by worker: one sort of very many tasks would hold up other threads.
    reports = {task: worker for worker, found in sorted(workers.items()) for task in sorted(found.tasks)}
    held = {task: workers[worker].tasks[task] for task, worker in reports.items()}
    if len(held) < tasks:
        return Unmeasured(f"Workers report the load of {len(held)} of {tasks} tasks.")
    unknown = min((task for task, each in held.items() if each.lag is None), default=None)
    if unknown is not None:
        return Unmeasured(f"The lag of task {unknown} is not known.")
    processed = sum(found.records_per_second for found in workers.values())
    if processed <= 0:
        waiting = sum(each.lag or 0 for each in held.values())
        if waiting:
            return Unmeasured(f"{waiting} records wait and none is processed, so rates are not known.", still=True)
        return Unmeasured("No records arrive, so rates are not known.", idle=True, still=True)
    mean = sum(found.utilisation for found in workers.values()) / processed
    costs = {
        worker: found.utilisation / found.records_per_second if found.records_per_second > 0 else mean
        for worker, found in workers.items()
    }
    growth = _growth(held.values())
    demands = (
        TaskDemand(task, reports[task], _arriving(each, growth), each.lag or 0, costs[reports[task]])
        for task, each in held.items()
    )
    return Measurement(tuple(demands), max(found.utilisation for found in workers.values()))


def _growth(held: Iterable[TaskRates]) -> float:
    """Return by which factor what is read from outside changes when lag there neither grows nor shrinks.

    The application's own topics get as much more or less then: what is written there depends on what it reads
    elsewhere.
    """
    processed = arriving = 0.0
    for task in held:
        for topic, each in task.inputs.items():
            if not is_repartition_topic(topic):
                rate = each.records_per_second or 0.0
                processed += rate
                arriving += max(rate + (each.lag_growth_per_second or 0.0), 0.0)
    return arriving / processed if processed > 0 else 1.0


def _arriving(task: TaskRates, growth: float) -> float:
    total = 0.0
    for topic, each in task.inputs.items():
        rate = each.records_per_second or 0.0
        now = max(rate + (each.lag_growth_per_second or 0.0), 0.0)
        total += now * growth if is_repartition_topic(topic) else now
    return total
