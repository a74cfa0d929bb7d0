"""Debouncing of conditions: a task that moves stops for a moment, which no status should show."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime, timedelta

from millpond_operator.controllers.pass_context import ReconcilePass

__all__ = ("Debounce",)


class Debounce:
    """Remembers since when conditions have held."""

    def __init__(self) -> None:
        self._since: dict[str, datetime] = {}

    def lasts(self, work: ReconcilePass, name: str, patience: timedelta, *, condition: bool) -> bool:
        """Return whether a condition has held for long enough. If not yet, request a pass for the end of that time.

        Args:
            work: the pass.
            name: the name of the condition, beginning with that of the application.
            patience: the time for which it has to hold.
            condition: whether it holds now.
        """
        if not condition:
            self._since.pop(name, None)
            return False
        waited = work.now - self._since.setdefault(name, work.now)
        if waited >= patience:
            return True
        work.requeue(patience - waited)
        return False

    def forget(self, prefix: str, but: Collection[str] = ()) -> None:
        """Forget all conditions whose name begins with a prefix, except some."""
        for name in [each for each in self._since if each.startswith(prefix) and each not in but]:
            del self._since[name]
