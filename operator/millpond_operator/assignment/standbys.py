"""Which workers are to have the standbys of each task in the end."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from millpond.protocol import Role
from millpond.topology import TaskId

from .candidates import Standing
from .model import AssignmentOptions, Placement, Situation
from .tags import Tags

__all__ = ("place_standbys",)

_ROUNDING: Final = 1e-9


def place_standbys(
    situation: Situation,
    standing: Standing,
    options: AssignmentOptions,
    active: Mapping[TaskId, str],
    previous: Placement,
) -> dict[TaskId, tuple[str, ...]]:
    """`standby_replicas` workers for every stateful task, fewer where there are not so many; in the order of their ids.

    First the copies of a task are spread over tags and racks as well as can be, then the workers' shares of copies
    are evened out, and within that they stay where they were, or go where there is state already.
    """
    replicas = min(options.standby_replicas, len(standing.placeable) - 1)
    tasks = [task for task in active if situation.tasks[task].stateful]
    if replicas <= 0 or not tasks:
        return {}
    weights = {task: situation.tasks[task].weight for task in tasks}
    workers = {id_: situation.workers[id_] for id_ in sorted(standing.placeable)}
    shares = _Shares(Tags(workers, options.rack_aware_tags), weights, active)
    even = sum(weights.values()) * (1 + replicas) / len(workers)
    for task in tasks:
        shares.keep(task, _last(task, standing, previous), replicas)
    turns = _in_turns(tasks, active, list(workers))
    changed = True
    while changed:  # the spread never gets worse, and when it stays the shares get more even: this ends
        changed = False
        for task in turns:
            while shares.lacks(task, replicas):
                changed = True
                shares.add(task, _with_state(task, standing, previous), even)
        shares.level(standing)
    return {task: tuple(sorted(shares.standbys[task])) for task in tasks}


def _last(task: TaskId, standing: Standing, previous: Placement) -> Sequence[str]:
    """Where the standbys were to be; by the workers' reports if that is lost."""
    if task in previous.active:
        return previous.standby.get(task, ())
    return sorted(worker for worker, copy in standing.copies(task).items() if copy.role is Role.STANDBY)


def _with_state(task: TaskId, standing: Standing, previous: Placement) -> list[str]:
    """Who has state of the task, the most useful first: who runs it now has all of it."""
    runner = standing.runner(task, previous.active)
    holders = standing.holders(task) | ({runner} if runner else set())
    return sorted(holders, key=lambda worker: (worker != runner, standing.behind(task, worker), worker))


def _in_turns(tasks: Sequence[TaskId], active: Mapping[TaskId, str], workers: Sequence[str]) -> list[TaskId]:
    """Tasks of each active worker in turn, from another one on in each round.

    When standbys are dealt out from nothing in this order, those of one worker's tasks end up on many others, which
    will share the work when it dies.
    """
    place = {worker: i for i, worker in enumerate(workers)}
    rounds: Counter[str] = Counter()
    turns = []
    for task in tasks:
        worker = active[task]
        turn = rounds[worker]
        rounds[worker] += 1
        turns.append((turn, (place[worker] - turn - 1) % len(workers), task))
    return [task for _, _, task in sorted(turns)]


class _Shares:
    """The stateful tasks and standbys of each worker, while standbys are placed."""

    def __init__(self, tags: Tags, weights: Mapping[TaskId, float], active: Mapping[TaskId, str]) -> None:
        self.standbys: dict[TaskId, list[str]] = {}
        self._tags = tags
        self._weights = weights
        self._active = active
        self._load = dict.fromkeys(tags.group, 0.0)
        for task, weight in weights.items():
            self._load[active[task]] += weight
        # The lightest worker of each group of equals. An entry counts while its load is still the worker's.
        self._lightest: list[list[tuple[float, str]]] = [[] for _ in tags.groups]
        for worker, load in self._load.items():
            self._lightest[tags.group[worker]].append((load, worker))
        for heap in self._lightest:
            heapq.heapify(heap)
        self._sizes = Counter(tags.group.values())

    def keep(self, task: TaskId, last: Iterable[str], replicas: int) -> None:
        """Start with the standbys that `task` had, as far as they still go."""
        kept = [worker for worker in last if worker in self._load and worker != self._active[task]]
        while len(kept) > replicas:
            kept.remove(max(kept, key=lambda worker: (self._score(task, [w for w in kept if w != worker]), worker)))
        self.standbys[task] = kept
        for worker in kept:
            self._add(worker, self._weights[task])

    def lacks(self, task: TaskId, replicas: int) -> bool:
        """Whether `task` needs one more standby. One that stands in the way of a better spread is dropped first."""
        standbys = self.standbys[task]
        if len(standbys) < replicas:
            return True
        if self._tags.perfect(self._groups(task, standbys)):
            return False
        best, worker = max((self._best_without(task, standbys, worker), worker) for worker in standbys)
        if best <= self._score(task, standbys):
            return False
        standbys.remove(worker)
        self._add(worker, -self._weights[task])
        return True

    def add(self, task: TaskId, preferred: Iterable[str], even: float) -> None:
        """Give `task` one more standby: on one of `preferred` whose share is below `even`, else where there is least."""
        standbys = self.standbys[task]
        used = {self._active[task], *standbys}
        candidates = [worker for worker in preferred if worker in self._load and worker not in used]
        for tier in self._tags.next(self._groups(task, standbys)):
            worker = next((w for w in candidates if self._tags.group[w] in tier and self._load[w] < even), None)
            worker = worker or self._least(tier, used)
            if worker is not None:
                standbys.append(worker)
                self._add(worker, self._weights[task])
                return
        raise AssertionError(f"{task} has fewer standbys than there are other workers")

    def level(self, standing: Standing) -> None:
        """Move standbys from workers with much to workers with less, where the spread does not suffer."""
        held: dict[str, set[TaskId]] = {worker: set() for worker in self._load}
        for task, standbys in self.standbys.items():
            for worker in standbys:
                held[worker].add(task)
        lightest_task = min(self._weights.values())
        moved = True
        while moved:
            moved = False
            for worker in sorted(self._load, key=lambda worker: (-self._load[worker], worker)):
                if self._load[worker] - min(self._load.values()) <= lightest_task + _ROUNDING:
                    break
                # What has no state yet costs nothing to move.
                for task in sorted(held[worker], key=lambda task: (worker in standing.holders(task), task)):
                    destination = self._relief(task, worker)
                    if destination is not None:
                        moved = True
                        self.standbys[task].remove(worker)
                        self.standbys[task].append(destination)
                        held[worker].remove(task)
                        held[destination].add(task)
                        self._add(worker, -self._weights[task])
                        self._add(destination, self._weights[task])

    def _relief(self, task: TaskId, worker: str) -> str | None:
        """Where the standby of `task` on `worker` is better off."""
        others = [each for each in self.standbys[task] if each != worker]
        groups = self._tags.no_worse(self._groups(task, others), self._tags.group[worker])
        best = self._least(groups, {self._active[task], worker, *others})
        if best is None or self._load[worker] - self._load[best] <= self._weights[task] + _ROUNDING:
            return None
        return best

    def _least(self, groups: Iterable[int], used: set[str]) -> str | None:
        """The worker with the least load of some groups, but none of `used`."""
        best: tuple[float, str] | None = None
        for group in groups:
            heap = self._lightest[group]
            passed = []
            while heap:
                load, worker = heap[0]
                if load != self._load[worker]:
                    heapq.heappop(heap)
                elif worker in used:
                    passed.append(heapq.heappop(heap))
                else:
                    best = min(best, heap[0]) if best else heap[0]
                    break
            for entry in passed:
                heapq.heappush(heap, entry)
        return best and best[1]

    def _add(self, worker: str, weight: float) -> None:
        self._load[worker] += weight
        heapq.heappush(self._lightest[self._tags.group[worker]], (self._load[worker], worker))

    def _groups(self, task: TaskId, standbys: Iterable[str]) -> list[int]:
        return [self._tags.group[self._active[task]], *(self._tags.group[worker] for worker in standbys)]

    def _score(self, task: TaskId, standbys: Iterable[str]) -> tuple[int, ...]:
        return self._tags.score(self._groups(task, standbys))

    def _best_without(self, task: TaskId, standbys: Sequence[str], worker: str) -> tuple[int, ...]:
        """The score with another worker in the place of `worker`."""
        others = self._groups(task, (each for each in standbys if each != worker))
        taken = Counter(self._groups(task, standbys))
        return max(
            (self._tags.score([*others, group]) for group in self._tags.groups if taken[group] < self._sizes[group]),
            default=(),
        )
