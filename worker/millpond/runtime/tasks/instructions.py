"""The instructions of the tasks' state machines: pieces of I/O, done in `executor.py` and `coordination.py`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from millpond.protocol import Mark
from millpond.runtime.offsets.metadata import Claim
from millpond.topology import TaskId

__all__ = (
    "BecomeActive",
    "BecomeCopy",
    "CancelSnapshot",
    "CleanUp",
    "CloseStores",
    "FindNewPartitions",
    "FindOwnTasks",
    "GoBack",
    "Instruction",
    "LearnMarks",
    "LookUp",
    "MeasureLags",
    "OpenStores",
    "ReadDisk",
    "Report",
    "ReportHandedOver",
    "ReportNotOwned",
    "SkipSnapshot",
    "StartTasks",
    "StopReading",
    "TakeTasksOver",
    "Withdraw",
)


@dataclass(frozen=True, slots=True)
class Instruction:
    """One piece of I/O."""


# Of the life cycle


@dataclass(frozen=True, slots=True)
class LookUp(Instruction):
    """Look tasks up in Kafka; answered by `LookedUp` events with the same number."""

    number: int
    tasks: tuple[TaskId, ...]
    committed: bool
    """Whether to read committed offsets, whose metadata names the owners; otherwise only the ranges of topics."""


@dataclass(frozen=True, slots=True)
class OpenStores(Instruction):
    """Open the stores of a task and restore them.

    Answered by `StoresOpened`, `SnapshotAwaited` or `ChangelogReplaced`.
    """

    task: TaskId
    following: bool
    """Whether the stores belong to a copy, which continues to follow its changelogs."""
    snapshot: bool
    """Whether the task may wait for a snapshot instead."""
    together: int
    """The number of tasks that are opened at this time."""


@dataclass(frozen=True, slots=True)
class BecomeActive(Instruction):
    """Promote a copy: restore its open stores to the ends of their changelogs that the last lookup found."""

    task: TaskId


@dataclass(frozen=True, slots=True)
class StartTasks(Instruction):
    """Create tasks whose stores are restored, and start to read their inputs."""

    tasks: tuple[TaskId, ...]


@dataclass(frozen=True, slots=True)
class StopReading(Instruction):
    """Stop reading the inputs of a task, so that it stops processing."""

    task: TaskId


@dataclass(frozen=True, slots=True)
class BecomeCopy(Instruction):
    """Demote a task: close it, and let its stores follow their changelogs. Answered by `StoresOpened`."""

    task: TaskId


@dataclass(frozen=True, slots=True)
class CloseStores(Instruction):
    """Close the stores of a task, and the task itself if it is active. Uncommitted changes are dropped."""

    task: TaskId
    for_good: bool
    """Whether the worker no longer holds the task, so that rows in memory are dropped as well."""


@dataclass(frozen=True, slots=True)
class CancelSnapshot(Instruction):
    """Cancel the wait of a task for a snapshot."""

    task: TaskId


@dataclass(frozen=True, slots=True)
class SkipSnapshot(Instruction):
    """Open a task without a snapshot after its next lookup."""

    task: TaskId


@dataclass(frozen=True, slots=True)
class ReportHandedOver(Instruction):
    """Report that the commit that names the next owner of a task is complete."""

    task: TaskId
    owner: str


@dataclass(frozen=True, slots=True)
class ReportNotOwned(Instruction):
    """Report that this worker may not activate a task: Kafka names another owner, none, or another topology.

    Without a coordinator this is an error, and the worker ends.
    """

    task: TaskId
    claim: Claim
    owner: str | None


# Of the follower of the coordinator's assignment


@dataclass(frozen=True, slots=True)
class TakeTasksOver(Instruction):
    """Take tasks over from a dead worker, or claim tasks without an owner. Answered by `TakeOverEnded`."""

    previous: str | None
    """The dead worker; None to claim tasks that have no owner."""
    owners: Mapping[TaskId, str]
    """The next owner of each task; it need not be this worker."""


@dataclass(frozen=True, slots=True)
class FindOwnTasks(Instruction):
    """Find the tasks whose offsets name this worker as the owner; answered by `OwnTasksFound`."""

    number: int
    tasks: frozenset[TaskId]


@dataclass(frozen=True, slots=True)
class LearnMarks(Instruction):
    """Record the commits of other workers: a lower committed offset from Kafka is out of date."""

    marks: Mapping[TaskId, Mark]


@dataclass(frozen=True, slots=True)
class Report(Instruction):
    """Report the tasks that this worker holds to the coordinator."""

    urgent: bool
    """Whether to send a heartbeat at once."""


@dataclass(frozen=True, slots=True)
class GoBack(Instruction):
    """Go back to the last commit, since another worker owns a task that runs here and has fenced this worker."""


@dataclass(frozen=True, slots=True)
class Withdraw(Instruction):
    """Drop all tasks, since the coordinator rejects this worker's topology."""


@dataclass(frozen=True, slots=True)
class FindNewPartitions(Instruction):
    """Look for new input partitions at once: the coordinator named a task that this worker does not know."""


@dataclass(frozen=True, slots=True)
class MeasureLags(Instruction):
    """Measure the lags of copies."""


@dataclass(frozen=True, slots=True)
class ReadDisk(Instruction):
    """List the tasks that have state on disk and are not held."""


@dataclass(frozen=True, slots=True)
class CleanUp(Instruction):
    """Delete the state of tasks that were dropped longer ago than the clean-up delay."""
