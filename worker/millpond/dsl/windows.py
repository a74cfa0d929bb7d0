"""Windows of event time."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TypeAlias

from millpond.calls import checked_call, checked_class
from millpond.checks import kind_of
from millpond.errors import TopologyError

from .durations import milliseconds

__all__ = ("FixedWindows", "SlidingWindows", "TimeWindows", "UnlimitedWindows", "check_fixed_windows")

MAX_LONG = 2**63 - 1
"""The end of windows that never end, in epoch ms."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@checked_class
@dataclass(frozen=True)
class TimeWindows:
    """Windows of one size: tumbling (one after another), or hopping when `advance` is shorter than `size`.

    A window starts at a multiple of `advance` since the epoch and ends, exclusively, `size` later.

    Raises:
        TopologyError: the size is not positive, or the advance is not within (0, size].

    Example:
        >>> hourly = mp.TimeWindows.of_size_and_grace(timedelta(hours=1), timedelta(minutes=5))
        >>> hopping = hourly.advance_by(timedelta(minutes=10))
        >>> counts = lines.group_by_key().windowed_by(hopping).count(store="counts")
    """

    size: timedelta
    """How long a window is."""
    advance: timedelta | None = None
    """The time between the starts of two windows; None: `size`, for tumbling windows."""
    grace: timedelta = timedelta(0)
    """How long after its end, in stream time, a window still takes records (KIP-328)."""
    size_ms: int = field(init=False, repr=False)
    """`size` in ms."""
    advance_ms: int = field(init=False, repr=False)
    """`advance` in ms, `size_ms` for tumbling windows."""
    grace_ms: int = field(init=False, repr=False)
    """`grace` in ms."""

    def __post_init__(self) -> None:
        size = milliseconds(self.size, "size")
        advance = size if self.advance is None else milliseconds(self.advance, "advance")
        if size == 0:
            raise TopologyError("A window of size=timedelta(0) is empty; give a positive size.")
        if not 0 < advance <= size:
            raise TopologyError(
                f"Windows of {self.size} cannot start every {self.advance}: advance= has to be positive and at most "
                "the size, or records would fall between windows."
            )
        object.__setattr__(self, "size_ms", size)
        object.__setattr__(self, "advance_ms", advance)
        object.__setattr__(self, "grace_ms", milliseconds(self.grace, "grace"))

    @staticmethod
    @checked_call
    def of_size_with_no_grace(size: timedelta) -> TimeWindows:
        """Return tumbling windows that close when stream time has reached their end."""
        return TimeWindows(size)

    @staticmethod
    @checked_call
    def of_size_and_grace(size: timedelta, grace: timedelta) -> TimeWindows:
        """Return tumbling windows that close when stream time has reached their end plus `grace`."""
        return TimeWindows(size, grace=grace)

    @checked_call
    def advance_by(self, advance: timedelta) -> TimeWindows:
        """Return windows of the same size and grace that start every `advance`.

        Raises:
            TopologyError: the advance is not within (0, size].
        """
        return TimeWindows(self.size, advance=advance, grace=self.grace)

    @property
    def open_ms(self) -> int:
        """How far stream time is beyond the end of a window that closes, in ms.

        It is the grace, since the end is exclusive.
        """
        return self.grace_ms

    @property
    def kept_ms(self) -> int:
        """The least retention of their store, in ms: size plus grace."""
        return self.size_ms + self.grace_ms

    @property
    def tumbling(self) -> bool:
        """Whether each moment is in exactly one window: `advance` equals `size`."""
        return self.advance_ms == self.size_ms

    def starts(self, timestamp: int) -> range:
        """Return the starts of all windows that contain `timestamp`; all are epoch ms, and no start is negative."""
        first = max(0, timestamp - self.size_ms + self.advance_ms) // self.advance_ms * self.advance_ms
        return range(first, timestamp + 1, self.advance_ms)


@checked_class
@dataclass(frozen=True)
class SlidingWindows:
    """Windows around records (KIP-450): each distinct combination of records within `time_difference` has one window.

    A record at `t` belongs to the window that ends with it, `[t - time_difference, t]`, and to all windows that contain
    `t` and start right after an earlier record. Both ends are inclusive.
    No window starts before 0: earlier records are in `[0, time_difference]`.

    The logins of each user within 10 minutes:

        windows = mp.SlidingWindows.of_time_difference_and_grace(timedelta(minutes=10), timedelta(minutes=1))
        table = logins.group_by_key().windowed_by(windows).count(store="logins-in-10-minutes")

    Raises:
        TopologyError: the time difference is not positive, or the grace is negative.

    Example:
        >>> windows = mp.SlidingWindows.of_time_difference_and_grace(timedelta(minutes=5), timedelta(minutes=1))
        >>> counts = lines.group_by_key().windowed_by(windows).count(store="counts")
    """

    time_difference: timedelta
    """The largest time between two records of a window."""
    grace: timedelta = timedelta(0)
    """How long after its end, in stream time, a window still takes records (KIP-328)."""
    size_ms: int = field(init=False, repr=False)
    """`time_difference` in ms: a window ends, inclusively, this long after its start."""
    grace_ms: int = field(init=False, repr=False)
    """`grace` in ms."""

    def __post_init__(self) -> None:
        size = milliseconds(self.time_difference, "time_difference")
        if size == 0:
            raise TopologyError(
                "A sliding window of time_difference=timedelta(0) has no length; give a positive time difference."
            )
        object.__setattr__(self, "size_ms", size)
        object.__setattr__(self, "grace_ms", milliseconds(self.grace, "grace"))

    @staticmethod
    @checked_call
    def of_time_difference_with_no_grace(time_difference: timedelta) -> SlidingWindows:
        """Return windows that take no record after stream time has passed their end."""
        return SlidingWindows(time_difference)

    @staticmethod
    @checked_call
    def of_time_difference_and_grace(time_difference: timedelta, grace: timedelta) -> SlidingWindows:
        """Return windows that take records until stream time has passed their end by `grace`."""
        return SlidingWindows(time_difference, grace)

    @property
    def open_ms(self) -> int:
        """How far stream time is beyond the end of a window that closes, in ms: 1 more than the grace.

        The end is inclusive: a window takes a record until stream time has passed its end plus grace.
        """
        return self.grace_ms + 1

    @property
    def kept_ms(self) -> int:
        """The least retention of their store, in ms: a record may need windows that start two sizes before it."""
        return 2 * self.size_ms + self.grace_ms


@checked_class
@dataclass(frozen=True)
class UnlimitedWindows:
    """One window per key without an end. Records before its start belong to no window, and are not counted as dropped.

    Raises:
        TopologyError: the start is not an aware datetime, or is before the epoch.

    Example:
        >>> counts = lines.group_by_key().windowed_by(mp.UnlimitedWindows.of()).count(store="counts")
    """

    start: datetime | None = None
    """When the window starts, inclusive; None: at the epoch."""
    start_ms: int = field(init=False, repr=False)
    """`start` in epoch ms."""
    size_ms: int = field(init=False, repr=False, default=MAX_LONG)
    """The highest timestamp: the window's end."""
    grace_ms: int = field(init=False, repr=False, default=0)
    """Always 0, because the window never ends."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "start_ms", 0 if self.start is None else _epoch_ms(self.start))

    @staticmethod
    @checked_call
    def of() -> UnlimitedWindows:
        """Return the windows that start at the epoch."""
        return UnlimitedWindows()

    @checked_call
    def start_on(self, start: datetime) -> UnlimitedWindows:
        """Return the windows that start at `start`, an aware datetime."""
        return UnlimitedWindows(start)

    @property
    def open_ms(self) -> int:
        """How far stream time is beyond the end of a window that closes, in ms."""
        return 0

    @property
    def kept_ms(self) -> int:
        """The least retention of their store: the highest number of ms."""
        return MAX_LONG


def _epoch_ms(start: datetime) -> int:
    if not isinstance(start, datetime) or start.tzinfo is None:
        raise TopologyError(
            f"start={start!r} is not a moment; use an aware datetime, such as datetime(2024, 1, 1, tzinfo=UTC)."
        )
    since = start - _EPOCH
    if since < timedelta(0):
        raise TopologyError(f"start={start} is before the epoch; windows start at 1970-01-01 or later.")
    return milliseconds(since, "start")


FixedWindows: TypeAlias = TimeWindows | SlidingWindows | UnlimitedWindows
"""The windows whose start gives their end."""


def check_fixed_windows(windows: object) -> None:
    """Check the argument of `windowed_by()` that is no session.

    Raises:
        TopologyError: it is none of `FixedWindows`.
    """
    if not isinstance(windows, TimeWindows | SlidingWindows | UnlimitedWindows):
        raise TopologyError(
            f"windowed_by() needs windows, such as mp.TimeWindows(timedelta(hours=1)), not {kind_of(windows)}."
        )
