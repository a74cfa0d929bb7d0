"""Windows that end when a key is inactive."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta

from millpond.calls import checked_class
from millpond.dsl.durations import milliseconds

__all__ = ("SessionWindows",)


@checked_class
@dataclass(frozen=True)
class SessionWindows:
    """Sessions: the records of a key of which each is at most `gap` after another one.

    A session starts with its first record and ends, inclusively, with its last one. A record that closes the gap
    between two sessions merges them.

        >>> from datetime import timedelta
        >>> import millpond as mp
        >>> mp.SessionWindows(timedelta(minutes=5), grace=timedelta(minutes=1))
        SessionWindows(gap=datetime.timedelta(seconds=300), grace=datetime.timedelta(seconds=60))

    Raises:
        TopologyError: the gap or the grace is negative.
    """

    gap: timedelta
    """The longest time between two records of one session. With 0, only records of one time share a session."""
    grace: timedelta = timedelta(0)
    """How long after its end plus the gap, in stream time, a session still takes records (KIP-328)."""
    gap_ms: int = field(init=False, repr=False)
    """`gap` in ms."""
    grace_ms: int = field(init=False, repr=False)
    """`grace` in ms."""

    @property
    def open_ms(self) -> int:
        """How far stream time is beyond the end of a session that closes, in ms.

        The end is inclusive: a session takes a record until stream time has passed its end plus gap plus grace.
        """
        return self.gap_ms + self.grace_ms + 1

    def __post_init__(self) -> None:
        object.__setattr__(self, "gap_ms", milliseconds(self.gap, "gap"))
        object.__setattr__(self, "grace_ms", milliseconds(self.grace, "grace"))

    @staticmethod
    def of_inactivity_gap_with_no_grace(gap: timedelta) -> SessionWindows:
        """Return sessions without a grace period (KIP-633): `SessionWindows(gap)`."""
        return SessionWindows(gap)

    @staticmethod
    def of_inactivity_gap_and_grace(gap: timedelta, grace: timedelta) -> SessionWindows:
        """Return sessions with a grace period (KIP-633): `SessionWindows(gap, grace)`."""
        return SessionWindows(gap, grace)
