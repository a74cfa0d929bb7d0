"""Loads for tests of the autoscaler."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta

from millpond.protocol.loads import InputLoad, TaskLoad, WorkerLoad
from millpond_operator.autoscaling import Autoscaler, AutoscalingStatus, Policy, ReportedLoad, Situation

__all__ = ("START", "Fleet")

START = datetime(2026, 1, 1, tzinfo=UTC)
_INTERVAL = timedelta(seconds=15)


class Fleet:
    """Workers with even tasks at constant rates, and the autoscaler that watches them. Rescales happen at once.

    Args:
        policy: the autoscaling.
        loads: the load of each task: the share of a worker's time that its arriving records take.
        replicas: `spec.replicas`.
    """

    def __init__(self, policy: Policy, loads: Sequence[float], replicas: int = 1) -> None:
        self.autoscaler = Autoscaler(policy)
        self.status: AutoscalingStatus | None = None
        self.now = START
        self.loads = list(loads)
        self.lag = [0.0] * len(loads)
        self.replicas = replicas
        self.unsteady = ""
        self.conflict = ""
        self.written: list[AutoscalingStatus] = []
        """Each status that differs from the one before."""
        self.cost_s = 0.001
        self._busy: dict[int, float] = {}
        self._done: dict[tuple[int, int], float] = {}
        self._start = 0
        self._workers = replicas
        self._set_by = timedelta(0)

    @property
    def workers(self) -> int:
        """The number of workers."""
        return self._workers

    @property
    def rescales(self) -> list[tuple[int, int]]:
        """The numbers of workers before and after each rescale."""
        counts = [each.current_replicas for each in self.written]
        return [(a, b) for a, b in itertools.pairwise(counts) if a != b]

    def run(self, **time: float) -> AutoscalingStatus:
        """Let time pass, given as for a timedelta; return the last status."""
        until = self.now + timedelta(**time)
        while self.now < until:
            self.now += _INTERVAL
            self._work(_INTERVAL.total_seconds())
            self.autoscaler.observe(self.now, self._reports())
            self.decide()
        assert self.status is not None
        return self.status

    def set_clock(self, by: timedelta) -> None:
        """Set the operator's clock ahead or back. Those of the workers go on."""
        self.now += by
        self._set_by += by

    def decide(self) -> None:
        """Decide once."""
        situation = Situation(self.replicas, {0: len(self.loads)}, self.unsteady, self.conflict)
        status = self.autoscaler.decide(self.now, situation, self.status)
        if status != self.status:
            self.status = status
            self.written.append(status)
        if status.current_replicas != self._workers:
            self._workers = status.current_replicas
            self._start += 1  # tasks move: other processes, as far as the autoscaler sees
            self._busy, self._done = {}, {}

    def _tasks_of(self, worker: int) -> range:
        return range(worker, len(self.loads), self._workers)

    def _work(self, seconds: float) -> None:
        for worker in range(self._workers):
            tasks = self._tasks_of(worker)
            for task in tasks:
                self.lag[task] += self.loads[task] / self.cost_s * seconds
            needed = sum(self.lag[task] for task in tasks) * self.cost_s
            part = min(seconds / needed, 1.0) if needed else 0.0
            self._busy[worker] = self._busy.get(worker, 0.0) + needed * part
            for task in tasks:
                done = self.lag[task] * part
                self.lag[task] -= done
                self._done[worker, task] = self._done.get((worker, task), 0.0) + done

    def _reports(self) -> Mapping[str, ReportedLoad]:
        return {
            f"worker-{worker}": ReportedLoad(f"start-{self._start}", self._load(worker))
            for worker in range(self._workers)
        }

    def _load(self, worker: int) -> WorkerLoad:
        done = {task: round(self._done.get((worker, task), 0.0)) for task in self._tasks_of(worker)}
        return WorkerLoad(
            measured_ms=round((self.now - self._set_by - START).total_seconds() * 1000),
            busy_ms=round(self._busy.get(worker, 0.0) * 1000),
            processed=sum(done.values()),
            tasks={
                f"0_{task}": TaskLoad(number, {"orders": InputLoad(number, round(self.lag[task]))})
                for task, number in done.items()
            },
        )
