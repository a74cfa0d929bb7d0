"""Who processes what, and what happens to it when a worker is killed."""

from __future__ import annotations

import time

from examples.flights.stage.session import DevSession
from millpond.cli.dev.status import SessionEventKind, SessionStatus, WorkerPhase

__all__ = ("Workers", "WorkersStuck")

_PATIENCE_S = 60.0
_LOOK_EVERY_S = 0.05


class WorkersStuck(Exception):
    """Tasks wait for a worker and get none."""


class Workers:
    """The workers of a session.

    Args:
        session: theirs.

    Attributes:
        lost: tasks of a killed worker that nobody processes yet.
        away: the worker that was killed, until it is back.
        words: what they are doing, in a few words.
        status: the latest, None before the first.
    """

    def __init__(self, session: DevSession) -> None:
        self.session = session
        self.lost: set[str] = set()
        self.away: str | None = None
        self.words = "starting"
        self._killed_pid = 0
        self._seen = 0
        self.status: SessionStatus | None = None

    def await_all(self) -> str:
        """Wait until every task is processed, and every worker has one if there are enough; returns who processes which.

        Raises:
            WorkersStuck: it takes too long.
        """
        deadline = time.monotonic() + _PATIENCE_S
        while True:
            status = self.session.status()
            if status is not None and status.complete and _all_busy(status):
                self._take_in(status)
                shares = (f"{each.worker} {' '.join(_of(status, each.worker))}".strip() for each in status.workers)
                return f"they share the tasks: {', '.join(shares)}"
            if time.monotonic() > deadline:
                raise WorkersStuck(
                    f"not every task is processed after {_PATIENCE_S:.0f} s; the log ends:\n{self.session.log_end()}"
                )
            time.sleep(_LOOK_EVERY_S)

    @property
    def settled(self) -> bool:
        """Whether all of them are there and every task is processed."""
        return self.away is None and self.status is not None and self.status.complete

    def kill_the_reader(self) -> str:
        """SIGKILL for the worker that reads the flights, which all else waits for; returns what was done."""
        status = self.session.status()
        assert status is not None
        self._take_in(status)
        worker = status.running[min(status.running)]  # the first sub-topology reads them, the second adds up
        pid = next(each.pid for each in status.workers if each.worker == worker)
        self.session.kill(worker)
        tasks = _of(status, worker)
        self.away, self._killed_pid, self.lost = worker, pid, set(tasks)
        return f"kill -9 {pid}: {worker}, which processed {' '.join(tasks)}"

    def look(self) -> list[str]:
        """What has happened since the last look."""
        status = self.session.status()
        if status is None:
            return []
        self._take_in(status)
        told = []
        if self.away is None:
            self._seen = max((event.number for event in status.events), default=0)
            return []
        for event in status.events:
            if event.number > self._seen and event.kind is SessionEventKind.REGAINED and event.worker == self.away:
                self._seen = event.number
                self.lost.clear()
                told.append(event.text)
        back = next((each for each in status.workers if each.worker == self.away), None)
        if not self.lost and back is not None and back.phase is WorkerPhase.RUNNING and back.pid != self._killed_pid:
            told.append(f"{self.away} is back, pid {back.pid}")
            self.away = None
        return told

    def _take_in(self, status: SessionStatus) -> None:
        self.status = status
        here = [each.worker for each in status.workers if each.pid]
        self.words = " ".join(here)
        if self.away is not None and self.away not in here:
            self.words += f" . {self.away} killed"


def _all_busy(status: SessionStatus) -> bool:
    """Whether all workers run and process something, as far as there are tasks: one may come after they were shared."""
    busy = len(set(status.running.values()))
    return busy == min(len(status.workers), status.tasks) and all(
        each.phase is WorkerPhase.RUNNING for each in status.workers
    )


def _of(status: SessionStatus, worker: str) -> list[str]:
    """Tasks that it processes."""
    return sorted(task for task, by in status.running.items() if by == worker)
