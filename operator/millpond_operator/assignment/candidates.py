"""The candidates for each task: the worker that runs it, the workers with its state, and their lag."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Final

from millpond.protocol import Role, TaskState
from millpond.topology import TaskId

from .model import AssignmentOptions, Copy, Situation

__all__ = ("ANY_LAG", "CandidateIndex")

ANY_LAG: Final = 2**63 - 1
"""As `acceptable_lag`: every copy is caught up, even one that does not exist yet."""

_NO_COPIES: Final[Mapping[str, Copy]] = {}
_NO_STATE: Final[Mapping[str, int]] = {}


class CandidateIndex:
    """The workers' reports, indexed by task.

    Args:
        situation: the known tasks and workers.
        options: settings of the assignment.

    Attributes:
        situation: the argument.
        options: the argument.
        live: all live workers, by id.
        placeable: the ids of live workers that may get tasks.
        owners: the owner of each task in Kafka, where it is known.
    """

    __slots__ = (
        "_acceptable_lag",
        "_copies",
        "_disk",
        "_reported",
        "live",
        "options",
        "owners",
        "placeable",
        "situation",
    )

    def __init__(self, situation: Situation, options: AssignmentOptions) -> None:
        self.situation = situation
        self.options = options
        self.live = situation.workers
        self.placeable = frozenset(
            worker.id for worker in situation.workers.values() if worker.placeable and not worker.leaving
        )
        self.owners = situation.owners
        self._acceptable_lag = options.acceptable_lag
        self._reported = situation.copies
        self._copies: dict[TaskId, dict[str, Copy]] = {}
        for worker, copies in situation.copies.items():
            if worker in self.live:
                for task, copy in copies.items():
                    self._copies.setdefault(task, {})[worker] = copy
        self._disk: dict[TaskId, dict[str, int]] = {}
        for worker, offsets in situation.on_disk.items():
            if worker in self.live:
                for task, offset in offsets.items():
                    self._disk.setdefault(task, {})[worker] = offset

    def copies(self, task: TaskId) -> Mapping[str, Copy]:
        """Return the copies of `task` that live workers report, in any role, by worker."""
        return self._copies.get(task, _NO_COPIES)

    def holders(self, task: TaskId) -> set[str]:
        """Return the live workers with any state of `task`, open or only on disk."""
        return {*self._copies.get(task, ()), *self._disk.get(task, ())}

    def reported(self, worker: str) -> bool:
        """Return whether `worker` reported its tasks. A worker that did not may hold any task."""
        return worker in self._reported

    def runner(self, task: TaskId, last: Mapping[TaskId, str]) -> str | None:
        """Return the live worker that runs `task`, or has to be treated as its runner; None when there is none.

        It is the owner in Kafka. If the owner is not known, it is the worker that reports to run the task; else the
        worker that ran it last (`last`), until that one reports.
        """
        if task in self.owners:
            owner = self.owners[task]
            return owner if owner in self.live else None
        for worker, copy in self.copies(task).items():
            if copy.role is Role.ACTIVE:
                return worker
        before = last.get(task)
        return before if before is not None and before in self.live and not self.reported(before) else None

    def caught_up(self, task: TaskId, worker: str) -> bool:
        """Return whether the copy on `worker` has at most the acceptable lag. An unknown lag does not count."""
        copy = self.copies(task).get(worker)
        return copy is not None and copy.lag is not None and copy.lag <= self._acceptable_lag

    def follows(self, task: TaskId, worker: str) -> bool:
        """Return whether the copy on `worker` once reached the changelog ends, or may have (no report yet)."""
        copy = self.copies(task).get(worker)
        return not self.reported(worker) if copy is None else copy.state in {TaskState.RUNNING, TaskState.RELEASING}

    def cold(self, task: TaskId, runner: str) -> bool:
        """Return whether `runner` still restores `task`, with more than the acceptable lag."""
        copy = self.copies(task).get(runner)
        if copy is None or (copy.role is Role.ACTIVE and copy.state in {TaskState.RUNNING, TaskState.RELEASING}):
            return False
        return copy.lag is not None and copy.lag > self._acceptable_lag

    def behind(self, task: TaskId, worker: str) -> tuple[float, int]:
        """Return the distance of `worker` from the end of the changelogs of `task`; the smallest value is best.

        The value is the lag in records, infinite if it is not known; then the negated sum of the offsets, which are
        comparable because the changelogs are the same for every worker.
        """
        copies = self.copies(task)
        copy = copies.get(worker)
        if copy is not None and copy.lag is not None:
            return copy.lag, -copy.offset
        offset = self._disk.get(task, _NO_STATE).get(worker, 0) if copy is None else copy.offset
        ends = [other.offset + other.lag for other in copies.values() if other.lag is not None]
        return (float(max(0, max(ends) - offset)) if ends else math.inf), -offset

    def most_advanced(self, task: TaskId, among: Iterable[str]) -> str | None:
        """Return the worker with the best state of `task`: caught up first, then with the smallest lag."""
        return min(
            among,
            key=lambda worker: (not self.caught_up(task, worker), self.behind(task, worker), worker),
            default=None,
        )
