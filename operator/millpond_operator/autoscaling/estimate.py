"""How busy the busiest worker would be with another number of workers."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate

__all__ = ("Estimate", "busiest", "by_subtopology", "steps")

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
        # The sums of the heaviest tasks: of none, one, two, and so on.
        self._sums = [list(accumulate(sorted(each, reverse=True), initial=0.0)) for each in loads.values()]
        self._total = sum(map(len, loads.values()))

    def busiest(self, workers: int) -> float:
        """Return the most load that one worker can get.

        The assignment gives workers equal numbers of tasks, of each sub-topology and in total, whatever their loads. So
        the busiest worker has as many tasks as a worker can get, and in the worst case the heaviest ones.
        """
        load, room = 0.0, math.ceil(self._total / workers)
        further: list[float] = []
        for sums in self._sums:
            base, rest = divmod(len(sums) - 1, workers)
            load += sums[base]
            room -= base
            if rest:
                further.append(sums[base + 1] - sums[base])
        further.sort(reverse=True)
        return load + sum(further[:room])


def by_subtopology(loads: Iterable[tuple[int, float]]) -> dict[int, list[float]]:
    """Return loads, given with their sub-topologies, by sub-topology."""
    found: defaultdict[int, list[float]] = defaultdict(list)
    for subtopology, load in loads:
        found[subtopology].append(load)
    return dict(found)


def busiest(loads: Loads, workers: int) -> float:
    """Return the most load that one of so many workers can get."""
    return Estimate(loads).busiest(workers)


def steps(loads: Loads, most: int) -> tuple[int, ...]:
    """Return the numbers of workers up to `most` that take load off the busiest worker; 1 is always one.

    Twelve equal tasks give 1, 2, 3, 4, 6 and 12: with five workers, the busiest one has three tasks as with four.
    """
    means = {key: [sum(each) / len(each)] * len(each) for key, each in loads.items() if each}
    if not sum(map(sum, means.values())):
        means = {key: [1.0] * len(each) for key, each in means.items()}
    estimate = Estimate(means)
    found, last = [1], estimate.busiest(1)
    for workers in range(2, min(most, sum(map(len, means.values()))) + 1):
        load = estimate.busiest(workers)
        if load <= last * (1 - _STEP) + 1e-12:
            found.append(workers)
            last = load
    return tuple(found)
