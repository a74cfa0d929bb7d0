"""A model of an application: partitions with lag, workers with limited time, and moves that take time.

New workers start and warm up before tasks move to them, and a task that moves pauses for a moment: what millpond does.
All autoscalers are measured on the same model.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from millpond.protocol.loads import InputLoad, TaskLoad, WorkerLoad
from millpond.topology import TaskId
from millpond_operator.assignment import AssignableWorker, AssignmentOptions, Placement, Situation, Task, target
from millpond_operator.autoscaling import ReportedLoad

__all__ = ("Application", "Costs")

_TOPIC = "orders"


@dataclass(frozen=True)
class Costs:
    """What things take."""

    record_s: float = 0.001
    """A worker's time for one record."""
    overhead: float = 0.01
    """The share of a worker's time that commits take, whatever the load."""
    noise: float = 0.1
    """The standard deviation of arrivals and of costs within one tick, as a share."""
    start_s: float = 20.0
    """From the decision until a new worker's process runs."""
    warm_up_s: float = 30.0
    """From then until its tasks have state."""
    pause_s: float = 2.0
    """How long a task pauses when it moves."""


class _Worker:
    """One worker process."""

    def __init__(self, started: float, ready_at: float) -> None:
        self.incarnation = f"i{started:.0f}"
        self.ready_at = ready_at
        """When it runs and has warm copies of its tasks."""
        self.leaves_at = float("inf")
        """When the others have warm copies of its tasks, if it is superfluous."""
        self.busy_s = 0.0
        self.processed = 0.0
        self.tasks: dict[int, float] = {}
        """Records processed, by partition."""


class Application:
    """The application.

    Args:
        partitions: of its input.
        workers: the number of workers at the beginning.
        costs: what things take.
        seed: of the noise.
    """

    def __init__(self, partitions: int, workers: int, costs: Costs, seed: int) -> None:
        self.costs = costs
        self.now = 0.0
        self.lag = [0.0] * partitions
        self.rates = [0.0] * partitions
        """What arrives now, per second and partition, without noise."""
        self.wanted = workers
        self.workers = {number: _Worker(0.0, 0.0) for number in range(workers)}
        self.busy = dict.fromkeys(self.workers, 0.0)
        """The share of the last tick that each worker was busy."""
        self._random = random.Random(seed)
        self._placement = Placement()
        self._present = tuple(self.workers)
        self._place = self._placed()
        self._paused_until = [0.0] * partitions
        self._take_tasks()

    @property
    def unsteady(self) -> str:
        """Why the number of workers is changing; "" while it is not."""
        moving = self._present != tuple(range(self.wanted)) or self.now < max(self._paused_until)
        return "workers start and tasks move" if moving else ""

    @property
    def lag_seconds(self) -> float:
        """The longest time that records wait in a partition, by the rate at which they arrive."""
        return max(lag / rate if rate else 0.0 for lag, rate in zip(self.lag, self.rates, strict=True))

    def scale(self, workers: int) -> None:
        """Ask for a number of workers."""
        if workers == self.wanted:
            return
        self.wanted = workers
        warm_at = self.now + self.costs.warm_up_s
        for number in range(workers):
            if number not in self.workers:
                self.workers[number] = _Worker(self.now, warm_at + self.costs.start_s)
            self.workers[number].leaves_at = float("inf")
        for number in range(workers, max(self.workers) + 1):
            self.workers[number].leaves_at = min(self.workers[number].leaves_at, warm_at)

    def tick(self, rates: list[float], seconds: float) -> None:
        """Let time pass.

        Args:
            rates: records per second that arrive at each partition.
            seconds: how much time.
        """
        noise, costs = self._random.gauss, self.costs
        self.now += seconds
        self.rates = rates
        self._move()
        for partition, rate in enumerate(rates):
            self.lag[partition] += max(rate * seconds * noise(1.0, costs.noise), 0.0)
        for number, worker in self.workers.items():
            cost = costs.record_s * max(noise(1.0, costs.noise), 0.2)
            ready = [each for each in worker.tasks if self._paused_until[each] <= self.now]
            needed = sum(self.lag[each] for each in ready) * cost
            room = seconds * (1 - costs.overhead)
            part = min(room / needed, 1.0) if needed else 0.0
            for each in ready:
                done = self.lag[each] * part
                self.lag[each] -= done
                worker.tasks[each] += done
                worker.processed += done
            busy = min(needed * part + costs.overhead * seconds, seconds)
            worker.busy_s += busy
            self.busy[number] = busy / seconds

    def loads(self) -> dict[str, ReportedLoad]:
        """Return what workers report."""
        return {
            f"worker-{number}": ReportedLoad(
                worker.incarnation,
                WorkerLoad(
                    measured_ms=round(self.now * 1000),
                    busy_ms=round(worker.busy_s * 1000),
                    processed=round(worker.processed),
                    tasks={
                        f"0_{task}": TaskLoad(round(done), {_TOPIC: InputLoad(round(done), round(self.lag[task]))})
                        for task, done in worker.tasks.items()
                    },
                ),
            )
            for number, worker in self.workers.items()
        }

    def _move(self) -> None:
        """Let superfluous workers end, and move tasks when other workers are there than before."""
        self.workers = {number: each for number, each in self.workers.items() if each.leaves_at > self.now}
        present = tuple(number for number, each in self.workers.items() if each.ready_at <= self.now)
        if present == self._present:
            return
        before, self._present = self._place, present
        self._place = self._placed()
        for task, worker in self._place.items():
            if before[task] != worker:
                self._paused_until[task] = self.now + self.costs.pause_s
        self.busy = {number: self.busy.get(number, 0.0) for number in self.workers}
        self._take_tasks()

    def _take_tasks(self) -> None:
        for number, worker in self.workers.items():
            held = [task for task, owner in self._place.items() if owner == number]
            worker.tasks = {task: worker.tasks.get(task, 0.0) for task in held}

    def _placed(self) -> dict[int, int]:
        """Return the worker of each task, as the operator's own assignment has it."""
        tasks = {each: Task(each, stateful=True) for each in (TaskId(0, number) for number in range(len(self.lag)))}
        live = {f"{number:03}": AssignableWorker(f"{number:03}") for number in self._present}
        owners = {task: owner for task, owner in self._placement.active.items() if owner in live}
        situation = Situation(tasks, live, {}, {}, owners)
        self._placement = target(situation, AssignmentOptions(), self._placement)
        return {task.partition: int(owner) for task, owner in self._placement.active.items()}
