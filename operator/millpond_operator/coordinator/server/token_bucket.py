"""Token buckets: a burst that is allowed at once, and a rate at which it is refilled."""

from __future__ import annotations

from collections.abc import Callable, Hashable

from millpond.protocol import clock

__all__ = ("TokenBuckets",)

#: Full buckets are forgotten when there are so many.
_FIRST_SWEEP = 1_024


class TokenBuckets:
    """One bucket per key. Only keys in use take memory.

    Args:
        per_second: tokens that are refilled per second.
        most: the size of a bucket; new ones are full.
        clock: monotonic, in seconds.
    """

    def __init__(self, per_second: float, most: float, clock: Callable[[], float] = clock.monotonic) -> None:
        self._per_second = per_second
        self._most = most
        self._clock = clock
        self._left: dict[Hashable, tuple[float, float]] = {}
        """The tokens of each key, and when they were counted."""
        self._sweep_at = _FIRST_SWEEP

    def spend(self, key: Hashable, amount: float = 1.0) -> bool:
        """Take tokens if there are enough; return whether there were."""
        left = self._left_of(key)
        if left < amount:
            return False
        self._keep(key, left - amount)
        return True

    def owe(self, key: Hashable, amount: float = 1.0) -> float:
        """Take tokens even if there are not enough.

        Returns:
            Seconds until the bucket is out of debt; 0 when there were enough.
        """
        left = self._left_of(key) - amount
        self._keep(key, left)
        return max(0.0, -left / self._per_second)

    def give_back(self, key: Hashable, amount: float = 1.0) -> None:
        """Return tokens."""
        self._keep(key, min(self._left_of(key) + amount, self._most))

    def __len__(self) -> int:
        return len(self._left)

    def _left_of(self, key: Hashable) -> float:
        left, at = self._left.get(key, (self._most, 0.0))
        return min(left + (self._clock() - at) * self._per_second, self._most)

    def _keep(self, key: Hashable, left: float) -> None:
        if len(self._left) >= self._sweep_at and key not in self._left:
            self._left = {each: kept for each, kept in self._left.items() if self._left_of(each) < self._most}
            self._sweep_at = max(_FIRST_SWEEP, 2 * len(self._left))
        self._left[key] = (left, self._clock())
