"""The blockers of a worker. Code that waits adds a blocker; heartbeats and the HTTP interface report the oldest one."""

from __future__ import annotations

import threading
import time
from contextlib import AbstractContextManager

from millpond.errors import BrokerError, MillpondError
from millpond.protocol import Trouble
from millpond.serdes.waits import telling_waits
from millpond.texts import said

__all__ = ("Blockers",)

#: A shorter wait is not reported.
_REPORTED_AFTER_S = 10.0
_REGISTRY = "schema registry"


class Blockers:
    """The blockers of a worker by name: the things that it waits for now. Safe from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._blockers: dict[str, tuple[bool, float, float, MillpondError]] = {}

    def add(
        self, name: str, error: MillpondError, reported_after_s: float = _REPORTED_AFTER_S, *, warning: bool = False
    ) -> None:
        """Add a blocker, or replace the reason of an existing one.

        Args:
            name: a name for the thing that the worker waits for.
            error: the reason, with its cure.
            reported_after_s: the age at which the blocker is reported, in seconds.
            warning: whether the worker does not wait for it: it is reported while there is no other one.
        """
        with self._lock:
            _, since, _, _ = self._blockers.get(name, (warning, time.monotonic(), 0.0, None))
            self._blockers[name] = (warning, since, reported_after_s, error)

    def remove(self, name: str) -> None:
        """Remove the blocker with this name, if any."""
        with self._lock:
            self._blockers.pop(name, None)

    def waits_of_serdes(self) -> AbstractContextManager[None]:
        """Return the block in which waits for a schema registry in this thread are blockers, reported at once."""

        def tell(error: BrokerError | None) -> None:
            if error is None:
                self.remove(_REGISTRY)
            else:
                self.add(_REGISTRY, error, 0.0)

        return telling_waits(tell)

    @property
    def wait_for_registry(self) -> bool:
        """Whether the worker waits for a schema registry, and processes nothing meanwhile."""
        with self._lock:
            return _REGISTRY in self._blockers

    def trouble(self, after_s: float | None = None) -> Trouble | None:
        """Return the oldest blocker to report; with `after_s`, the oldest of at least that age in seconds."""
        now = time.monotonic()
        with self._lock:
            reported = [
                (warning, since, error)
                for warning, since, reported_after_s, error in self._blockers.values()
                if now - since >= (reported_after_s if after_s is None else after_s)
            ]
        if not reported:
            return None
        _, _, error = min(reported, key=lambda each: each[:2])
        return Trouble(type(error).__name__, said(error))
