"""The progress of restoring workers: a worker is stuck only if its lag does not shrink, however long it restores."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta

from .observation import ObservedWorker

__all__ = ("RestoreProgress",)


class RestoreProgress:
    """Remembers the smallest lag of each restoring worker, and since when."""

    def __init__(self) -> None:
        self._best: dict[tuple[str, str], dict[str, tuple[int, datetime]]] = {}

    def noted(
        self, key: tuple[str, str], workers: Mapping[str, ObservedWorker], now: datetime, patience: timedelta
    ) -> dict[str, ObservedWorker]:
        """Return the workers with `restoring` set where they restore and make progress.

        Args:
            key: the namespace and name of the StreamApp.
            workers: the workers by name.
            now: the current time.
            patience: how long the lag may stay the same.
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
        """Forget a deleted StreamApp."""
        self._best.pop(key, None)
