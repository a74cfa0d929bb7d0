"""Which workers get on with restoring: a big state takes its time, and only one that does not shrink is stuck."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta

from .observation import ObservedWorker

__all__ = ("RestoreProgress",)


class RestoreProgress:
    """Remembers how far workers were, and since when."""

    def __init__(self) -> None:
        self._best: dict[tuple[str, str], dict[str, tuple[int, datetime]]] = {}

    def noted(
        self, key: tuple[str, str], workers: Mapping[str, ObservedWorker], now: datetime, patience: timedelta
    ) -> dict[str, ObservedWorker]:
        """The workers, with whether they restore and get on with it.

        Args:
            key: whose workers.
            workers: as they are now.
            now: the time of day.
            patience: for how long a worker may get no further.
        """
        before, after = self._best.get(key, {}), {}
        noted = {}
        for name, worker in workers.items():
            restoring = False
            if worker.alive and worker.active > worker.running:
                best, since = before.get(name, (worker.lag + 1, now))
                after[name] = (worker.lag, now) if worker.lag < best else (best, since)
                restoring = now - after[name][1] < patience
            noted[name] = replace(worker, restoring=restoring) if restoring else worker
        if after:
            self._best[key] = after
        else:
            self._best.pop(key, None)
        return noted

    def forget(self, key: tuple[str, str]) -> None:
        """The application is gone."""
        self._best.pop(key, None)
