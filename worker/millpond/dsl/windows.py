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
    """How far apart windows start; None: `size`, so that they tumble."""
    grace: timedelta = timedelta(0)
    """How far stream time may be past a window's end while records for it are still accepted."""
    size_ms: int = field(init=False, repr=False)
    advance_ms: int = field(init=False, repr=False)
    grace_ms: int = field(init=False, repr=False)

    def __post_init__(self) -> None:
        size = milliseconds(self.size, "size")
        advance = size if self.advance is None else milliseconds(self.advance, "advance")
        if size == 0:
            raise TopologyError("A window of size=timedelta(0) holds nothing; give a positive size.")
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
        """Whether each moment is in exactly one window."""
        return self.advance_ms == self.size_ms

    def starts(self, timestamp: int) -> range:
        """Starts, in epoch ms, of all windows that contain `timestamp`; none is negative."""
        first = max(0, timestamp - self.size_ms + self.advance_ms) // self.advance_ms * self.advance_ms
        return range(first, timestamp + 1, self.advance_ms)
