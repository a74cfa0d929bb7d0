"""How busy the busiest worker would be with another number of workers."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import accumulate

__all__ = ("Estimate", "busiest", "steps")

_STEP = 0.05
"""A number of workers is worth choosing if the busiest one has at least this share less to do than with fewer."""

Loads = Mapping[int, Sequence[float]]
"""The loads of the tasks of each sub-topology."""


class Estimate:
    """The load of the busiest worker, by number of workers.

    Args:
        loads: of the tasks of each sub-topology.
    """

    def __init__(self, loads: Loads) -> None:
        sums = [list(accumulate(sorted(each, reverse=True), initial=0.0)) for each in loads.values()]
        self._heaviest: list[tuple[int, Callable[[int], float]]] = [(len(each) - 1, each.__getitem__) for each in sums]
        """Of each sub-topology the number of its tasks, and the load of so many of the heaviest."""
        self._total = sum(map(len, loads.values()))

    @classmethod
    def of_even_tasks(cls, loads: Loads) -> Estimate:
        """Return the estimate for tasks of which each has the mean load of its sub-topology; 1 if none has any."""
        known = [each for each in loads.values() if each]
        means = [sum(each) / len(each) for each in known]
        if not sum(means):
            means = [1.0] * len(known)
        estimate = cls({})
        estimate._heaviest = [(len(each), mean.__mul__) for mean, each in zip(means, known, strict=True)]
        estimate._total = sum(map(len, known))
        return estimate

    def busiest(self, workers: int) -> float:
        """Return the most load that one worker can get.

        The assignment gives workers equal numbers of tasks, of each sub-topology and in total, whatever their loads. So
        the busiest worker has as many tasks as a worker can get, and in the worst case the heaviest ones.
        """
        load, room = 0.0, math.ceil(self._total / workers)
        further: list[float] = []
        for count, heaviest in self._heaviest:
            base, rest = divmod(count, workers)
            least = heaviest(base)
            load += least
            room -= base
            if rest:
                further.append(heaviest(base + 1) - least)
        further.sort(reverse=True)
        return load + sum(further[:room])

    def changes(self, most: int) -> list[int]:
        """Return the numbers of workers from 2 to `most` and to the number of tasks at which the load may change.

        Between two of them, workers get the same numbers of tasks of each sub-topology and in total.
        """
        counts = {self._total, *(count for count, _ in self._heaviest)}
        found = {number for count in counts for number in _changes(count)}
        return sorted(number for number in found if 2 <= number <= min(most, self._total))


def busiest(loads: Loads, workers: int) -> float:
    """Return the most load that one of so many workers can get."""
    return Estimate(loads).busiest(workers)


def steps(loads: Loads, most: int) -> tuple[int, ...]:
    """Return the numbers of workers up to `most` that take load off the busiest worker; 1 is always one.

    Twelve equal tasks give 1, 2, 3, 4, 6 and 12: with five workers, the busiest one has three tasks as with four.
    """
    estimate = Estimate.of_even_tasks(loads)
    found, last = [1], estimate.busiest(1)
    for workers in estimate.changes(most):
        load = estimate.busiest(workers)
        if load <= last * (1 - _STEP) + 1e-12:
            found.append(workers)
            last = load
    return tuple(found)


def _changes(tasks: int) -> Iterator[int]:
    """Yield the numbers of workers at which the least or the most tasks of a worker change: about 4 times the root."""
    root = math.isqrt(tasks) + 1
    yield from range(1, root + 1)
    for share in range(1, root + 1):
        yield -(-tasks // share)
        yield tasks // share + 1
