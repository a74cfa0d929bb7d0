"""Which worker is to run each task in the end."""

from __future__ import annotations

import heapq
import itertools
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from millpond.protocol import Role
from millpond.topology import TaskId

from .candidates import Standing
from .model import Placement, Situation, Task
from .quotas import Demand, balanced, quotas

__all__ = ("place_actives",)

_UNEVEN: Final = 0.05
"""Share of the mean load by which an exchange has to lighten a worker to be worth two moves."""


def place_actives(situation: Situation, standing: Standing, previous: Placement) -> dict[TaskId, str]:
    """A worker for every task; empty when no worker may get any.

    The last target stays when it is complete and even. Otherwise each worker gets its quota of each sub-topology, in
    this order of preference: what it owns in Kafka, what it was to get anyway, what it has a copy of (caught-up ones
    first), what is left.
    """
    workers = sorted(standing.placeable)
    if not workers:
        return {}
    parts = _parts(situation, standing, previous)
    demands = [part.demand() for part in parts]
    if balanced(demands, workers):
        chosen = {task: worker for part in parts for task, worker in part.intended.items()}
    else:
        load = dict.fromkeys(workers, 0.0)
        chosen = {}
        for part, quota in zip(parts, quotas(demands, workers), strict=True):
            chosen.update(part.share_out(quota, load, standing))
    _even_weights(parts, workers, chosen)
    return {task: chosen[task] for task in sorted(chosen)}


def _parts(situation: Situation, standing: Standing, previous: Placement) -> list[_Part]:
    parts: dict[tuple[bool, int], _Part] = {}
    placeable = standing.placeable
    for task in sorted(situation.tasks.values(), key=lambda task: task.id):
        key = (not task.stateful, task.id.subtopology)
        part = parts.get(key)
        if part is None:
            part = parts[key] = _Part(task.stateful)
        part.tasks.append(task)
        owner = standing.runner(task.id, previous.active)
        if owner is not None and owner in placeable:
            part.owner[task.id] = owner
        intended = _intended(task.id, standing, previous)
        if intended is not None:
            part.intended[task.id] = intended
        if task.stateful and intended is None and task.id not in part.owner:
            heir = standing.most_advanced(task.id, standing.holders(task.id) & placeable)
            if heir is not None:
                part.heir[task.id] = heir
    return [parts[key] for key in sorted(parts)]


def _intended(task: TaskId, standing: Standing, previous: Placement) -> str | None:
    """Where the last target had the task. A placement that `refine` made shows it by its warm-ups."""
    for destination in previous.warm_up.get(task, ()):
        if destination in standing.placeable:
            return destination
    if task in previous.active:
        before = previous.active[task]
        return before if before in standing.placeable else None
    # The last target is lost; what is under way shows in the reports.
    for worker, copy in sorted(standing.copies(task).items()):
        if copy.role is Role.WARM_UP and worker in standing.placeable:
            return worker
    owner = standing.runner(task, previous.active)
    return owner if owner in standing.placeable else None


@dataclass
class _Part:
    """The tasks of one sub-topology."""

    stateful: bool
    tasks: list[Task] = field(default_factory=list)
    owner: dict[TaskId, str] = field(default_factory=dict)
    """Who runs them, where that is a worker that may go on."""
    intended: dict[TaskId, str] = field(default_factory=dict)
    """Who was to run them."""
    heir: dict[TaskId, str] = field(default_factory=dict)
    """Who has the best state of those that nobody runs or was to run."""

    def demand(self) -> Demand:
        claims = Counter(self.owner.values())
        claims.update(worker for task, worker in self.intended.items() if task not in self.owner)
        claims.update(self.heir.values())
        return Demand(self.stateful, len(self.tasks), Counter(self.intended.values()), claims)

    def share_out(self, room: dict[str, int], load: dict[str, float], standing: Standing) -> dict[TaskId, str]:
        """Fill the quotas in `room`, add to `load` what each worker gets."""
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

        # An owner keeps what it was to keep before what was to go elsewhere.
        owned = [task for task in self.tasks if task.id in self.owner]
        owned.sort(key=lambda task: (self.intended.get(task.id) != self.owner[task.id], task.id))
        give_each(owned, self.owner.__getitem__)
        give_each(self.tasks, self.intended.get)
        if self.stateful:

            def warm(task: TaskId) -> str | None:
                return any_state(task, [w for w in standing.copies(task) if standing.caught_up(task, w)])

            def any_state(task: TaskId, among: Iterable[str] | None = None) -> str | None:
                holders = standing.holders(task) if among is None else among
                return standing.most_advanced(task, [worker for worker in holders if room.get(worker, 0) > 0])

            give_each(self.tasks, warm)
            give_each(self.tasks, any_state)
        rest = sorted((task for task in self.tasks if task.id not in chosen), key=lambda task: (-task.weight, task.id))
        lightest = [(load[worker], worker) for worker in room if room[worker] > 0]
        heapq.heapify(lightest)
        for task in rest:
            worker = lightest[0][1]
            give(task, worker)
            if room[worker] > 0:
                heapq.heapreplace(lightest, (load[worker], worker))
            else:
                heapq.heappop(lightest)
        return chosen


def _even_weights(parts: Sequence[_Part], workers: Sequence[str], chosen: dict[TaskId, str]) -> None:
    """Exchange heavy for light tasks of the same sub-topology, so that counts stay and weights even out."""
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
                return  # nobody is light enough to relieve the heaviest
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
