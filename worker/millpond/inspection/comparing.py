"""Comparison of rows at one offset of a changelog with rows at another. Pure.

    rows at the lower offset + changes in between  ==  rows at the higher offset

A key with a change above the higher offset cannot always be compared: compaction may have removed the change in
between. Expired windows may be deleted at different times in different copies. Neither is reported as a difference.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

__all__ = ("Change", "Comparison", "Difference", "apply", "compare", "split_changes")

Row = tuple[bytes, bytes]


class Change(NamedTuple):
    """The change that a committed changelog record makes to a row."""

    offset: int
    key: bytes
    """Key of the row in store format."""
    value: bytes | None
    """The new value; None deletes the row."""
    timestamp: int = 0
    """The timestamp of the record in epoch ms: the time of a version."""


class Difference(NamedTuple):
    """A key with different rows."""

    key: bytes
    """Key of the row in store format."""
    expected: bytes | None
    """The expected value; None if there should be no row."""
    found: bytes | None
    """The value found; None if the row is missing."""


@dataclass
class Comparison:
    """The result of comparing one store partition."""

    rows: int = 0
    """Number of rows found."""
    compared: int = 0
    """Number of keys compared."""
    differ: int = 0
    missing: int = 0
    extra: int = 0
    examples: list[Difference] = field(default_factory=list)
    """The first differences, by key."""

    @property
    def wrong(self) -> int:
        """The number of keys whose rows differ from the expected rows."""
        return self.differ + self.missing + self.extra


def split_changes(changes: Iterable[Change], lower: int, higher: int) -> tuple[dict[bytes, bytes | None], set[bytes]]:
    """Return the last value by key of changes with lower <= offset < higher, and the keys with later changes."""
    between: dict[bytes, bytes | None] = {}
    later: set[bytes] = set()
    for offset, key, value, _ in changes:
        if offset >= higher:
            later.add(key)
        elif offset >= lower:
            between[key] = value
    return between, later


def apply(rows: Iterable[Row], changes: Mapping[bytes, bytes | None]) -> Iterator[Row]:
    """Return rows with changes applied.

    Args:
        rows: rows in ascending order of keys.
        changes: the new values by key; None deletes the row.
    """
    waiting = sorted(changes, reverse=True)
    for key, value in rows:
        while waiting and waiting[-1] < key:
            yield from _new_row(waiting.pop(), changes)
        if waiting and waiting[-1] == key:
            yield from _new_row(waiting.pop(), changes)
        else:
            yield key, value
    while waiting:
        yield from _new_row(waiting.pop(), changes)


def _new_row(key: bytes, changes: Mapping[bytes, bytes | None]) -> Iterator[Row]:
    value = changes[key]
    if value is not None:
        yield key, value


def compare(
    expected: Iterable[Row],
    found: Iterable[Row],
    *,
    undecided: Container[bytes],
    expired: Callable[[bytes], bool],
    examples: int,
) -> Comparison:
    """Compare rows with the expected rows.

    Args:
        expected: rows in ascending order of keys.
        found: rows in ascending order of keys.
        undecided: keys whose differences are not counted.
        expired: returns whether a row is ignored, from its key.
        examples: the number of differences to keep.
    """
    result = Comparison()
    for key, wanted, actual in _merge_by_key(expected, found):
        result.rows += actual is not None
        if expired(key):
            continue
        if wanted != actual and key in undecided:
            continue
        result.compared += 1
        if wanted == actual:
            continue
        if wanted is None:
            result.extra += 1
        elif actual is None:
            result.missing += 1
        else:
            result.differ += 1
        if len(result.examples) < examples:
            result.examples.append(Difference(key, wanted, actual))
    return result


def _merge_by_key(left: Iterable[Row], right: Iterable[Row]) -> Iterator[tuple[bytes, bytes | None, bytes | None]]:
    """Yield each key of either side, with its value on both sides."""
    lefts, rights = iter(left), iter(right)
    one, other = next(lefts, None), next(rights, None)
    while one is not None or other is not None:
        if other is None or (one is not None and one[0] < other[0]):
            assert one is not None
            yield one[0], one[1], None
            one = next(lefts, None)
        elif one is None or other[0] < one[0]:
            yield other[0], None, other[1]
            other = next(rights, None)
        else:
            yield one[0], one[1], other[1]
            one, other = next(lefts, None), next(rights, None)
