"""How busy the busiest worker would be with another number of workers."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

__all__ = ("busiest", "by_subtopology", "steps")

_STEP = 0.05
"""A number of workers is worth choosing if the busiest one has at least this share less to do than with fewer."""

Loads = Mapping[int, Sequence[float]]
"""The loads of the tasks of each sub-topology, the greatest first."""


def by_subtopology(loads: Iterable[tuple[int, float]]) -> dict[int, list[float]]:
    """Return loads, given with their sub-topologies, by sub-topology, the greatest first."""
    found: defaultdict[int, list[float]] = defaultdict(list)
    for subtopology, load in loads:
        found[subtopology].append(load)
    return {subtopology: sorted(each, reverse=True) for subtopology, each in found.items()}


def busiest(loads: Loads, workers: int) -> float:
    """Return the most load that one worker can get.

    The assignment gives workers equal numbers of tasks, of each sub-topology and in total, whatever their loads. So
    the busiest worker has as many tasks as a worker can get, and in the worst case the heaviest ones.
    """
    total = sum(map(len, loads.values()))
    if not total:
        return 0.0
    load, count = 0.0, 0
    further: list[float] = []
    for tasks in loads.values():
        base = len(tasks) // workers
        load += sum(tasks[:base])
        count += base
        if len(tasks) % workers:
            further.append(tasks[base])
    further.sort(reverse=True)
    return load + sum(further[: math.ceil(total / workers) - count])


def steps(loads: Loads, most: int) -> tuple[int, ...]:
    """Return the numbers of workers up to `most` that take load off the busiest worker; 1 is always one.

    Twelve equal tasks give 1, 2, 3, 4, 6 and 12: with five workers, the busiest one has three tasks as with four.
    """
    means = {key: [sum(each) / len(each)] * len(each) for key, each in loads.items() if each}
    if not sum(map(sum, means.values())):
        means = {key: [1.0] * len(each) for key, each in means.items()}
    found, last = [1], busiest(means, 1)
    for workers in range(2, min(most, sum(map(len, means.values()))) + 1):
        load = busiest(means, workers)
        if load <= last * (1 - _STEP) + 1e-12:
            found.append(workers)
            last = load
    return tuple(found)
