"""Merge the staged entries of a store with the rows of its backend, in key order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TypeVar

__all__ = ("merge",)

E = TypeVar("E")


def merge(
    committed: Iterator[tuple[bytes, bytes]], staged: Mapping[bytes, E], *, reverse: bool = False
) -> Iterator[tuple[bytes, bytes | E]]:
    """Return committed rows and staged entries in key order; for a key that both have, the staged entry.

    Both are read as of the call: `staged` must not change afterwards, and backends iterate over a snapshot. Deletions
    are staged entries like any other; the caller tells them apart.

    Args:
        committed: backend rows in key order, or in reverse order when `reverse` is set.
        staged: full key -> entry.
        reverse: whether the order is descending.
    """
    if not staged:
        return committed
    return _merge(committed, staged, sorted(staged, reverse=reverse), reverse=reverse)


def _merge(
    committed: Iterator[tuple[bytes, bytes]], staged: Mapping[bytes, E], ordered: list[bytes], *, reverse: bool
) -> Iterator[tuple[bytes, bytes | E]]:
    at, end = 0, len(ordered)
    for row in committed:
        key = row[0]
        while at < end and (ordered[at] > key if reverse else ordered[at] < key):
            yield ordered[at], staged[ordered[at]]
            at += 1
        if at < end and ordered[at] == key:
            yield key, staged[key]
            at += 1
        else:
            yield row
    for key in ordered[at:]:
        yield key, staged[key]
