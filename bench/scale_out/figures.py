"""What is measured of a worker that is added, and what follows from it. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final, Literal, NamedTuple

from bench.failover.analysis import Gap, Move
from bench.failover.fleet import Holdings

__all__ = ("WAYS", "Figure", "Way", "caught_up", "longest_gap_ms", "longest_pause_ms", "shared", "size_of")

Way = Literal["replay", "snapshot"]
WAYS: Final[tuple[Way, ...]] = ("replay", "snapshot")

_UNITS: Final = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9}
_LAG: Final = 2_000
"""Changelog records that a copy may be behind: some seconds of the input of a task."""


class Figure(NamedTuple):
    """One worker that was added."""

    way: Way
    state_bytes: int
    """Of each task."""
    tasks: int
    """How many it got."""
    first_s: float
    """From the start of its process to its first caught-up copy."""
    all_s: float
    """From the start of its process until it processed all tasks of its share."""
    pause_ms: float
    """The longest pause of a task that moved to it."""
    others_ms: float
    """The longest time in which a task that stayed processed nothing."""
    ingested: int
    """Stores that it loaded from a snapshot."""


def size_of(text: str) -> int:
    """Return the bytes that `64M` or `2G` means, in powers of ten.

    Raises:
        ValueError: it is no size.
    """
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([KMG]?)B?", text.strip().upper())
    if found is None:
        raise ValueError(f"'{text}' is no size: write a number of bytes such as 64M or 2G")
    return int(float(found[1]) * _UNITS[found[2]])


def caught_up(holdings: Holdings, worker: str) -> int:
    """Return how many tasks a worker processes, or has a caught-up copy of."""
    held = holdings.get(worker)
    if held is None:
        return 0
    return len(held.active) + sum(lag is not None and 0 <= lag <= _LAG for lag in held.standby.values())


def shared(holdings: Holdings, partitions: int) -> bool:
    """Whether each task is processed by one worker, all have as many, and none moves any more."""
    actives = [partition for held in holdings.values() for partition in held.active]
    if sorted(actives) != list(range(partitions)) or not all(held.ready for held in holdings.values()):
        return False
    counts = [len(held.active) for held in holdings.values()]
    return max(counts) - min(counts) <= 1


def longest_pause_ms(moves: Iterable[Move], owner: str) -> float:
    """Return the longest pause of a task that moved to a process, in ms; 0 when none did."""
    return max((each.pause_ms for each in moves if each.after.owner == owner), default=0.0)


def longest_gap_ms(gaps: Iterable[Gap], since_us: int) -> float:
    """Return the longest time in which a task processed nothing under one owner, in ms.

    Args:
        gaps: of all tasks.
        since_us: only what ended later counts, epoch microseconds.
    """
    return max((each.length_us / 1000 for each in gaps if each.end_us > since_us), default=0.0)
