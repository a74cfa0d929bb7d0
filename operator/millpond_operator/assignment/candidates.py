"""How the workers stand to each task: who runs it, who has state of it, and how far behind that state is."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Final

from millpond.protocol import Role, TaskState
from millpond.topology import TaskId

from .model import Copy, Situation

__all__ = ("ANY_LAG", "Standing")

ANY_LAG: Final = 2**63 - 1
"""As `acceptable_lag`: every copy is caught up, even one that does not exist yet."""

_NO_COPIES: Final[Mapping[str, Copy]] = {}
_NO_STATE: Final[Mapping[str, int]] = {}


class Standing:
    """A situation, asked by task."""

    __slots__ = ("_acceptable_lag", "_copies", "_disk", "_reported", "live", "owners", "placeable")

    def __init__(self, situation: Situation, acceptable_lag: int) -> None:
        """Turn the workers' reports, which are by worker, into what is known of each task."""
        self.live = situation.workers
        self.placeable = frozenset(
            worker.id for worker in situation.workers.values() if worker.placeable and not worker.leaving
        )
        self.owners = situation.owners
        self._acceptable_lag = acceptable_lag
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
        """What live workers report to hold of `task`, in whatever role."""
        return self._copies.get(task, _NO_COPIES)

    def holders(self, task: TaskId) -> set[str]:
        """Live workers with any state of `task`, open or only on disk."""
        return {*self._copies.get(task, ()), *self._disk.get(task, ())}

    def reported(self, worker: str) -> bool:
        """Whether `worker` said what it holds. One that did not may hold anything."""
        return worker in self._reported

    def runner(self, task: TaskId, last: Mapping[TaskId, str]) -> str | None:
        """The live worker that runs `task`, or must be taken to; None when nobody does.

        The owner in Kafka does. Where that is not known, whoever says that it does; else the worker that ran it last
        (`last`), for as long as that one has not reported.
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
        """Whether `worker` has a copy within the acceptable lag. An unknown lag is not."""
        copy = self.copies(task).get(worker)
        return copy is not None and copy.lag is not None and copy.lag <= self._acceptable_lag

    def follows(self, task: TaskId, worker: str) -> bool:
        """Whether `worker` has reached the ends of the changelogs once, or may have: it has not reported."""
        copy = self.copies(task).get(worker)
        return not self.reported(worker) if copy is None else copy.state in {TaskState.RUNNING, TaskState.RELEASING}

    def cold(self, task: TaskId, runner: str) -> bool:
        """Whether `runner` does not process `task`, and will not soon: it restores, from farther than acceptable."""
        copy = self.copies(task).get(runner)
        if copy is None or (copy.role is Role.ACTIVE and copy.state in {TaskState.RUNNING, TaskState.RELEASING}):
            return False
        return copy.lag is not None and copy.lag > self._acceptable_lag

    def behind(self, task: TaskId, worker: str) -> tuple[float, int]:
        """How far `worker` is from the end of the changelogs of `task`; of two workers the lesser is ahead.

        Records to go, infinite where that is not known; then the negated sum of the offsets, which are of the same
        changelogs on every worker.
        """
        copies = self.copies(task)
        copy = copies.get(worker)
        if copy is not None and copy.lag is not None:
            return copy.lag, -copy.offset
        offset = self._disk.get(task, _NO_STATE).get(worker, 0) if copy is None else copy.offset
        ends = [other.offset + other.lag for other in copies.values() if other.lag is not None]
        return (float(max(0, max(ends) - offset)) if ends else math.inf), -offset

    def most_advanced(self, task: TaskId, among: Iterable[str]) -> str | None:
        """Of some workers, the one with the best state of `task`: caught up, else the least behind."""
        return min(
            among,
            key=lambda worker: (not self.caught_up(task, worker), self.behind(task, worker), worker),
            default=None,
        )
