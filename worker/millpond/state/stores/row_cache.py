"""The memory for committed rows, which all stores of a worker share.

A store takes as much as it needs while the sum is within the limit. Above it, the largest stores give way.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Protocol

__all__ = ("CachingStore", "RowCache", "fair_share")

#: An eviction frees this part of the limit more than it has to, so that not every commit evicts.
_SLACK = 16


class CachingStore(Protocol):
    """The part of a store that the row cache uses."""

    def cache_bytes(self) -> int:
        """Return the approximate memory of all entries, in bytes."""

    def shrink(self, limit: int) -> None:
        """Evict committed entries, so that the rest takes about `limit` bytes."""


class RowCache:
    """The limit of the memory that the stores of a worker take together.

    Attributes:
        limit: the limit in bytes.
    """

    __slots__ = ("_sizes", "limit")

    def __init__(self, limit: int) -> None:
        self.limit: int = limit
        self._sizes: dict[CachingStore, int] = {}

    def shrink(self, stores: Iterable[CachingStore], changed: Iterable[CachingStore]) -> None:
        """If the stores take more than the limit, evict entries of the largest ones. Called after each commit.

        Args:
            stores: all stores of the worker.
            changed: those that were read or written since the last call. Only these and new ones are measured.
        """
        known = self._sizes
        known.update((store, store.cache_bytes()) for store in changed)
        self._sizes = sizes = {store: known[store] if store in known else store.cache_bytes() for store in stores}
        if sum(sizes.values()) <= self.limit:
            return
        share = fair_share(sizes.values(), self.limit - self.limit // _SLACK)
        for store, size in sizes.items():
            if size > share:
                store.shrink(share)
                sizes[store] = share


def fair_share(sizes: Collection[int], limit: int) -> int:
    """Return the largest share for which the sizes, each cut to the share, are within `limit` together.

    Args:
        sizes: the sizes in bytes; their sum is above the limit.
        limit: the limit in bytes.
    """
    rest, left = limit, len(sizes)
    for size in sorted(sizes):
        if size * left > rest:
            break
        rest -= size
        left -= 1
    return rest // left if left else limit
