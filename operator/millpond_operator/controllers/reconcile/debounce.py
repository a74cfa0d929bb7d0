"""What lasts, told from what only passes: a task that moves stands still for a moment, and nobody need write that down."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime, timedelta

__all__ = ("Debounce",)


class Debounce:
    """Remembers since when things have been the case."""

    def __init__(self) -> None:
        self._since: dict[str, datetime] = {}

    def lasting(
        self, what: str, now: datetime, patience: timedelta, *, condition: bool
    ) -> tuple[bool, timedelta | None]:
        """Return whether something has been the case for long enough to tell.

        Args:
            what: its name.
            now: the time of day.
            patience: how long is long enough.
            condition: whether it is the case now.

        Returns:
            That, and after which time to ask again if nothing is heard.
        """
        if not condition:
            self._since.pop(what, None)
            return False, None
        waited = now - self._since.setdefault(what, now)
        return (True, None) if waited >= patience else (False, patience - waited)

    def forget(self, prefix: str, but: Collection[str] = ()) -> None:
        """Forget everything whose name begins so, but for these names."""
        for what in [each for each in self._since if each.startswith(prefix) and each not in but]:
            del self._since[what]
