"""One seed for a run of tests, from which each test derives its own: `pytest --seed N` repeats all random choices.

The seed also chooses the shares of long tests: with `pytest.mark.share(3)`, `make test` runs three of a test's cases,
and `make nightly` all of them.
"""

from __future__ import annotations

import random
import re
import zlib
from collections import defaultdict
from collections.abc import Iterable

import pytest

__all__ = ("RUN", "derived", "fresh", "left_out", "plain")

_LIMIT = 2**32
_SHARE = "share"
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


def left_out(items: Iterable[pytest.Item], seed: int, *, most: int | None = None) -> list[pytest.Item]:
    """Return the cases that this run does not take.

    Args:
        items: all tests that were collected.
        seed: the seed of the run.
        most: the largest number of cases of any test; None takes all but those of `share`.
    """
    families: defaultdict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        if most is not None or item.get_closest_marker(_SHARE) is not None:
            families[item.nodeid.partition("[")[0]].append(item)
    out: list[pytest.Item] = []
    for name, cases in families.items():
        mark = cases[0].get_closest_marker(_SHARE)
        sizes = [len(cases), most if most is not None else len(cases)]
        size = min(*sizes, int(mark.args[0])) if mark is not None else min(sizes)
        if size == len(cases):
            continue
        taken = set(random.Random(derived(seed, name)).sample(range(len(cases)), size))
        out += [case for number, case in enumerate(cases) if number not in taken]
    return out
