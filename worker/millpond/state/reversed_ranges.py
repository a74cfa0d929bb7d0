"""Warnings about ranges of keys whose lower bound is above the upper one, and which therefore have no rows."""

from __future__ import annotations

import logging

__all__ = ("shown_key", "warn_of_reversed_query", "warn_of_reversed_range")

_LONGEST_KEY = 100

log: logging.Logger = logging.getLogger(__name__)

_told: set[str] = set()


def warn_of_reversed_range(store: str, low: object, high: object) -> None:
    """Log that a range of keys has no rows, with both keys and the cure.

    Args:
        store: the store's name.
        low: the lower bound, whose bytes are above those of the upper one.
        high: the upper bound.
    """
    log.warning(
        "store %s: the range from %s to %s has no rows, because the bytes of the first key are above those of the last "
        "one; swap them. In Short, Int and Long, negative numbers are above positive ones: read such a range in two "
        "parts",
        store, shown_key(low), shown_key(high),
    )  # fmt: skip


def warn_of_reversed_query(store: str, low: object, high: object) -> None:
    """Log the same as `warn_of_reversed_range`, for a query: once for each store, however many ask."""
    if store not in _told:
        _told.add(store)
        warn_of_reversed_range(store, low, high)


def shown_key(key: object) -> str:
    """Return a key for a message, cut to 100 characters."""
    shown = repr(key)
    return shown if len(shown) <= _LONGEST_KEY else f"{shown[:_LONGEST_KEY]}…"
