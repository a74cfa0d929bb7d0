"""What a worker waits for before it can go on. Told by whoever waits, and read by whoever is asked why nothing happens."""

from __future__ import annotations

import threading
import time

from millpond.errors import MillpondError
from millpond.protocol import Trouble

__all__ = ("Waiting",)

#: What takes no longer is no trouble.
_USUAL_S = 10.0


class Waiting:
    """The things a worker waits for at the moment. Safe from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._things: dict[str, tuple[float, MillpondError]] = {}

    def begins(self, thing: str, error: MillpondError) -> None:
        """Something is waited for; or it still is, and this is the newest reason."""
        with self._lock:
            since, _ = self._things.get(thing, (time.monotonic(), None))
            self._things[thing] = (since, error)

    def ends(self, thing: str) -> None:
        """It has come."""
        with self._lock:
            self._things.pop(thing, None)

    def trouble(self, usual_s: float = _USUAL_S) -> Trouble | None:
        """What has been waited for longest, if that is longer than usual."""
        with self._lock:
            since, error = min(self._things.values(), key=lambda each: each[0], default=(0.0, None))
        if error is None or time.monotonic() - since < usual_s:
            return None
        return Trouble(type(error).__name__, str(error))
