"""The input of a simulated application: records that arrive, and workers that need time for them."""

from __future__ import annotations

from collections.abc import Iterable

from millpond.protocol import clock
from millpond.protocol.loads import InputLoad, TaskLoad, WorkerLoad

__all__ = ("Records", "Work")


class Records:
    """The input topic of an application: a partition for each task.

    Args:
        rate: records per second that arrive at each partition.
        cost_s: a worker's time for one record.
    """

    def __init__(self, rate: float, cost_s: float) -> None:
        self.cost_s = cost_s
        self._rate = rate
        self._since = clock.monotonic()
        self._before = 0.0
        self.done: dict[str, float] = {}
        """Records processed, by task."""

    def arrive(self, rate: float) -> None:
        """Let another number of records per second arrive at each partition from now on."""
        self._before, self._since, self._rate = self.end, clock.monotonic(), rate

    @property
    def end(self) -> float:
        """The number of records that have arrived at each partition."""
        return self._before + self._rate * (clock.monotonic() - self._since)

    def lag(self) -> float:
        """Return the most records that wait in a partition."""
        return max((self.end - done for done in self.done.values()), default=0.0)


class Work:
    """What one worker process does with them."""

    def __init__(self, records: Records) -> None:
        self._records = records
        self._at = clock.monotonic()
        self._busy_s = self._processed = 0.0
        self._by_task: dict[str, float] = {}

    def measured(self, tasks: Iterable[str]) -> WorkerLoad:
        """Work until now on the tasks that run, and return the load."""
        records, running = self._records, list(tasks)
        now = clock.monotonic()
        passed, self._at = now - self._at, now
        waiting = {task: records.end - records.done.setdefault(task, 0.0) for task in running}
        needed_s = sum(waiting.values()) * records.cost_s
        part = min(passed / needed_s, 1.0) if needed_s > 0 else 0.0
        self._busy_s += needed_s * part
        for task, number in waiting.items():
            records.done[task] += number * part
            self._by_task[task] = self._by_task.get(task, 0.0) + number * part
            self._processed += number * part
        return WorkerLoad(
            measured_ms=round(now * 1000),
            busy_ms=round(self._busy_s * 1000),
            processed=round(self._processed),
            tasks={task: self._load(task) for task in running},
        )

    def _load(self, task: str) -> TaskLoad:
        done, records = round(self._by_task[task]), self._records
        return TaskLoad(done, {"flights": InputLoad(done, round(records.end - records.done[task]))})
