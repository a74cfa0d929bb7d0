"""One seed for a run of tests, from which each test derives its own: `pytest --seed N` repeats all random choices."""

from __future__ import annotations

import random
import zlib

__all__ = ("derived", "fresh")

_LIMIT = 2**32


def fresh() -> int:
    """Return a seed that nobody chose."""
    return random.SystemRandom().randrange(_LIMIT)


def derived(seed: int, name: str) -> int:
    """Return the seed of one test in a run.

    Args:
        seed: of the run.
        name: the test's node id.
    """
    return (seed ^ zlib.crc32(name.encode())) % _LIMIT
