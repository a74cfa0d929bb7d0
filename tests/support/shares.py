"""Shares of long tests: with `pytest.mark.share(3)`, `make test` runs three of a test's cases, `make soak` all of them.

The cases are chosen by the seed of the run, so that each run takes others.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterable

import pytest

from tests.support import seeds

__all__ = ("left_out",)

_MARK = "share"


def left_out(items: Iterable[pytest.Item], seed: int) -> list[pytest.Item]:
    """Return the cases that this run does not take.

    Args:
        items: all tests that were collected.
        seed: the seed of the run.
    """
    families: defaultdict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        if item.get_closest_marker(_MARK) is not None:
            families[item.nodeid.partition("[")[0]].append(item)
    out: list[pytest.Item] = []
    for name, cases in families.items():
        mark = cases[0].get_closest_marker(_MARK)
        size = min(len(cases), int(mark.args[0])) if mark is not None else len(cases)
        taken = random.Random(seeds.derived(seed, name)).sample(range(len(cases)), size)
        out += [case for number, case in enumerate(cases) if number not in taken]
    return out
