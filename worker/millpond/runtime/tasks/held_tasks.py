"""The tasks a worker holds: what it is to each, how far it is, and what others may see of that."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from millpond.protocol import Mark, Role, TaskReport, TaskState
from millpond.runtime.offsets.marks import mark_of
from millpond.runtime.offsets.metadata import CommittedOffset, Partition
from millpond.runtime.ownership.lookups import TaskLookup
from millpond.runtime.processing.stream_task import StreamTask
from millpond.runtime.restoring.changelog_reader import Restoration
from millpond.topology import TaskId

from .lifecycle import TaskRecord

__all__ = ("LAG_KNOWN_S", "HeldTask", "TaskView")

#: A lag is the distance to the end that a broker told last; when it told that longer ago, more may have come since.
LAG_KNOWN_S = 2.0


@dataclass(eq=False)
class HeldTask:
    """A task in a worker's hands: its life cycle, and what is behind it. Only the worker's loop touches it."""

    record: TaskRecord
    """Its place in the life cycle."""
    stores: dict[str, Any] = field(default_factory=dict)
    """Its store instances by name."""
    changelogs: list[Restoration] = field(default_factory=list)
    """What fills the stores that have a changelog."""
    task: StreamTask | None = None
    """The active task, once it is known where it starts."""
    committed: Mapping[Partition, CommittedOffset] = field(default_factory=dict)
    """Of an active task: what is committed for its inputs."""
    found: TaskLookup | None = None
    """What the last look-up found."""
    where: TaskLookup | None = None
    """Of an active task: what it was activated with."""
    digest: str = ""
    """Of an active task: the digest of its changelogs in the offset metadata."""
    since: float = field(default_factory=time.monotonic)
    """Monotonic time of the last look-up."""

    @property
    def id(self) -> TaskId:
        """The task."""
        return self.record.task

    @property
    def role(self) -> Role:
        """What the worker is to it."""
        return self.record.role

    @property
    def state(self) -> TaskState:
        """How far the worker is with it."""
        return self.record.state

    @property
    def epoch(self) -> int:
        """Of an active task: its owner's epoch in the offset metadata."""
        return self.record.epoch

    @property
    def release_to(self) -> str | None:
        """Its owner after the next commit."""
        return self.record.release_to

    @property
    def opened(self) -> bool:
        """Whether its stores are open."""
        return self.record.opened

    @property
    def caught_up(self) -> bool:
        """Of a copy: whether it was within the acceptable lag when somebody looked last."""
        return self.record.caught_up

    def end_task(self) -> None:
        """Close the active task, if there is one."""
        if self.task is not None:
            self.task.close()
            self.task = None

    @property
    def lag(self) -> int | None:
        """Changelog records to go; None while unknown."""
        if not self.record.opened:
            return None
        if self.role is not Role.ACTIVE and any(each.bounded for each in self.changelogs):
            return None  # how far the task has come in a changelog that is its input, only the task knows
        if self.role is Role.ACTIVE and self.state in (TaskState.RUNNING, TaskState.RELEASING):
            return 0
        return sum(each.remaining for each in self.changelogs)

    @property
    def restored(self) -> bool:
        """Whether all stores are at the ends of their changelogs."""
        return all(each.done for each in self.changelogs)

    @property
    def caught_up_at(self) -> float | None:
        """Monotonic time at which its stores last were known to have all of their changelogs, None for never.

        That is when a broker was asked that told the ends; what a client remembers of ends proves nothing.
        """
        if not self.opened or not all(each.done for each in self.changelogs):
            return None
        times = [each.completeness.at for each in self.changelogs]
        return None if None in times else min(filter(None, times), default=time.monotonic())

    @property
    def known_lag(self) -> int | None:
        """The lag; of a copy, None where a broker has not told the ends of its changelogs for a while."""
        if self.role is not Role.ACTIVE:
            oldest = time.monotonic() - LAG_KNOWN_S
            if any((each.completeness.asked_at or -1.0) < oldest for each in self.changelogs):
                return None
        return self.lag

    @property
    def mark(self) -> Mark | None:
        """How far it is committed; None where that is not this worker's to say."""
        return mark_of(self.committed) if self.role is Role.ACTIVE and self.committed else None

    def report(self) -> TaskReport:
        """What the coordinator is told of it."""
        return TaskReport(self.role, self.state, self.lag, sum(each.position for each in self.changelogs))

    def view(self) -> TaskView:
        """What queries see of it."""
        positions = {
            str(partition): each.offset for partition, each in self.committed.items() if each.offset is not None
        }
        return TaskView(self.id, self.role, self.state, self.stores, positions, self.caught_up_at, self.known_lag)


@dataclass(frozen=True)
class TaskView:
    """A task a worker holds, as of a moment; may be read from any thread."""

    task: TaskId
    role: Role
    state: TaskState
    stores: Mapping[str, Any]
    """Store instances by name; their methods are the loop's, except where a backend says otherwise."""
    positions: Mapping[str, int]
    """Committed next offset per input, keyed ``topic-partition``; empty for copies."""
    caught_up_at: float | None
    """Monotonic time at which the stores last stood at the ends of their changelogs; None for never."""
    lag: int | None
    """Changelog records to go; None while unknown."""
