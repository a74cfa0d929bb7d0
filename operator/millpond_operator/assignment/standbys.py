"""The goal for standbys: which workers should have the standbys of each task."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from millpond.protocol import Role
from millpond.topology import TaskId

from .candidates import CandidateIndex
from .model import Placement
from .tags import Tags

__all__ = ("place_standbys",)

_ROUNDING: Final = 1e-9


def place_standbys(
    index: CandidateIndex, active: Mapping[TaskId, str], previous: Placement
) -> dict[TaskId, tuple[str, ...]]:
    """Return `standby_replicas` workers for every stateful task, or as many as there are, in the order of their ids.

    First the copies of a task are spread over tags and racks as well as possible. Then the workers' shares of copies
    are balanced. Within that, copies stay where they were, or go where state is already.
    """
    situation, options = index.situation, index.options
    replicas = min(options.standby_replicas, len(index.placeable) - 1)
    tasks = [task for task in active if situation.tasks[task].stateful]
    if replicas <= 0 or not tasks:
        return {}
    weights = {task: situation.tasks[task].weight for task in tasks}
    workers = {id_: situation.workers[id_] for id_ in sorted(index.placeable)}
    shares = _Shares(Tags(workers, options.rack_aware_tags), weights, active)
    even = sum(weights.values()) * (1 + replicas) / len(workers)
    for task in tasks:
        shares.keep(task, _last(task, index, previous), replicas)
    order = _interleaved(tasks, active, list(workers))
    changed = True
    while changed:  # ends, since the spread never gets worse, and with an equal spread shares get more even
        changed = False
        for task in order:
            while shares.lacks(task, replicas):
                changed = True
                shares.add(task, _with_state(task, index, previous), even)
        shares.level(index)
    return {task: tuple(sorted(shares.standbys[task])) for task in tasks}


def _last(task: TaskId, index: CandidateIndex, previous: Placement) -> Sequence[str]:
    """Return where the standbys were last; by the workers' reports if that is lost."""
    if task in previous.active:
        return previous.standby.get(task, ())
    return sorted(worker for worker, copy in index.copies(task).items() if copy.role is Role.STANDBY)


def _with_state(task: TaskId, index: CandidateIndex, previous: Placement) -> list[str]:
    """Return the workers with state of the task, the best first: the worker that runs it has all of it."""
    runner = index.runner(task, previous.active)
    holders = index.holders(task) | ({runner} if runner else set())
    return sorted(holders, key=lambda worker: (worker != runner, index.behind(task, worker), worker))


def _interleaved(tasks: Sequence[TaskId], active: Mapping[TaskId, str], workers: Sequence[str]) -> list[TaskId]:
    """Return the tasks of all active workers, one of each worker in turn; each round starts with another worker.

    When standbys are placed in this order from nothing, those of one worker's tasks are spread over many others, which
    share the work when it dies.
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
        # A heap of loads for each group of equal workers. An entry is valid while its load is still the worker's.
        self._lightest: list[list[tuple[float, str]]] = [[] for _ in tags.groups]
        for worker, load in self._load.items():
            self._lightest[tags.group[worker]].append((load, worker))
        for heap in self._lightest:
            heapq.heapify(heap)
        self._sizes = Counter(tags.group.values())

    def keep(self, task: TaskId, last: Iterable[str], replicas: int) -> None:
        """Start with the last standbys of `task` that are still possible."""
        kept = [worker for worker in last if worker in self._load and worker != self._active[task]]
        while len(kept) > replicas:
            kept.remove(max(kept, key=lambda worker: (self._score(task, [w for w in kept if w != worker]), worker)))
        self.standbys[task] = kept
        for worker in kept:
            self._add(worker, self._weights[task])

    def lacks(self, task: TaskId, replicas: int) -> bool:
        """Return whether `task` needs one more standby. A standby that prevents a better spread is removed first."""
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
        """Add a standby of `task`: on one of `preferred` with a share below `even`, else where the share is least."""
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

    def level(self, index: CandidateIndex) -> None:
        """Move standbys from workers with more to workers with less, where that does not worsen the spread."""
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
                # A standby without state costs nothing to move.
                for task in sorted(held[worker], key=lambda task: (worker in index.holders(task), task)):
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
        """Return a better worker for the standby of `task` on `worker`."""
        others = [each for each in self.standbys[task] if each != worker]
        groups = self._tags.no_worse(self._groups(task, others), self._tags.group[worker])
        best = self._least(groups, {self._active[task], worker, *others})
        if best is None or self._load[worker] - self._load[best] <= self._weights[task] + _ROUNDING:
            return None
        return best

    def _least(self, groups: Iterable[int], used: set[str]) -> str | None:
        """Return the worker with the least load in these groups, except `used`."""
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
        """Return the best score with another worker in place of `worker`."""
        others = self._groups(task, (each for each in standbys if each != worker))
        taken = Counter(self._groups(task, standbys))
        return max(
            (self._tags.score([*others, group]) for group in self._tags.groups if taken[group] < self._sizes[group]),
            default=(),
        )
