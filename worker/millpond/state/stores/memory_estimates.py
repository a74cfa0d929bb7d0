"""Estimate the memory of staged entries from samples, so that no record pays for it.

The sizes are those of CPython 3.11 on 64 bits. They are rather too large: it is worse to exceed a budget than not to
use all of it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from itertools import islice

__all__ = ("DICT_SLOT", "LIST_SLOT", "PAIR", "Average", "size_of")

DICT_SLOT = 60
"""Bytes of a dict per entry: 24 in the entry table and 4 in the index, at a load of one third after it grew."""

LIST_SLOT = 9
"""Bytes of a list per item, over-allocation included."""

PAIR = 56
"""The bytes of a tuple of two, without its items."""

_SAMPLE = 16
_WEIGHT_OF_NEWEST = 0.25
_MAX_DEPTH = 4
_PLAIN = frozenset({int, float, str, bytes, bool, type(None)})


class Average:
    """A moving average of the size of objects, of which only samples are measured.

    Attributes:
        value: bytes per item; 0 until the first sample.
    """

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value: float = 0.0

    def sample(self, items: Iterable[object]) -> None:
        """Measure the first few of `items`."""
        sizes = [size_of(item) for item in islice(items, _SAMPLE)]
        if sizes:
            newest = sum(sizes) / len(sizes)
            self.value = self.value + (newest - self.value) * _WEIGHT_OF_NEWEST if self.value else newest


def size_of(item: object, depth: int = 0) -> int:
    """Return the bytes of memory of an object and its parts, down to a few levels; shared parts count each time."""
    size = sys.getsizeof(item)
    kind = type(item)
    if kind in _PLAIN or depth == _MAX_DEPTH:
        return size
    if kind is tuple:
        for part in item:  # type: ignore[attr-defined]
            size += sys.getsizeof(part) if type(part) in _PLAIN else size_of(part, depth + 1)
        return size
    if isinstance(item, (int, float, str, bytes)):
        return size
    if isinstance(item, dict):
        return size + sum(size_of(key, depth + 1) + size_of(value, depth + 1) for key, value in item.items())
    if isinstance(item, (tuple, list, set, frozenset)):
        return size + sum(size_of(part, depth + 1) for part in item)
    attributes = getattr(item, "__dict__", None)
    if attributes is not None:
        return size + size_of(attributes, depth + 1)
    fields = getattr(item, "__struct_fields__", None) or getattr(item, "__slots__", ())
    if isinstance(fields, tuple):
        return size + sum(size_of(getattr(item, name, None), depth + 1) for name in fields)
    return size
