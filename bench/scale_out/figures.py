"""Measurements of an added worker. Pure functions."""

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
"""The allowed lag of a copy in changelog records: some seconds of a task's input."""


class Figure(NamedTuple):
    """One added worker."""

    way: Way
    state_bytes: int
    """Bytes of state of each task."""
    tasks: int
    """The number of tasks that it got."""
    first_s: float
    """Seconds from the start of its process to its first caught-up copy."""
    all_s: float
    """Seconds from the start of its process until it processed all tasks of its share."""
    pause_ms: float
    """The longest pause of a task that moved to it, in milliseconds."""
    others_ms: float
    """The longest gap of a task that did not move, in milliseconds."""
    ingested: int
    """Stores that it ingested from a snapshot."""


def size_of(text: str) -> int:
    """Return the bytes that `64M` or `2G` means, in powers of ten.

    Raises:
        ValueError: the text is not a size.
    """
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([KMG]?)B?", text.strip().upper())
    if found is None:
        raise ValueError(f"'{text}' is not a size: write a number of bytes such as 64M or 2G")
    return int(float(found[1]) * _UNITS[found[2]])


def caught_up(holdings: Holdings, worker: str) -> int:
    """Return the number of tasks that a worker processes or has a caught-up copy of."""
    held = holdings.get(worker)
    if held is None:
        return 0
    return len(held.active) + sum(lag is not None and 0 <= lag <= _LAG for lag in held.standby.values())


def shared(holdings: Holdings, partitions: int) -> bool:
    """Return whether each task is processed by one worker, all have equally many, and none is moving."""
    actives = [partition for held in holdings.values() for partition in held.active]
    if sorted(actives) != list(range(partitions)) or not all(held.ready for held in holdings.values()):
        return False
    counts = [len(held.active) for held in holdings.values()]
    return max(counts) - min(counts) <= 1


def longest_pause_ms(moves: Iterable[Move], owner: str) -> float:
    """Return the longest pause of a task that moved to a process, in ms; 0 if none moved."""
    return max((each.pause_ms for each in moves if each.after.owner == owner), default=0.0)


def longest_gap_ms(gaps: Iterable[Gap], since_us: int) -> float:
    """Return the longest time in which a task processed nothing under one owner, in ms.

    Args:
        gaps: the gaps of all tasks.
        since_us: only gaps that ended later count, epoch microseconds.
    """
    return max((each.length_us / 1000 for each in gaps if each.end_us > since_us), default=0.0)
