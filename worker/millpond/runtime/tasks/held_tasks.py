"""The tasks that a worker holds: their roles, states and stores, for the coordinator's reports and for queries."""

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

#: A lag counts as unknown when the broker reported the end of the changelog longer ago than this, in seconds.
LAG_KNOWN_S = 2.0


@dataclass(eq=False)
class HeldTask:
    """A held task: its place in the life cycle, and its stores. Only the worker's loop may use it."""

    record: TaskRecord
    """The place of the task in the life cycle."""
    stores: dict[str, Any] = field(default_factory=dict)
    """The store instances by name."""
    changelogs: list[Restoration] = field(default_factory=list)
    """The restorations of the stores that have a changelog."""
    task: StreamTask | None = None
    """The active task, as soon as its stores are restored."""
    committed: Mapping[Partition, CommittedOffset] = field(default_factory=dict)
    """For an active task, the committed offsets of its inputs."""
    confirmed: bool = False
    """Whether this worker has committed `committed` itself; otherwise a broker's answer told it."""
    last_lookup: TaskLookup | None = None
    """The answer to the last lookup of the task."""
    activated_with: TaskLookup | None = None
    """For an active task, the lookup with which it was activated."""
    digest: str = ""
    """For an active task, the digest of its changelogs in the offset metadata."""
    topics: Mapping[str, str] = field(default_factory=dict)
    """For an active task, the digests of its inputs in the offset metadata, by topic."""
    looked_up_at: float = field(default_factory=time.monotonic)
    """The time of the last lookup, in monotonic seconds."""

    @property
    def id(self) -> TaskId:
        """The task's id."""
        return self.record.task

    @property
    def role(self) -> Role:
        """The worker's role for the task."""
        return self.record.role

    @property
    def state(self) -> TaskState:
        """The state of the task in the life cycle."""
        return self.record.state

    @property
    def epoch(self) -> int:
        """The owner's epoch in the offset metadata, for an active task."""
        return self.record.epoch

    @property
    def release_to(self) -> str | None:
        """The owner of the task after the next commit; None if the task is not handed over."""
        return self.record.release_to

    @property
    def opened(self) -> bool:
        """Whether the stores are open."""
        return self.record.opened

    @property
    def caught_up(self) -> bool:
        """Whether the lag of a copy was acceptable at its last measurement."""
        return self.record.caught_up

    def end_task(self) -> None:
        """Close the active task, if any."""
        task, self.task = self.task, None
        if task is not None:
            task.close()

    @property
    def lag(self) -> int | None:
        """The lag in changelog records; None while unknown."""
        if not self.record.opened:
            return None
        if self.role is Role.ACTIVE and self.state in (TaskState.RUNNING, TaskState.RELEASING):
            return 0
        return sum(each.remaining for each in self.changelogs)

    @property
    def restored(self) -> bool:
        """Whether all stores are at the ends of their changelogs."""
        return all(each.done for each in self.changelogs)

    @property
    def caught_up_at(self) -> float | None:
        """The last time at which the stores were known to be complete, in monotonic seconds; None for never.

        That is the time of the request that a broker answered with the ends; ends that a client has cached do not
        count.
        """
        if not self.opened or not all(each.done for each in self.changelogs):
            return None
        times = [each.completeness.at for each in self.changelogs]
        return None if None in times else min(filter(None, times), default=time.monotonic())

    @property
    def known_lag(self) -> int | None:
        """The lag; None for a copy whose changelog ends are older than `LAG_KNOWN_S`."""
        if self.role is not Role.ACTIVE:
            oldest = time.monotonic() - LAG_KNOWN_S
            if any((each.completeness.asked_at or -1.0) < oldest for each in self.changelogs):
                return None
        return self.lag

    @property
    def mark(self) -> Mark | None:
        """The progress of the task's commits; None unless the task is active here."""
        return mark_of(self.committed) if self.role is Role.ACTIVE and self.committed else None

    def report(self) -> TaskReport:
        """Return the task's report for the coordinator."""
        return TaskReport(self.role, self.state, self.lag, sum(each.position for each in self.changelogs))

    def view(self) -> TaskView:
        """Return the task's view for queries."""
        positions = {
            str(partition): each.offset for partition, each in self.committed.items() if each.offset is not None
        }
        return TaskView(self.id, self.role, self.state, self.stores, positions, self.caught_up_at, self.known_lag)


@dataclass(frozen=True)
class TaskView:
    """A held task at one moment; may be read from any thread."""

    task: TaskId
    role: Role
    state: TaskState
    stores: Mapping[str, Any]
    """Store instances by name; only the loop may call their methods, unless a backend's documentation allows more."""
    positions: Mapping[str, int]
    """Committed next offset per input, keyed ``topic-partition``; empty for copies."""
    caught_up_at: float | None
    """The last time the stores were at the ends of their changelogs, in monotonic seconds; None for never."""
    lag: int | None
    """The lag in changelog records; None while unknown."""
