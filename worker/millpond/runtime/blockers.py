"""What a worker waits for before it can go on. Told by whoever waits, and read by whoever is asked why nothing happens."""

from __future__ import annotations

import threading
import time

from millpond.errors import MillpondError
from millpond.protocol import Trouble

__all__ = ("Blockers",)

#: What takes no longer is no trouble.
_USUAL_S = 10.0


class Blockers:
    """The things a worker waits for at the moment. Safe from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._things: dict[str, tuple[float, float, MillpondError]] = {}

    def begins(self, thing: str, error: MillpondError, usual_s: float = _USUAL_S) -> None:
        """Something is waited for; or it still is, and this is the newest reason. For up to `usual_s` it is no trouble."""
        with self._lock:
            since, _, _ = self._things.get(thing, (time.monotonic(), 0.0, None))
            self._things[thing] = (since, usual_s, error)

    def ends(self, thing: str) -> None:
        """It has come."""
        with self._lock:
            self._things.pop(thing, None)

    def trouble(self, usual_s: float | None = None) -> Trouble | None:
        """What has been waited for longest, of what takes longer than `usual_s`, or than is usual for it."""
        now = time.monotonic()
        with self._lock:
            things = [
                (since, error)
                for since, own_s, error in self._things.values()
                if now - since >= (own_s if usual_s is None else usual_s)
            ]
        if not things:
            return None
        _, error = min(things, key=lambda each: each[0])
        return Trouble(type(error).__name__, str(error))
