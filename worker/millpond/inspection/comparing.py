"""Compares rows that stand at one offset of a changelog with rows that stand at another. Pure.

    rows at the lower offset + changes in between  ==  rows at the higher offset

A key with a change above the higher offset cannot always be judged: compaction may have removed the change in between. And
windows that have expired may be deleted a little later by one than by another. Neither is told as a difference.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

__all__ = ("Change", "Comparison", "Difference", "apply", "compare", "split_changes")

Row = tuple[bytes, bytes]


class Change(NamedTuple):
    """A committed changelog record, as what it does to a row."""

    offset: int
    key: bytes
    """Full key of the row."""
    value: bytes | None
    """None deletes it."""


class Difference(NamedTuple):
    """A key whose rows are not the same."""

    key: bytes
    """Full key."""
    expected: bytes | None
    """None: the row should not be there."""
    found: bytes | None
    """None: the row is missing."""


@dataclass
class Comparison:
    """What was found in one store partition."""

    rows: int = 0
    """Rows that were found."""
    compared: int = 0
    """Keys that were compared."""
    differ: int = 0
    missing: int = 0
    extra: int = 0
    examples: list[Difference] = field(default_factory=list)
    """The first differences, by key."""

    @property
    def wrong(self) -> int:
        """How many keys are not as expected."""
        return self.differ + self.missing + self.extra


def split_changes(changes: Iterable[Change], lower: int, higher: int) -> tuple[dict[bytes, bytes | None], set[bytes]]:
    """Return what the changes with lower <= offset < higher leave, by full key, and the keys that changed later."""
    between: dict[bytes, bytes | None] = {}
    later: set[bytes] = set()
    for offset, key, value in changes:
        if offset >= higher:
            later.add(key)
        elif offset >= lower:
            between[key] = value
    return between, later


def apply(rows: Iterable[Row], changes: Mapping[bytes, bytes | None]) -> Iterator[Row]:
    """Return rows after some changes.

    Args:
        rows: ascending by key.
        changes: the new value by key; None deletes.
    """
    waiting = sorted(changes, reverse=True)
    for key, value in rows:
        while waiting and waiting[-1] < key:
            yield from _changed(waiting.pop(), changes)
        if waiting and waiting[-1] == key:
            yield from _changed(waiting.pop(), changes)
        else:
            yield key, value
    while waiting:
        yield from _changed(waiting.pop(), changes)


def _changed(key: bytes, changes: Mapping[bytes, bytes | None]) -> Iterator[Row]:
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
    """Compare rows with those that should be there.

    Args:
        expected: ascending by key.
        found: ascending by key.
        undecided: full keys that are told only when they are the same.
        expired: whether a row, by its full key, is to be left out.
        examples: keep so many differences.
    """
    result = Comparison()
    for key, wanted, has in _side_by_side(expected, found):
        result.rows += has is not None
        if expired(key):
            continue
        if wanted != has and key in undecided:
            continue
        result.compared += 1
        if wanted == has:
            continue
        if wanted is None:
            result.extra += 1
        elif has is None:
            result.missing += 1
        else:
            result.differ += 1
        if len(result.examples) < examples:
            result.examples.append(Difference(key, wanted, has))
    return result


def _side_by_side(left: Iterable[Row], right: Iterable[Row]) -> Iterator[tuple[bytes, bytes | None, bytes | None]]:
    """Every key of either, with the value in each."""
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
