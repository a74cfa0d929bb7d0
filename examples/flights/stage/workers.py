"""The tasks of each worker, and what happens to them when a worker is killed."""

from __future__ import annotations

import time

from examples.flights.stage.session import DevSession
from millpond.cli.dev.status import SessionEventKind, SessionStatus, WorkerPhase

__all__ = ("Workers", "WorkersStuck")

_TIMEOUT_S = 60.0
_POLL_S = 0.05


class WorkersStuck(Exception):
    """Tasks are not processed in time."""


class Workers:
    """The workers of a session.

    Args:
        session: the session.

    Attributes:
        lost: tasks of a killed worker that are not processed yet.
        away: the worker that was killed, until it runs again.
        summary: which workers run, in a few words.
        status: the latest status; None before the first.
    """

    def __init__(self, session: DevSession) -> None:
        self.session = session
        self.lost: set[str] = set()
        self.away: str | None = None
        self.summary = "starting"
        self._killed_pid = 0
        self._seen = 0
        self.status: SessionStatus | None = None

    def await_all(self) -> str:
        """Wait until all tasks are processed and all workers busy, if there are enough tasks; return the distribution.

        Raises:
            WorkersStuck: this takes too long.
        """
        deadline = time.monotonic() + _TIMEOUT_S
        while True:
            status = self.session.status()
            if status is not None and status.complete and _all_busy(status):
                self._update(status)
                shares = (
                    f"{each.worker} {' '.join(_tasks_of(status, each.worker))}".strip() for each in status.workers
                )
                return f"they share the tasks: {', '.join(shares)}"
            if time.monotonic() > deadline:
                raise WorkersStuck(
                    f"not every task is processed after {_TIMEOUT_S:.0f} s; the last lines of the log:\n"
                    f"{self.session.log_tail()}"
                )
            time.sleep(_POLL_S)

    @property
    def settled(self) -> bool:
        """Whether all workers run and all tasks are processed."""
        return self.away is None and self.status is not None and self.status.complete

    def kill_reader(self) -> str:
        """Kill the worker that reads the flights, which all other tasks depend on; return a description."""
        status = self.session.status()
        assert status is not None
        self._update(status)
        worker = status.running[min(status.running)]  # the first sub-topology reads the flights
        pid = next(each.pid for each in status.workers if each.worker == worker)
        self.session.kill(worker)
        tasks = _tasks_of(status, worker)
        self.away, self._killed_pid, self.lost = worker, pid, set(tasks)
        return f"kill -9 {pid}: {worker}, which processed {' '.join(tasks)}"

    def new_events(self) -> list[str]:
        """Return descriptions of what happened since the last call."""
        status = self.session.status()
        if status is None:
            return []
        self._update(status)
        events = []
        if self.away is None:
            self._seen = max((event.number for event in status.events), default=0)
            return []
        for event in status.events:
            if event.number > self._seen and event.kind is SessionEventKind.REGAINED and event.worker == self.away:
                self._seen = event.number
                self.lost.clear()
                events.append(event.text)
        back = next((each for each in status.workers if each.worker == self.away), None)
        if not self.lost and back is not None and back.phase is WorkerPhase.RUNNING and back.pid != self._killed_pid:
            events.append(f"{self.away} is back, pid {back.pid}")
            self.away = None
        return events

    def _update(self, status: SessionStatus) -> None:
        self.status = status
        running = [each.worker for each in status.workers if each.pid]
        self.summary = " ".join(running)
        if self.away is not None and self.away not in running:
            self.summary += f" . {self.away} killed"


def _all_busy(status: SessionStatus) -> bool:
    """Return whether all workers run and have tasks, if there are enough: a late worker gets its tasks after a move."""
    busy = len(set(status.running.values()))
    return busy == min(len(status.workers), status.tasks) and all(
        each.phase is WorkerPhase.RUNNING for each in status.workers
    )


def _tasks_of(status: SessionStatus, worker: str) -> list[str]:
    """Return the tasks that a worker processes."""
    return sorted(task for task, by in status.running.items() if by == worker)
