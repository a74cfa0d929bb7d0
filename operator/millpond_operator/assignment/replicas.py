"""The copies that may exist now: standbys, and a limited number of warm-ups."""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum

from millpond.protocol import Role, TaskState
from millpond.topology import TaskId

from .candidates import CandidateIndex
from .model import Placement

__all__ = ("place_copies",)

Copies = dict[TaskId, tuple[str, ...]]


class _Tier(IntEnum):
    """The order in which costly copies get the available warm-ups."""

    IN_PROGRESS = 0
    URGENT = 1
    """New, for a task that has to leave its worker."""
    NEW = 2
    STUCK = 3
    """In progress with nothing restored, on a worker that is busy restoring an active task."""
    NEW_ON_BUSY = 4
    STANDBY = 5
    """New, for a standby that moves: no task waits for it."""


@dataclass(frozen=True)
class _CostlyCopy:
    """A copy that costs a warm-up."""

    tier: _Tier
    task: TaskId
    worker: str
    role: Role


def place_copies(
    target: Placement, index: CandidateIndex, active: Mapping[TaskId, str], previous: Placement
) -> tuple[Copies, Copies]:
    """Return standbys and warm-ups of each task, both in the order of the workers' ids.

    Each standby beyond those of the target, and each copy that warms up, uses one of `max_warm_ups`.

    Args:
        target: the final placement of tasks.
        index: the workers' reports.
        active: the worker that runs each task now.
        previous: the last refined placement.
    """
    plan = _CopyPlan(target, index, previous)
    standby: dict[TaskId, list[str]] = {}
    warm_up: dict[TaskId, list[str]] = {}
    costly: list[_CostlyCopy] = []
    for task, runner in active.items():
        if not index.situation.tasks[task].stateful:
            continue
        free, more = plan.copies(task, runner)
        if free:
            standby[task] = free
        costly.extend(more)
    for copy in _fund(costly, index.options.max_warm_ups, active):
        (standby if copy.role is Role.STANDBY else warm_up).setdefault(copy.task, []).append(copy.worker)
    return (
        {task: tuple(sorted(workers)) for task, workers in sorted(standby.items())},
        {task: tuple(sorted(workers)) for task, workers in sorted(warm_up.items())},
    )


class _CopyPlan:
    """The copies that each task should have now, before the limit of warm-ups."""

    def __init__(self, target: Placement, index: CandidateIndex, previous: Placement) -> None:
        self._target = target
        self._index = index
        self._previous = previous
        self._busy = {
            worker
            for worker, copies in index.situation.copies.items()
            for copy in copies.values()
            if copy.role is Role.ACTIVE and copy.state is TaskState.RESTORING
        }

    def copies(self, task: TaskId, runner: str) -> tuple[list[str], list[_CostlyCopy]]:
        """Return the standbys that are free of charge, and the copies that cost a warm-up."""
        target, index = self._target, self._index
        goal = target.active.get(task)
        wanted = tuple(worker for worker in target.standby.get(task, ()) if worker in index.placeable)
        if goal == runner and wanted == self._previous.standby.get(task, ()) and task not in self._previous.warm_up:
            reported = index.copies(task)
            if all(w in wanted or w == runner or reported[w].role is not Role.STANDBY for w in reported):
                return list(wanted), []  # unchanged, and as it should be
        current = self._standbys_now(task)
        ready = {worker for worker in {*wanted, *current} if self._ready(task, worker)}
        stand_ins = sorted(worker for worker in current - {*wanted, goal} if worker in ready)
        places = [
            *(worker for worker in wanted if worker in ready),
            *stand_ins,
            *([goal] if goal in current else []),
            *(worker for worker in wanted if worker in current and worker not in ready),
            *([goal] if goal not in current and goal in index.placeable else []),
            *(worker for worker in wanted if worker not in current and worker not in ready),
        ]
        places = [worker for worker in places if worker is not None and worker != runner]
        free = places[: len(wanted)]
        costly = []
        for worker in places[len(wanted) :]:
            if worker == goal:
                costly.append(_CostlyCopy(self._warm_up_tier(task, worker), task, worker, Role.WARM_UP))
            elif worker in wanted:
                tier = self._in_progress_tier(task, worker) if worker in current else _Tier.STANDBY
                costly.append(_CostlyCopy(tier, task, worker, Role.STANDBY))
        if goal not in index.placeable:
            # There is no target for now: warm-ups stay where they are.
            parked = sorted(self._warm_ups_now(task) - {runner, *free})
            costly.extend(_CostlyCopy(_Tier.IN_PROGRESS, task, worker, Role.WARM_UP) for worker in parked)
        return free, costly

    def _standbys_now(self, task: TaskId) -> set[str]:
        """Return the workers with a standby of the task that may keep it."""
        reported = self._index.copies(task)
        current = {worker for worker, copy in reported.items() if copy.role is Role.STANDBY}
        return (current | {*self._previous.standby.get(task, ())}) & self._index.placeable

    def _ready(self, task: TaskId, worker: str) -> bool:
        """Return whether the copy could be a standby at once: it is caught up, or its worker runs the task.

        A copy that was caught up once stays ready when its lag grows a little, or the placement would never settle.
        """
        index = self._index
        return (
            index.caught_up(task, worker)
            or (worker in index.copies(task) and index.follows(task, worker))
            or worker == index.runner(task, self._previous.active)
        )

    def _warm_ups_now(self, task: TaskId) -> set[str]:
        reported = self._index.copies(task)
        warming = {worker for worker, copy in reported.items() if copy.role is Role.WARM_UP}
        return (warming | {*self._previous.warm_up.get(task, ())}) & self._index.placeable

    def _warm_up_tier(self, task: TaskId, worker: str) -> _Tier:
        if worker in self._warm_ups_now(task) or worker in self._standbys_now(task):
            return self._in_progress_tier(task, worker)
        if worker in self._busy:
            return _Tier.NEW_ON_BUSY
        runner = self._index.runner(task, self._previous.active)
        return _Tier.NEW if runner is None or runner in self._index.placeable else _Tier.URGENT

    def _in_progress_tier(self, task: TaskId, worker: str) -> _Tier:
        copy = self._index.copies(task).get(worker)
        nothing = copy is None or copy.offset <= 0
        return _Tier.STUCK if nothing and worker in self._busy else _Tier.IN_PROGRESS


def _fund(costly: Iterable[_CostlyCopy], budget: int, active: Mapping[TaskId, str]) -> list[_CostlyCopy]:
    """Return the copies that get a warm-up: by tier, then on lighter workers first, then from heavier workers first."""
    load = Counter(active.values())
    by_tier: dict[_Tier, list[_CostlyCopy]] = defaultdict(list)
    for need in costly:
        by_tier[need.tier].append(need)
    funded: list[_CostlyCopy] = []
    for tier in sorted(by_tier):
        queues: dict[str, list[_CostlyCopy]] = defaultdict(list)
        for need in sorted(by_tier[tier], key=lambda n: (-load[active[n.task]], n.task), reverse=True):
            queues[need.worker].append(need)
        heap = [(load[worker], _urgency(queue, active, load), worker) for worker, queue in queues.items()]
        heapq.heapify(heap)
        while heap and len(funded) < budget:
            _, _, worker = heapq.heappop(heap)
            funded.append(queues[worker].pop())
            load[worker] += 1
            if queues[worker]:
                heapq.heappush(heap, (load[worker], _urgency(queues[worker], active, load), worker))
    return funded


def _urgency(queue: Sequence[_CostlyCopy], active: Mapping[TaskId, str], load: Mapping[str, int]) -> tuple[int, TaskId]:
    return -load[active[queue[-1].task]], queue[-1].task
