"""How long the coordinator may not have heard of a worker, as the worker itself can know it."""

from __future__ import annotations

from . import clock

__all__ = ("CoordinatorSession",)


class CoordinatorSession:
    """The worker's session at its coordinator. The client's event loop writes it; any thread may read it.

    The coordinator certainly heard of the worker when it answered, and not before the answered heartbeat was sent: the
    session counts from there, on a clock that does not stop while the machine sleeps.

    Attributes:
        timeout_s: after so long a silence the coordinator takes this worker for dead, in seconds.
        lapses: how often the session may have timed out before the coordinator answered again.
    """

    def __init__(self, timeout_s: float) -> None:
        self.timeout_s = timeout_s
        self.lapses = 0
        self._heard_at = clock.boottime()

    def answered(self, sent_at: float) -> None:
        """A heartbeat was answered that was sent at `sent_at` (`clock.boottime`)."""
        if self.lapsed:
            self.lapses += 1  # first: who finds the session good again has to see this
        self._heard_at = max(self._heard_at, sent_at)

    @property
    def lapsed(self) -> bool:
        """Whether the session may have timed out by now."""
        return clock.boottime() - self._heard_at > self.timeout_s
