"""What lasts, told from what only passes: a task that moves stands still for a moment, and nobody need write that down."""

from __future__ import annotations

from datetime import datetime, timedelta

__all__ = ("Debounce",)


class Debounce:
    """Remembers since when things have been the case.

    Args:
        settles_in: what lasts for longer is worth telling.
    """

    def __init__(self, settles_in: timedelta) -> None:
        self._settles_in = settles_in
        self._since: dict[str, datetime] = {}

    def lasting(self, what: str, now: datetime, *, condition: bool) -> tuple[bool, timedelta | None]:
        """Whether something has been the case for long enough to tell.

        Returns:
            That, and after which time to ask again if nothing is heard.
        """
        if not condition:
            self._since.pop(what, None)
            return False, None
        waited = now - self._since.setdefault(what, now)
        return (True, None) if waited >= self._settles_in else (False, self._settles_in - waited)

    def forget(self, prefix: str) -> None:
        """Forget everything that begins so."""
        for what in [each for each in self._since if each.startswith(prefix)]:
            del self._since[what]
