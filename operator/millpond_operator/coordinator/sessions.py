"""When a silent worker counts as gone. Times are milliseconds of one clock."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta

from .members import Membership
from .options import EngineOptions

__all__ = ("TICK_MS", "Sessions")

#: How often the time is looked at.
TICK_MS = 100
#: A gap between ticks that is longer says that the coordinator itself stood still, not its workers.
_STALL_MS = 300


class Sessions:
    """The sessions of one application's workers.

    Attributes:
        timeout_ms: a worker that is silent for longer counts as gone.
        return_ms: how long a worker may be silent at first when its coordinator starts again.
    """

    def __init__(self, options: EngineOptions) -> None:
        self.timeout_ms = _ms(options.session_timeout)
        self.return_ms = max(self.timeout_ms, _ms(options.return_timeout))
        self._reconnect_ms = _ms(options.reconnect_timeout)
        self._last_tick_ms: int | None = None

    def reconfigure(self, options: EngineOptions, members: Iterable[Membership], now_ms: int) -> bool:
        """Go on with other timeouts; whether workers have to be told.

        They heartbeat as often as the timeout asks that they know: for once they may be silent for that long.
        """
        before, self.timeout_ms = self.timeout_ms, _ms(options.session_timeout)
        self.return_ms = max(self.timeout_ms, _ms(options.return_timeout))
        self._reconnect_ms = _ms(options.reconnect_timeout)
        for member in members:
            member.heard_ms = max(member.heard_ms, now_ms + before - self.timeout_ms)
        return before != self.timeout_ms

    def stood_still(self, now_ms: int) -> int:
        """Note the time; for how long the coordinator itself could hear nobody since it was noted last."""
        last, self._last_tick_ms = self._last_tick_ms, now_ms
        return now_ms - last - TICK_MS if last is not None and now_ms - last > _STALL_MS else 0

    def expect(self, member: Membership, now_ms: int) -> None:
        """A worker was told of by an earlier coordinator, and has to find this one: as if it were heard of later."""
        member.heard_ms = now_ms + self.return_ms - self.timeout_ms

    @staticmethod
    def excuse(member: Membership, stalled_ms: int, now_ms: int) -> None:
        """A worker could not be heard for so long."""
        member.heard_ms = min(member.heard_ms + stalled_ms, max(member.heard_ms, now_ms))
        member.doubted_ms = member.doubted_ms and member.doubted_ms + stalled_ms

    def doubt(self, member: Membership, now_ms: int) -> None:
        """A worker's connection broke: it counts as gone unless it is heard of soon."""
        member.doubted_ms = now_ms + self._reconnect_ms

    def deafen(self, member: Membership, now_ms: int) -> None:
        """A worker was reported gone: what it sent before its end may still be on the way."""
        member.deaf_until_ms = now_ms + self.timeout_ms // 3

    def end_of(self, member: Membership, now_ms: int) -> str | None:
        """How a live worker's session ended, as the rest of a sentence; None while it has not."""
        if member.doubted_ms is not None and now_ms >= member.doubted_ms:
            return "broke its connection, did not come back, and counts as gone"
        silent_ms = now_ms - member.heard_ms
        if silent_ms >= self.timeout_ms:
            return f"was silent for {silent_ms / 1000:.1f} s and counts as gone"
        return None


def _ms(duration: timedelta) -> int:
    return duration // timedelta(milliseconds=1)
