"""Reading in key order through two layers: what is staged hides what the backend has."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TypeVar

__all__ = ("merge",)

E = TypeVar("E")


def merge(
    committed: Iterator[tuple[bytes, bytes]], staged: Mapping[bytes, E], reverse: bool = False
) -> Iterator[tuple[bytes, bytes | E]]:
    """Rows of both layers in key order, the staged one where both have the key.

    Both layers are those of the moment of the call: `staged` must not change any more, and backends iterate over a
    snapshot. Deletions are given as staged entries like any other; the caller knows what one looks like.

    Args:
        committed: backend rows in key order, or in reverse order when `reverse` is set.
        staged: full key -> entry.
        reverse: descending order.
    """
    if not staged:
        return committed
    return _merge(committed, staged, sorted(staged, reverse=reverse), reverse)


def _merge(
    committed: Iterator[tuple[bytes, bytes]], staged: Mapping[bytes, E], ordered: list[bytes], reverse: bool
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
