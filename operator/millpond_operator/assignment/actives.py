"""The goal for active tasks: one worker for each task."""

from __future__ import annotations

import heapq
import itertools
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from millpond.protocol import Role
from millpond.topology import TaskId

from .candidates import CandidateIndex
from .model import Placement, Task
from .quotas import Demand, balanced, quotas

__all__ = ("place_actives",)

_UNEVEN: Final = 0.05
"""The least share of the mean load by which an exchange has to relieve a worker to be worth two moves."""


def place_actives(index: CandidateIndex, previous: Placement) -> dict[TaskId, str]:
    """Return a worker for every task; empty when no worker may get any.

    The last target stays if it is complete and balanced. Otherwise each worker gets its quota of each sub-topology, in
    this order: tasks that it owns in Kafka, tasks of its last target, tasks of which it has a copy (caught-up copies
    first), the other tasks.
    """
    workers = sorted(index.placeable)
    if not workers:
        return {}
    parts = _parts(index, previous)
    demands = [part.demand() for part in parts]
    if balanced(demands, workers):
        chosen = {task: worker for part in parts for task, worker in part.intended.items()}
    else:
        load = dict.fromkeys(workers, 0.0)
        chosen = {}
        for part, quota in zip(parts, quotas(demands, workers), strict=True):
            chosen.update(part.share_out(quota, load, index))
    _even_weights(parts, workers, chosen)
    return {task: chosen[task] for task in sorted(chosen)}


def _parts(index: CandidateIndex, previous: Placement) -> list[_Part]:
    parts: dict[tuple[bool, int], _Part] = {}
    placeable = index.placeable
    for task in sorted(index.situation.tasks.values(), key=lambda task: task.id):
        key = (not task.stateful, task.id.subtopology)
        part = parts.get(key)
        if part is None:
            part = parts[key] = _Part(task.stateful)
        part.tasks.append(task)
        owner = index.runner(task.id, previous.active)
        if owner is not None and owner in placeable:
            part.owner[task.id] = owner
        intended = _intended(task.id, index, previous)
        if intended is not None:
            part.intended[task.id] = intended
        if task.stateful and intended is None and task.id not in part.owner:
            best_holder = index.most_advanced(task.id, index.holders(task.id) & placeable)
            if best_holder is not None:
                part.best_holder[task.id] = best_holder
    return [parts[key] for key in sorted(parts)]


def _intended(task: TaskId, index: CandidateIndex, previous: Placement) -> str | None:
    """Return the worker of the task in the last target. In a placement of `refine` it is the worker of the warm-up."""
    for destination in previous.warm_up.get(task, ()):
        if destination in index.placeable:
            return destination
    if task in previous.active:
        before = previous.active[task]
        return before if before in index.placeable else None
    # The last target is lost; the reports show what is in progress.
    for worker, copy in sorted(index.copies(task).items()):
        if copy.role is Role.WARM_UP and worker in index.placeable:
            return worker
    owner = index.runner(task, previous.active)
    return owner if owner in index.placeable else None


@dataclass
class _Part:
    """The tasks of one sub-topology."""

    stateful: bool
    tasks: list[Task] = field(default_factory=list)
    owner: dict[TaskId, str] = field(default_factory=dict)
    """The workers that run them and may keep them."""
    intended: dict[TaskId, str] = field(default_factory=dict)
    """The workers of the last target."""
    best_holder: dict[TaskId, str] = field(default_factory=dict)
    """The workers with the best state, for tasks that no worker runs or was to run."""

    def demand(self) -> Demand:
        claims = Counter(self.owner.values())
        claims.update(worker for task, worker in self.intended.items() if task not in self.owner)
        claims.update(self.best_holder.values())
        return Demand(self.stateful, len(self.tasks), Counter(self.intended.values()), claims)

    def share_out(self, room: dict[str, int], load: dict[str, float], index: CandidateIndex) -> dict[TaskId, str]:
        """Fill the quotas in `room`, and add to `load` what each worker gets."""
        chosen: dict[TaskId, str] = {}

        def give(task: Task, worker: str) -> None:
            chosen[task.id] = worker
            room[worker] -= 1
            load[worker] += task.weight

        def give_each(tasks: Iterable[Task], choice: Callable[[TaskId], str | None]) -> None:
            for task in tasks:
                if task.id not in chosen:
                    worker = choice(task.id)
                    if worker is not None and room[worker] > 0:
                        give(task, worker)

        # An owner with too many tasks keeps those that the last target gave it, and gives up the others.
        owned = [task for task in self.tasks if task.id in self.owner]
        owned.sort(key=lambda task: (self.intended.get(task.id) != self.owner[task.id], task.id))
        give_each(owned, self.owner.__getitem__)
        give_each(self.tasks, self.intended.get)
        if self.stateful:

            def warm(task: TaskId) -> str | None:
                return any_state(task, [w for w in index.copies(task) if index.caught_up(task, w)])

            def any_state(task: TaskId, among: Iterable[str] | None = None) -> str | None:
                holders = index.holders(task) if among is None else among
                return index.most_advanced(task, [worker for worker in holders if room.get(worker, 0) > 0])

            give_each(self.tasks, warm)
            give_each(self.tasks, any_state)
        rest = [task for task in self.tasks if task.id not in chosen]
        _give_to_lightest(rest, room, load, give)
        return chosen


def _give_to_lightest(
    tasks: Sequence[Task], room: Mapping[str, int], load: Mapping[str, float], give: Callable[[Task, str], None]
) -> None:
    """Give each task, the heaviest first, to the worker with the least load that has room; `give` updates both."""
    lightest = [(load[worker], worker) for worker in room if room[worker] > 0]
    heapq.heapify(lightest)
    for task in sorted(tasks, key=lambda task: (-task.weight, task.id)):
        worker = lightest[0][1]
        give(task, worker)
        if room[worker] > 0:
            heapq.heapreplace(lightest, (load[worker], worker))
        else:
            heapq.heappop(lightest)


def _even_weights(parts: Sequence[_Part], workers: Sequence[str], chosen: dict[TaskId, str]) -> None:
    """Exchange heavy for light tasks of one sub-topology: the counts stay, and the weights get more even."""
    weights = {task.id: task.weight for part in parts for task in part.tasks}
    uneven = [part for part in parts if len({task.weight for task in part.tasks}) > 1]
    if not uneven:
        return
    held: dict[str, dict[int, list[TaskId]]] = {worker: {} for worker in workers}
    for i, part in enumerate(uneven):
        for task in part.tasks:
            held[chosen[task.id]].setdefault(i, []).append(task.id)
    load: defaultdict[str, float] = defaultdict(float)
    for id_, worker in chosen.items():
        load[worker] += weights[id_]
    least_gain = _UNEVEN * sum(load.values()) / len(workers)

    def best_exchange(heavy: str, light: str) -> tuple[float, int, TaskId, TaskId] | None:
        gap = load[heavy] - load[light]
        return max(
            (
                (min(difference, gap - difference), i, mine, theirs)
                for i, tasks in held[heavy].items()
                if i in held[light]
                for mine, theirs in itertools.product(tasks, held[light][i])
                if 0 < (difference := weights[mine] - weights[theirs]) < gap
            ),
            default=None,
        )

    while True:
        heaviest = max(workers, key=load.__getitem__)
        for other in sorted(workers, key=load.__getitem__):
            if load[heaviest] - load[other] < 2 * least_gain:
                return  # no worker is light enough to relieve the heaviest
            exchange = best_exchange(heaviest, other)
            if exchange is not None and exchange[0] > least_gain:
                _, i, mine, theirs = exchange
                held[heaviest][i][held[heaviest][i].index(mine)] = theirs
                held[other][i][held[other][i].index(theirs)] = mine
                chosen[mine], chosen[theirs] = other, heaviest
                moved = weights[mine] - weights[theirs]
                load[heaviest] -= moved
                load[other] += moved
                break
        else:
            return
