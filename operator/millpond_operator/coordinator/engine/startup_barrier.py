"""Waits for workers before the first assignment."""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ("StartupBarrier",)


class StartupBarrier:
    """Delays the first assignment until workers have reported.

    After a restart it waits for the workers of the last assignment, in a new application for the first few. Times are
    milliseconds of one monotonic clock.

    Attributes:
        waiting: whether it is too early for an assignment.
    """

    def __init__(self, pause_ms: int) -> None:
        self.waiting = False
        self._pause_ms = pause_ms
        self._began = False
        self._until_ms = 0
        self._latest_ms = 0
        self._awaited: set[str] | None = None  # None: for any
        self._expected: set[str] = set()

    def await_workers(self, workers: Iterable[str], until_ms: int) -> None:
        """Wait for these workers after a restart of the coordinator, until a given time at most."""
        self._awaited = set(workers)
        self._until_ms = until_ms
        self._began = self.waiting = bool(self._awaited)

    def expect(self, workers: Iterable[str]) -> None:
        """Give these workers some time after the first one joins: none runs now, and they had tasks before."""
        self._expected = set(workers)

    def joined(self, worker: str, now_ms: int) -> None:
        """Count a worker that sent its first heartbeat."""
        if self._awaited:
            self._awaited.discard(worker)
        elif not self._began:
            self._began = self.waiting = True
            self._latest_ms = now_ms + 4 * self._pause_ms
            self._until_ms = self._quiet_until(worker, now_ms)
        elif self.waiting:
            self._until_ms = self._quiet_until(worker, now_ms)

    def _quiet_until(self, worker: str, now_ms: int) -> int:
        self._expected.discard(worker)
        return self._latest_ms if self._expected else min(now_ms + self._pause_ms, self._latest_ms)

    def ended(self, worker: str) -> None:
        """Stop waiting for a dead worker."""
        if self._awaited:
            self._awaited.discard(worker)

    def extend(self, milliseconds: int) -> None:
        """Wait longer by the time in which no heartbeat could be received."""
        self._until_ms += milliseconds
        self._latest_ms += milliseconds

    def over(self, now_ms: int) -> bool:
        """Return whether the wait ends with this call."""
        if self.waiting and (now_ms >= self._until_ms or (self._awaited is not None and not self._awaited)):
            self.waiting = False
            self._awaited = None
            return True
        return False
