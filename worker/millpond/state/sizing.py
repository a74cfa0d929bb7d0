"""How much memory staged entries take: an estimate from samples, so that no record pays for it.

Figures are those of CPython 3.11 on 64 bits. They err on the high side, since a budget that is overrun is worse than
one that is not used up.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from itertools import islice

__all__ = ("DICT_SLOT", "LIST_SLOT", "PAIR", "Average", "weigh")

DICT_SLOT = 60
"""Bytes of a dict per entry: 24 in the entry table and 4 in the index, at a load of one third after growing."""

LIST_SLOT = 9
"""Bytes of a list per item, over-allocation included."""

PAIR = 56
"""Bytes of a tuple of two, without what it refers to."""

_SAMPLE = 16
_WEIGHT_OF_NEWEST = 0.25
_MAX_DEPTH = 4


class Average:
    """A moving average of the weight of things too many to weigh.

    Attributes:
        value: bytes per item; 0 until the first sample.
    """

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0.0

    def sample(self, items: Iterable[object]) -> None:
        """Weigh the first few of `items`."""
        weights = [weigh(item) for item in islice(items, _SAMPLE)]
        if weights:
            newest = sum(weights) / len(weights)
            self.value = self.value + (newest - self.value) * _WEIGHT_OF_NEWEST if self.value else newest


def weigh(item: object, depth: int = 0) -> int:
    """Bytes of memory of an object and what it holds, down to a few levels; shared parts count each time."""
    size = sys.getsizeof(item)
    if depth == _MAX_DEPTH or item is None or isinstance(item, (int, float, str, bytes)):
        return size
    if isinstance(item, dict):
        return size + sum(weigh(key, depth + 1) + weigh(value, depth + 1) for key, value in item.items())
    if isinstance(item, (tuple, list, set, frozenset)):
        return size + sum(weigh(part, depth + 1) for part in item)
    held = getattr(item, "__dict__", None)
    if held is not None:
        return size + weigh(held, depth + 1)
    fields = getattr(item, "__struct_fields__", None) or getattr(item, "__slots__", ())
    if isinstance(fields, tuple):
        return size + sum(weigh(getattr(item, name, None), depth + 1) for name in fields)
    return size
