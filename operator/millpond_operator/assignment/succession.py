"""Who is to run a task now, given who runs it and who should in the end."""

from __future__ import annotations

from collections.abc import Iterable

from millpond.topology import TaskId

from .candidates import Standing
from .model import Placement, Task

__all__ = ("Succession",)


class Succession:
    """The rules by which tasks pass from worker to worker."""

    def __init__(self, target: Placement, standing: Standing, previous: Placement) -> None:
        """For one situation, a target for it, and what was decided last."""
        self._target = target
        self._standing = standing
        self._previous = previous

    def of(self, task: Task) -> str | None:
        """Who is to run `task` now; None if nobody may."""
        standing = self._standing
        goal = self._target.active.get(task.id)
        if goal not in standing.placeable:
            goal = None
        runner = standing.runner(task.id, self._previous.active)
        if runner is not None and goal is None:
            return runner
        if not task.stateful and goal is not None:
            return goal
        if runner is None:
            return self._best(task.id, goal)
        if goal == runner:
            if not standing.cold(task.id, runner):
                return runner
        elif self._ready(task.id, goal):
            return goal
        if standing.live[runner].leaving:
            return self._best(task.id, goal)
        if runner not in standing.placeable or standing.cold(task.id, runner):
            # Whoever has a warm copy serves better, even if the task has to move once more later.
            fit = [worker for worker in standing.copies(task.id) if self._may(worker, runner)]
            fit = [worker for worker in fit if self._fit(task.id, worker)]
            if fit:
                return self._first(task.id, fit, goal)
            if standing.cold(task.id, runner) and self._ahead(task.id, goal, runner):
                return goal
        return runner

    def _best(self, task: TaskId, goal: str | None) -> str | None:
        """The best successor there is, for a task that cannot stay where it is."""
        standing = self._standing
        if not standing.placeable:
            return None
        candidates = {worker for worker in standing.holders(task) if worker in standing.placeable}
        promised = self._previous.active.get(task)
        if promised in standing.placeable and not standing.reported(promised):
            candidates.add(promised)
        candidates.add(goal or min(standing.placeable))
        return self._first(task, candidates, goal)

    def _first(self, task: TaskId, candidates: Iterable[str], goal: str | None) -> str:
        """Warm copies before cold ones, then whom it was promised to, then the one to be preferred.

        Of warm copies: the target's; then rather one that the target does not want as a standby. Of cold ones: the
        one that has least to restore; then the target.
        """
        standing = self._standing
        standbys = self._target.standby.get(task, ())
        promised = self._previous.active.get(task)

        def order(worker: str) -> tuple[object, ...]:
            fit = self._fit(task, worker)
            kept = worker == promised and (worker in standing.copies(task) or not standing.reported(worker))
            behind = standing.behind(task, worker)
            if fit:
                return (False, not kept, worker != goal, worker in standbys, behind, worker)
            return (True, not kept, behind, worker != goal, worker)

        return min(candidates, key=order)

    def _may(self, worker: str, runner: str) -> bool:
        return worker != runner and worker in self._standing.placeable

    def _fit(self, task: TaskId, worker: str | None) -> bool:
        """Whether `worker` can go on with hardly a gap. What was promised holds while its copy follows the changelogs."""
        if worker is None:
            return False
        promised = self._previous.active.get(task) == worker and self._standing.follows(task, worker)
        return promised or self._standing.caught_up(task, worker)

    def _ready(self, task: TaskId, worker: str | None) -> bool:
        """Whether `worker` can take over from one that lives: its copy has seen the ends of the changelogs.

        One that is within the acceptable lag by its disk alone has yet to open them, which its task would wait for.
        """
        return worker is not None and self._fit(task, worker) and self._standing.follows(task, worker)

    def _ahead(self, task: TaskId, goal: str | None, runner: str) -> bool:
        """Whether the target has no more to restore than a runner that does not process yet."""
        copies = self._standing.copies(task)
        if goal is None or goal == runner or goal not in copies or copies[goal].lag is None:
            return False
        return self._standing.behind(task, goal) <= self._standing.behind(task, runner)
