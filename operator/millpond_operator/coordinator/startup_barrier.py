"""When there is enough to decide on: nothing is assigned before those who should be heard had time to speak."""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ("StartupBarrier",)


class StartupBarrier:
    """Waits for workers: after a restart for those of the last assignment, in a new application for the first few.

    Times are milliseconds of one clock.

    Attributes:
        waiting: whether it is too early to decide anything.
    """

    def __init__(self, pause_ms: int) -> None:
        self.waiting = False
        self._pause_ms = pause_ms
        self._began = False
        self._until_ms = 0
        self._latest_ms = 0
        self._awaited: set[str] | None = None  # None: nobody in particular
        self._expected: set[str] = set()

    def await_workers(self, workers: Iterable[str], until_ms: int) -> None:
        """A coordinator starts again: wait for these, and for no longer than that."""
        self._awaited = set(workers)
        self._until_ms = until_ms
        self._began = self.waiting = bool(self._awaited)

    def expect(self, workers: Iterable[str]) -> None:
        """Nobody runs, and these had tasks when all ended: once the first comes, the others are given some time too."""
        self._expected = set(workers)

    def joined(self, worker: str, now_ms: int) -> None:
        """A worker was heard of for the first time."""
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
        """A worker is gone: nobody waits for it."""
        if self._awaited:
            self._awaited.discard(worker)

    def stalled(self, milliseconds: int) -> None:
        """Nobody could be heard for so long."""
        self._until_ms += milliseconds
        self._latest_ms += milliseconds

    def over(self, now_ms: int) -> bool:
        """Whether the wait ends with this call."""
        if self.waiting and (now_ms >= self._until_ms or (self._awaited is not None and not self._awaited)):
            self.waiting = False
            self._awaited = None
            return True
        return False
