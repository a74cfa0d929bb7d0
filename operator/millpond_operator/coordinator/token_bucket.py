"""Token buckets: how much somebody may take in a burst, and how fast that comes back."""

from __future__ import annotations

from collections.abc import Callable, Hashable

from millpond.protocol import clock

__all__ = ("Allowance",)

#: Keys that have all they may have are forgotten when there are so many.
_FIRST_SWEEP = 1_024


class Allowance:
    """One bucket per key; a key that is not heard of takes no memory.

    Args:
        per_second: how much comes back in a second.
        most: what a key has at first, and never more.
        clock: seconds that never go back.
    """

    def __init__(self, per_second: float, most: float, clock: Callable[[], float] = clock.monotonic) -> None:
        self._per_second = per_second
        self._most = most
        self._clock = clock
        self._left: dict[Hashable, tuple[float, float]] = {}
        """What a key had, and when."""
        self._sweep_at = _FIRST_SWEEP

    def spend(self, key: Hashable, amount: float = 1.0) -> bool:
        """Take an amount if it is there; whether it was."""
        left = self._left_of(key)
        if left < amount:
            return False
        self._keep(key, left - amount)
        return True

    def owe(self, key: Hashable, amount: float = 1.0) -> float:
        """Take an amount even if it is not there.

        Returns:
            Seconds to wait until all that was taken has come back; 0 when it was there.
        """
        left = self._left_of(key) - amount
        self._keep(key, left)
        return max(0.0, -left / self._per_second)

    def give_back(self, key: Hashable, amount: float = 1.0) -> None:
        """Return what was taken."""
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
