"""Windows of event time."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta

from millpond.calls import checked_class
from millpond.errors import TopologyError

from .durations import milliseconds

__all__ = ("TimeWindows",)


@checked_class
@dataclass(frozen=True)
class TimeWindows:
    """Windows of one size: tumbling (one after another), or hopping when `advance` is shorter than `size`.

    A window starts at a multiple of `advance` since the epoch and ends, exclusively, `size` later.

    Raises:
        TopologyError: the size is not positive, or the advance is not within (0, size].
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

    @property
    def tumbling(self) -> bool:
        """Whether each moment is in exactly one window: `advance` equals `size`."""
        return self.advance_ms == self.size_ms

    def starts(self, timestamp: int) -> range:
        """Return the starts of all windows that contain `timestamp`; all are epoch ms, and no start is negative."""
        first = max(0, timestamp - self.size_ms + self.advance_ms) // self.advance_ms * self.advance_ms
        return range(first, timestamp + 1, self.advance_ms)
