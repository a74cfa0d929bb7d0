"""The windows of stream-stream joins: how far apart the times of two records may be."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta

from millpond.calls import checked_call, checked_class
from millpond.dsl.durations import milliseconds
from millpond.errors import TopologyError

__all__ = ("JoinWindows",)


@checked_class
@dataclass(frozen=True)
class JoinWindows:
    """Windows of a stream-stream join: a record of the right stream joins one of the left stream at time t if its time
    is in [t - time_before, t + time_after]. Both ends are inclusive.

        JoinWindows.of_time_difference_with_no_grace(timedelta(minutes=5))                     # 5 minutes apart at most
        JoinWindows.of_time_difference_and_grace(timedelta(minutes=5), timedelta(minutes=1))   # late records, too
        JoinWindows.of_time_difference_with_no_grace(timedelta(hours=1)).before(timedelta(0))  # right after left

    Raises:
        TopologyError: the window ends before it starts, or the grace is negative.

    Example:
        >>> windows = mp.JoinWindows.of_time_difference_and_grace(timedelta(minutes=5), timedelta(minutes=1))
        >>> paid = lines.join(amounts, lambda line, amount: f"{line}: {amount}", windows.before(timedelta(0)))
        >>> paid.to("paid", value=mp.String)
    """

    time_before: timedelta
    """How much earlier than the left record the right one may be; a negative duration: how much later it has to be."""
    time_after: timedelta
    """How much later than the left record the right one may be; a negative duration: how much earlier it has to be."""
    grace: timedelta = timedelta(0)
    """How long records are kept for late records of the other stream, in stream time, beyond the window."""
    before_ms: int = field(init=False, repr=False)
    """`time_before` in ms."""
    after_ms: int = field(init=False, repr=False)
    """`time_after` in ms."""
    grace_ms: int = field(init=False, repr=False)
    """`grace` in ms."""

    def __post_init__(self) -> None:
        before, after = _signed(self.time_before, "time_before"), _signed(self.time_after, "time_after")
        if before + after < 0:
            raise TopologyError(
                f"Join windows from {before} ms before to {after} ms after a record end before they start; the sum of "
                "time_before= and time_after= must not be negative."
            )
        object.__setattr__(self, "before_ms", before)
        object.__setattr__(self, "after_ms", after)
        object.__setattr__(self, "grace_ms", milliseconds(self.grace, "grace"))

    @classmethod
    @checked_call
    def of_time_difference_with_no_grace(cls, time_difference: timedelta) -> JoinWindows:
        """Return windows for records whose times differ by at most `time_difference`, without grace.

        Raises:
            TopologyError: the duration is negative.
        """
        return cls.of_time_difference_and_grace(time_difference, timedelta(0))

    @classmethod
    @checked_call
    def of_time_difference_and_grace(cls, time_difference: timedelta, after_window_end: timedelta) -> JoinWindows:
        """Return windows for records whose times differ by at most `time_difference`.

        Args:
            time_difference: the largest difference of the times.
            after_window_end: the grace: how long records are kept for late ones, in stream time, beyond the window.

        Raises:
            TopologyError: a duration is negative.
        """
        milliseconds(time_difference, "time_difference")
        milliseconds(after_window_end, "after_window_end")
        return cls(time_difference, time_difference, after_window_end)

    @checked_call
    def before(self, time_difference: timedelta) -> JoinWindows:
        """Return the same windows with another `time_before`.

        Raises:
            TopologyError: the window ends before it starts.
        """
        return JoinWindows(time_difference, self.time_after, self.grace)

    @checked_call
    def after(self, time_difference: timedelta) -> JoinWindows:
        """Return the same windows with another `time_after`.

        Raises:
            TopologyError: the window ends before it starts.
        """
        return JoinWindows(self.time_before, time_difference, self.grace)

    @property
    def size_ms(self) -> int:
        """The length of the window in ms: `before_ms` plus `after_ms`."""
        return self.before_ms + self.after_ms


def _signed(duration: timedelta, what: str) -> int:
    if isinstance(duration, timedelta) and duration < timedelta(0):
        return -milliseconds(-duration, what)
    return milliseconds(duration, what)
