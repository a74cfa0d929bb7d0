"""Which copies there may be now: standbys, and warm-ups within their number."""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum

from millpond.protocol import Role, TaskState
from millpond.topology import TaskId

from .candidates import Standing
from .model import AssignmentOptions, Placement, Situation

__all__ = ("place_copies",)

Copies = dict[TaskId, tuple[str, ...]]


class _Tier(IntEnum):
    """In which order copies beyond those that the target counts get the warm-ups there are."""

    UNDER_WAY = 0
    URGENT = 1
    """New, for a task that has to leave its worker."""
    NEW = 2
    STUCK = 3
    """Under way, with nothing restored, on a worker that is busy restoring an active task."""
    NEW_ON_BUSY = 4
    STANDBY = 5
    """New, for a standby that changes places: nobody waits for it."""


@dataclass(frozen=True)
class _Need:
    """A copy that costs a warm-up."""

    tier: _Tier
    task: TaskId
    worker: str
    role: Role


def place_copies(
    target: Placement,
    situation: Situation,
    standing: Standing,
    options: AssignmentOptions,
    active: Mapping[TaskId, str],
    previous: Placement,
) -> tuple[Copies, Copies]:
    """Standbys and warm-ups of each task, given who runs it now (`active`); both in the order of the workers' ids.

    No task has more standbys than in the target, and no worker warms up, without paying for it with one of
    `max_warm_ups`.
    """
    plan = _Plan(target, situation, standing, active, previous)
    standby: dict[TaskId, list[str]] = {}
    warm_up: dict[TaskId, list[str]] = {}
    needs: list[_Need] = []
    for task, runner in active.items():
        if not situation.tasks[task].stateful:
            continue
        free, costly = plan.copies(task, runner)
        if free:
            standby[task] = free
        needs.extend(costly)
    for need in _fund(needs, options.max_warm_ups, active):
        (standby if need.role is Role.STANDBY else warm_up).setdefault(need.task, []).append(need.worker)
    return (
        {task: tuple(sorted(workers)) for task, workers in sorted(standby.items())},
        {task: tuple(sorted(workers)) for task, workers in sorted(warm_up.items())},
    )


class _Plan:
    """What copies each task should have now, before anybody counts."""

    def __init__(
        self,
        target: Placement,
        situation: Situation,
        standing: Standing,
        active: Mapping[TaskId, str],
        previous: Placement,
    ) -> None:
        self._target = target
        self._standing = standing
        self._previous = previous
        self._busy = {
            worker
            for worker, copies in situation.copies.items()
            for copy in copies.values()
            if copy.role is Role.ACTIVE and copy.state is TaskState.RESTORING
        }

    def copies(self, task: TaskId, runner: str) -> tuple[list[str], list[_Need]]:
        """The standbys that are free of charge, and the copies that cost a warm-up."""
        target, standing = self._target, self._standing
        goal = target.active.get(task)
        wanted = tuple(worker for worker in target.standby.get(task, ()) if worker in standing.placeable)
        if goal == runner and wanted == self._previous.standby.get(task, ()) and task not in self._previous.warm_up:
            reported = standing.copies(task)
            if all(w in wanted or w == runner or reported[w].role is not Role.STANDBY for w in reported):
                return list(wanted), []  # all as it was and as it should be
        there = self._there(task)
        ready = {worker for worker in {*wanted, *there} if self._ready(task, worker)}
        stand_ins = sorted(worker for worker in there - {*wanted, goal} if worker in ready)
        places = [
            *(worker for worker in wanted if worker in ready),
            *stand_ins,
            *([goal] if goal in there else []),
            *(worker for worker in wanted if worker in there and worker not in ready),
            *([goal] if goal not in there and goal in standing.placeable else []),
            *(worker for worker in wanted if worker not in there and worker not in ready),
        ]
        places = [worker for worker in places if worker is not None and worker != runner]
        free = places[: len(wanted)]
        needs = []
        for worker in places[len(wanted) :]:
            if worker == goal:
                needs.append(_Need(self._tier_of_warm_up(task, worker), task, worker, Role.WARM_UP))
            elif worker in wanted:
                tier = self._under_way(task, worker) if worker in there else _Tier.STANDBY
                needs.append(_Need(tier, task, worker, Role.STANDBY))
        if goal not in standing.placeable:
            # There is no target, for now: what warms up stays where it is.
            parked = sorted(self._warming(task) - {runner, *free})
            needs.extend(_Need(_Tier.UNDER_WAY, task, worker, Role.WARM_UP) for worker in parked)
        return free, needs

    def _there(self, task: TaskId) -> set[str]:
        """Workers with a standby of the task that may keep it."""
        reported = self._standing.copies(task)
        there = {worker for worker, copy in reported.items() if copy.role is Role.STANDBY}
        return (there | {*self._previous.standby.get(task, ())}) & self._standing.placeable

    def _ready(self, task: TaskId, worker: str) -> bool:
        """Whether the copy, whatever its role, would do as a standby at once: it is caught up, or that of who runs it.

        One that has caught up once stays good when its lag goes up a little, or nothing would come to rest.
        """
        standing = self._standing
        return (
            standing.caught_up(task, worker)
            or (worker in standing.copies(task) and standing.follows(task, worker))
            or worker == standing.runner(task, self._previous.active)
        )

    def _warming(self, task: TaskId) -> set[str]:
        reported = self._standing.copies(task)
        warming = {worker for worker, copy in reported.items() if copy.role is Role.WARM_UP}
        return (warming | {*self._previous.warm_up.get(task, ())}) & self._standing.placeable

    def _tier_of_warm_up(self, task: TaskId, worker: str) -> _Tier:
        if worker in self._warming(task) or worker in self._there(task):
            return self._under_way(task, worker)
        if worker in self._busy:
            return _Tier.NEW_ON_BUSY
        runner = self._standing.runner(task, self._previous.active)
        return _Tier.NEW if runner is None or runner in self._standing.placeable else _Tier.URGENT

    def _under_way(self, task: TaskId, worker: str) -> _Tier:
        copy = self._standing.copies(task).get(worker)
        nothing = copy is None or copy.offset <= 0
        return _Tier.STUCK if nothing and worker in self._busy else _Tier.UNDER_WAY


def _fund(needs: Iterable[_Need], budget: int, active: Mapping[TaskId, str]) -> list[_Need]:
    """The needs to grant: by tier; then for lighter destinations first, from heavier workers first."""
    load = Counter(active.values())
    by_tier: dict[_Tier, list[_Need]] = defaultdict(list)
    for need in needs:
        by_tier[need.tier].append(need)
    funded: list[_Need] = []
    for tier in sorted(by_tier):
        queues: dict[str, list[_Need]] = defaultdict(list)
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


def _urgency(queue: Sequence[_Need], active: Mapping[TaskId, str], load: Mapping[str, int]) -> tuple[int, TaskId]:
    return -load[active[queue[-1].task]], queue[-1].task
