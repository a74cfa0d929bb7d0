"""The worker that may run a task now, given its present worker and its worker in the target."""

from __future__ import annotations

from collections.abc import Iterable

from millpond.topology import TaskId

from .candidates import CandidateIndex
from .model import Placement, Task

__all__ = ("Succession",)


class Succession:
    """The rules by which tasks move from worker to worker.

    Args:
        target: the final placement of tasks.
        index: the workers' reports.
        previous: the last refined placement.
    """

    def __init__(self, target: Placement, index: CandidateIndex, previous: Placement) -> None:
        self._target = target
        self._index = index
        self._previous = previous

    def of(self, task: Task) -> str | None:
        """Return the worker that may run `task` now; None if no worker may."""
        index = self._index
        goal = self._target.active.get(task.id)
        if goal not in index.placeable:
            goal = None
        runner = index.runner(task.id, self._previous.active)
        if runner is not None and goal is None:
            return runner
        if not task.stateful and goal is not None:
            return goal
        if runner is None:
            return self._best(task.id, goal)
        if goal == runner:
            if not index.cold(task.id, runner):
                return runner
        elif self._ready(task.id, goal):
            return goal
        if index.live[runner].leaving:
            return self._best(task.id, goal)
        if runner in index.placeable and not index.cold(task.id, runner):
            return runner
        return self._instead_of(runner, task.id, goal)

    def _instead_of(self, runner: str, task: TaskId, goal: str | None) -> str:
        """Return the successor of a runner that may not keep the task, or does not process it soon; else the runner."""
        index = self._index
        # A warm copy serves better, even if the task has to move once more later.
        warm = [each for each in index.copies(task) if self._may(each, runner) and self._fits(task, each)]
        if warm:
            return self._first(task, warm, goal)
        if goal is not None and index.cold(task, runner) and self._ahead(task, goal, runner):
            return goal
        return runner

    def _best(self, task: TaskId, goal: str | None) -> str | None:
        """Return the best successor of a task that cannot stay on its worker."""
        index = self._index
        if not index.placeable:
            return None
        candidates = {worker for worker in index.holders(task) if worker in index.placeable}
        promised = self._previous.active.get(task)
        if promised in index.placeable and not index.reported(promised):
            candidates.add(promised)
        candidates.add(goal or min(index.placeable))
        return self._first(task, candidates, goal)

    def _first(self, task: TaskId, candidates: Iterable[str], goal: str | None) -> str:
        """Return the best of these workers.

        Warm copies come before cold ones, then the worker of the last placement. Of warm copies: the target's,
        then one that is no standby in the target. Of cold ones: the one with the least to restore, then the target's.
        """
        index = self._index
        standbys = self._target.standby.get(task, ())
        promised = self._previous.active.get(task)

        def order(worker: str) -> tuple[object, ...]:
            fits = self._fits(task, worker)
            kept = worker == promised and (worker in index.copies(task) or not index.reported(worker))
            behind = index.behind(task, worker)
            if fits:
                return (False, not kept, worker != goal, worker in standbys, behind, worker)
            return (True, not kept, behind, worker != goal, worker)

        return min(candidates, key=order)

    def _may(self, worker: str, runner: str) -> bool:
        return worker != runner and worker in self._index.placeable

    def _fits(self, task: TaskId, worker: str | None) -> bool:
        """Return whether `worker` could process the task almost at once.

        Its copy is caught up; or the last placement gave it the task, and its copy still follows the changelogs.
        """
        if worker is None:
            return False
        promised = self._previous.active.get(task) == worker and self._index.follows(task, worker)
        return promised or self._index.caught_up(task, worker)

    def _ready(self, task: TaskId, worker: str | None) -> bool:
        """Return whether `worker` can take over from a live one: its copy once reached the ends of the changelogs.

        A copy that is within the acceptable lag only on disk has to be opened first, and its task would wait for that.
        """
        return worker is not None and self._fits(task, worker) and self._index.follows(task, worker)

    def _ahead(self, task: TaskId, goal: str | None, runner: str) -> bool:
        """Return whether the target's lag is at most that of a runner that does not process yet."""
        copies = self._index.copies(task)
        if goal is None or goal == runner or goal not in copies or copies[goal].lag is None:
            return False
        return self._index.behind(task, goal) <= self._index.behind(task, runner)
