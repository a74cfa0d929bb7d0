"""Sessions: a worker without heartbeats counts as dead after a timeout. Times are in monotonic milliseconds."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta

from .members import Membership
from .options import EngineOptions

__all__ = ("TICK_MS", "Sessions")

#: How often the time is checked, in milliseconds.
TICK_MS = 100
#: A longer gap between ticks means that the coordinator itself was paused.
_STALL_MS = 300


class Sessions:
    """The sessions of one application's workers.

    Attributes:
        timeout_ms: a worker without a heartbeat for this long counts as dead.
        return_ms: the same, for the first heartbeat after a restart of the coordinator.
    """

    def __init__(self, options: EngineOptions) -> None:
        self.timeout_ms = _ms(options.session_timeout)
        self.return_ms = max(self.timeout_ms, _ms(options.return_timeout))
        self._reconnect_ms = _ms(options.reconnect_timeout)
        self._last_tick_ms: int | None = None

    def reconfigure(self, options: EngineOptions, members: Iterable[Membership], now_ms: int) -> bool:
        """Continue with other timeouts; return whether workers need an answer with the new timeouts.

        Workers send heartbeats at the pace of the timeout that they know, so each session is extended once by the
        difference.
        """
        before, self.timeout_ms = self.timeout_ms, _ms(options.session_timeout)
        self.return_ms = max(self.timeout_ms, _ms(options.return_timeout))
        self._reconnect_ms = _ms(options.reconnect_timeout)
        for member in members:
            member.heard_ms = max(member.heard_ms, now_ms + before - self.timeout_ms)
        return before != self.timeout_ms

    def stalled_ms(self, now_ms: int) -> int:
        """Note the time; return how long the coordinator was paused since the last call, in milliseconds."""
        last, self._last_tick_ms = self._last_tick_ms, now_ms
        return now_ms - last - TICK_MS if last is not None and now_ms - last > _STALL_MS else 0

    def await_return(self, member: Membership, now_ms: int) -> None:
        """Give a worker of an earlier coordinator time to send its first heartbeat to this one."""
        member.heard_ms = now_ms + self.return_ms - self.timeout_ms

    @staticmethod
    def extend(member: Membership, stalled_ms: int, now_ms: int) -> None:
        """Extend a session by the time in which no heartbeat could be received."""
        member.heard_ms = min(member.heard_ms + stalled_ms, max(member.heard_ms, now_ms))
        member.reconnect_by_ms = member.reconnect_by_ms and member.reconnect_by_ms + stalled_ms

    def expect_reconnect(self, member: Membership, now_ms: int) -> None:
        """Count a worker as dead soon, unless it sends a heartbeat: its connection broke."""
        member.reconnect_by_ms = now_ms + self._reconnect_ms

    def ignore_for_now(self, member: Membership, now_ms: int) -> None:
        """Ignore heartbeats that a worker sent before it was reported dead."""
        member.ignored_until_ms = now_ms + self.timeout_ms // 3

    def end_of(self, member: Membership, now_ms: int) -> str | None:
        """Return how a live worker's session ended, for the log line "worker …: "; None while it lasts."""
        if member.reconnect_by_ms is not None and now_ms >= member.reconnect_by_ms:
            return "lost its connection and did not reconnect; it counts as dead"
        silent_ms = now_ms - member.heard_ms
        if silent_ms >= self.timeout_ms:
            return f"sent no heartbeat for {silent_ms / 1000:.1f} s; it counts as dead"
        return None


def _ms(duration: timedelta) -> int:
    return duration // timedelta(milliseconds=1)
