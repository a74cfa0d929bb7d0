"""The session of a worker at its coordinator, as far as the worker itself knows it."""

from __future__ import annotations

from . import clock

__all__ = ("CoordinatorSession",)


class CoordinatorSession:
    """The worker's session at its coordinator. The client's event loop writes it; any thread may read it.

    The coordinator received a heartbeat at some time between its sending and the answer. The session counts from the
    sending, on a clock that does not stop while the machine sleeps.

    Attributes:
        timeout_s: the session timeout, in seconds: after this time without a heartbeat the worker counts as dead.
        lapses: how often the session may have timed out before the coordinator answered again.
    """

    def __init__(self, timeout_s: float) -> None:
        self.timeout_s = timeout_s
        self.lapses: int = 0
        self._heard_at = clock.boottime()

    def answered(self, sent_at: float) -> None:
        """Record the answer to a heartbeat that was sent at `sent_at` (`clock.boottime`)."""
        if self.lapsed:
            self.lapses += 1  # before _heard_at: a thread that sees a valid session must also see the lapse
        self._heard_at = max(self._heard_at, sent_at)

    @property
    def lapsed(self) -> bool:
        """Whether the session may have timed out."""
        return clock.boottime() - self._heard_at > self.timeout_s
