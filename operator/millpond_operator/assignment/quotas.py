"""Quotas: the number of tasks of each sub-topology for each worker."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

__all__ = ("Demand", "balanced", "quotas")


@dataclass(frozen=True)
class Demand:
    """The tasks of one sub-topology."""

    stateful: bool
    size: int
    """Number of tasks."""
    intended: Mapping[str, int]
    """Number of tasks of each worker in the last target."""
    claimed: Mapping[str, int]
    """Number of tasks that each worker runs, or is the best next worker for."""


def quotas(demands: Sequence[Demand], workers: Sequence[str]) -> list[dict[str, int]]:
    """Return the number of tasks of each demand for each worker.

    Counts of two workers differ by at most one: within each sub-topology, over all stateful tasks, over all stateless
    ones, and in total. All of these can always be met together. Every worker gets ⌊size / workers⌋ of a sub-topology.
    Which workers get one more depends on history first, and is then corrected until the sums are even too.
    """
    extras = _Extras(demands, workers)
    classes = [[i for i, demand in enumerate(demands) if demand.stateful is stateful] for stateful in (True, False)]
    for among in classes:
        extras.level(among, among)
    # Each class is even by itself, so a worker is ahead of another by at most two, and then by one in each class:
    # moving a stateless task, which has nothing to restore, evens the sum and keeps its class even.
    extras.level(range(len(demands)), classes[1])
    return [{worker: extras.base[i] + (worker in extras.of[i]) for worker in workers} for i in range(len(demands))]


def balanced(demands: Sequence[Demand], workers: Sequence[str]) -> bool:
    """Return whether `intended` is complete in all demands and as even as `quotas` would be."""
    whole = all(sum(demand.intended.values()) == demand.size for demand in demands)
    return whole and all(
        _skew(demand.intended.get(worker, 0) for worker in workers) <= 1 for demand in demands
    ) and all(
        _skew(sum(demand.intended.get(worker, 0) for demand in among) for worker in workers) <= 1
        for among in (
            [demand for demand in demands if demand.stateful],
            [demand for demand in demands if not demand.stateful],
            demands,
        )
    )  # fmt: skip


def _skew(counts: Iterable[int]) -> int:
    every = list(counts)
    return max(every) - min(every)


class _Extras:
    """The workers that get one task more than the others, for each demand."""

    def __init__(self, demands: Sequence[Demand], workers: Sequence[str]) -> None:
        self._workers = workers
        self.base = [demand.size // len(workers) for demand in demands]
        self.of: list[set[str]] = []
        self._preferred: list[set[str]] = []
        total = dict.fromkeys(workers, 0)
        for demand, base in zip(demands, self.base, strict=True):
            preferred = [
                worker
                for worker in workers
                if demand.intended.get(worker, 0) > base or demand.claimed.get(worker, 0) > base
            ]
            # The last target comes first, or the choice would change with every task that moves.
            preferred.sort(key=lambda worker: (demand.intended.get(worker, 0) <= base, worker))
            chosen = set(preferred[: demand.size % len(workers)])
            missing = demand.size % len(workers) - len(chosen)
            if missing:
                rest = sorted((worker for worker in workers if worker not in chosen), key=lambda w: (total[w], w))
                chosen.update(rest[:missing])
            for worker in chosen:
                total[worker] += 1
            self.of.append(chosen)
            self._preferred.append(set(preferred))

    def level(self, among: Iterable[int], movable: Sequence[int]) -> None:
        """Move extras of the `movable` demands until no worker has two more than another, over the demands `among`."""
        load = dict.fromkeys(self._workers, 0)
        for i in among:
            for worker in self.of[i]:
                load[worker] += 1
        while True:
            most = max(self._workers, key=load.__getitem__)
            least = min(self._workers, key=load.__getitem__)
            if load[most] - load[least] <= 1:
                return
            i = min(
                (i for i in movable if most in self.of[i] and least not in self.of[i]),
                key=lambda i: (most in self._preferred[i], least not in self._preferred[i]),
            )
            self.of[i].remove(most)
            self.of[i].add(least)
            load[most] -= 1
            load[least] += 1
