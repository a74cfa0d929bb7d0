"""One seed for a run of tests, from which each test derives its own: `pytest --seed N` repeats all random choices."""

from __future__ import annotations

import random
import re
import zlib

__all__ = ("RUN", "derived", "fresh", "plain")

_LIMIT = 2**32
RUN: int | None = None
"""The seed of this run of tests; None outside of one."""


def fresh() -> int:
    """Return a random seed."""
    return random.SystemRandom().randrange(_LIMIT)


def derived(seed: int, name: str) -> int:
    """Return the seed of one test in a run.

    Args:
        seed: the seed of the run.
        name: the test's node id.
    """
    return (seed ^ zlib.crc32(plain(name).encode())) % _LIMIT


def plain(name: str) -> str:
    """Return a node id without the group that pytest-xdist appends."""
    return re.sub(r"@[\w-]+$", "", name)
