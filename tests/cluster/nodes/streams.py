"""The data of one application in Kafka: the owner of each task, and when it was processed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from millpond.protocol import clock
from tests.cluster.nodes.records import Records

__all__ = ("Pause", "Streams")


@dataclass(frozen=True)
class Pause:
    """A time in which no worker processed a task that had been processed before."""

    task: str
    began: float
    """Monotonic, in seconds."""
    seconds: float
    why: str
    """How it began: the task was `released`, its worker `ended`, `died` or froze, or was `fenced`."""
    before: str
    """Who processed it, and who did next."""
    after: str


@dataclass(frozen=True)
class _Run:
    worker: str
    incarnation: str
    topology: str


@dataclass(frozen=True)
class _Stop:
    worker: str
    at: float
    why: str


class Streams:
    """Owners of tasks, changed by compare-and-swap like offset metadata, and what the workers did with them.

    Attributes:
        owners: the present owners; tasks that never had one are missing.
        topologies: the hash of the topology of each task, by its last commit.
        pauses: pauses that are over, oldest first; tests may clear it.
        fenced: tasks that were taken from a worker that processed them, and that worker. An operator that moves tasks
            in order never causes that.
        violations: broken invariants, one sentence each.
        cleaned_up: how many times everything was deleted.
        listeners: called when a task gets another owner.
        records: the input; None where tests have nothing to do with it, and workers report no load.
    """

    def __init__(self) -> None:
        self.owners: dict[str, str] = {}
        self.topologies: dict[str, str] = {}
        self.pauses: list[Pause] = []
        self.fenced: list[tuple[str, str]] = []
        self.violations: list[str] = []
        self.cleaned_up = 0
        self.listeners: dict[Callable[[], None], None] = {}
        self.records: Records | None = None
        self._running: dict[str, _Run] = {}
        self._stopped: dict[str, _Stop] = {}

    def running(self) -> dict[str, str]:
        """The worker that processes each task now."""
        return {task: run.worker for task, run in list(self._running.items())}

    def runs(self, task: str, incarnation: str) -> bool:
        """Whether this process processes a task, and nobody has taken it over since."""
        run = self._running.get(task)
        return run is not None and run.incarnation == incarnation

    def standing_still(self) -> dict[str, float]:
        """Tasks that were processed once and are not now: for how many seconds."""
        now = clock.monotonic()
        return {task: now - stop.at for task, stop in list(self._stopped.items())}

    def may_resume(self, task: str, worker: str, topology: str) -> bool:
        """Whether a worker with this topology may resume a task by itself: it owns the task."""
        return self.owners.get(task) == worker and self.topologies.get(task, topology) == topology

    def move(self, task: str, previous: str | None, owner: str, by: str, topology: str) -> str:
        """Compare and swap, by a worker with this topology; return the owner afterwards."""
        if self.owners.get(task) == previous:
            self.owners[task] = owner
            self.topologies[task] = topology
            run = self._running.get(task)
            if run is not None and run.worker == previous and previous not in {by, owner}:
                self.fenced.append((task, run.worker))
                self._stop(task, "fenced")
            for listener in list(self.listeners):
                listener()
        return self.owners[task]

    def begin(self, task: str, worker: str, incarnation: str, topology: str) -> None:
        """Start to process a task, with the first commit."""
        if self.owners.get(task) != worker:
            self.violations.append(f"{worker} processes {task}, which is {self.owners.get(task)}'s.")
        run = self._running.get(task)
        if run is not None and run.incarnation != incarnation:
            if run.worker != worker:
                self.violations.append(f"{worker} processes {task} while {run.worker} does.")
            else:  # a new process with the name of the old one, whose transactions are fenced now
                self.fenced.append((task, worker))
            self._stop(task, "fenced")
        others = {each.topology for each in self._running.values()} - {topology}
        if others:
            self.violations.append(f"{worker} processes {task} of topology {topology} beside {sorted(others)}.")
        self.topologies[task] = topology
        self._running[task] = _Run(worker, incarnation, topology)
        stopped = self._stopped.pop(task, None)
        if stopped is not None:
            seconds = clock.monotonic() - stopped.at
            self.pauses.append(Pause(task, stopped.at, seconds, stopped.why, stopped.worker, worker))

    def end(self, task: str, incarnation: str, why: str) -> None:
        """Stop processing a task, if it is processed."""
        run = self._running.get(task)
        if run is not None and run.incarnation == incarnation:
            self._stop(task, why)

    def clean_up(self) -> None:
        """Delete everything, like a reset of the application."""
        if self._running:
            self.violations.append(f"{sorted(self._running)} were processed when everything was deleted.")
        self.owners.clear()
        self.topologies.clear()
        self._stopped.clear()
        self.cleaned_up += 1

    def _stop(self, task: str, why: str) -> None:
        run = self._running.pop(task)
        self._stopped[task] = _Stop(run.worker, clock.monotonic(), why)
