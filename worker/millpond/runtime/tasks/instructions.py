"""What the state machines of tasks ask for: each instruction is one piece of I/O, done by the executor (`executor.py`)."""

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
    "ExpectTasks",
    "FindOwn",
    "GoBack",
    "Instruction",
    "LearnMarks",
    "LookAtCopies",
    "LookUp",
    "OpenStores",
    "ReadDisk",
    "Report",
    "ReportDisowned",
    "ReportHandedOver",
    "SkipSnapshot",
    "StartTasks",
    "StopReading",
    "TakeTasksOver",
    "Withdraw",
)


@dataclass(frozen=True, slots=True)
class Instruction:
    """One piece of I/O."""


# Of the life cycle ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LookUp(Instruction):
    """Read where tasks stand in Kafka; `LookedUp` events with the same number answer."""

    number: int
    tasks: tuple[TaskId, ...]
    committed: bool
    """Whether to read committed offsets, and so the owners, too."""


@dataclass(frozen=True, slots=True)
class OpenStores(Instruction):
    """Open the stores of a task and restore them; answered by `StoresOpened`, `SnapshotAwaited` or `ChangelogReplaced`."""

    task: TaskId
    following: bool
    """Whether the stores are a copy's, which goes on following its changelogs."""
    snapshot: bool
    """Whether the task may wait for a snapshot instead."""
    together: int
    """How many tasks are opened at this time."""


@dataclass(frozen=True, slots=True)
class BecomeActive(Instruction):
    """Restore the open stores of a copy to the ends of their changelogs that the last look-up found."""

    task: TaskId


@dataclass(frozen=True, slots=True)
class StartTasks(Instruction):
    """Make the tasks, whose stores are restored, and read their inputs."""

    tasks: tuple[TaskId, ...]


@dataclass(frozen=True, slots=True)
class StopReading(Instruction):
    """Read the inputs of a task no more; it processes nothing from here on."""

    task: TaskId


@dataclass(frozen=True, slots=True)
class BecomeCopy(Instruction):
    """End the active task and let its stores follow their changelogs; answered by `StoresOpened`."""

    task: TaskId


@dataclass(frozen=True, slots=True)
class CloseStores(Instruction):
    """End the task if it is active, and close its stores. What is not committed is forgotten."""

    task: TaskId
    for_good: bool
    """Whether the worker holds the task no more: what is only in memory goes, too."""


@dataclass(frozen=True, slots=True)
class CancelSnapshot(Instruction):
    """Let a task wait for no snapshot any more."""

    task: TaskId


@dataclass(frozen=True, slots=True)
class SkipSnapshot(Instruction):
    """Open a task without a snapshot when it is looked up next."""

    task: TaskId


@dataclass(frozen=True, slots=True)
class ReportHandedOver(Instruction):
    """Report that the commit that names the next owner of a task is through."""

    task: TaskId
    owner: str


@dataclass(frozen=True, slots=True)
class ReportDisowned(Instruction):
    """Report that Kafka names another owner, nobody, or another topology for a task that was to be active here.

    Without a coordinator nothing of the kind may happen, and the worker ends.
    """

    task: TaskId
    claim: Claim
    owner: str | None


# Of the follower of the coordinator's assignment ------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TakeTasksOver(Instruction):
    """Become the owner, or name others as owners, in place of a dead worker or of nobody; answered by `TakeOverEnded`."""

    previous: str | None
    owners: Mapping[TaskId, str]


@dataclass(frozen=True, slots=True)
class FindOwn(Instruction):
    """Look for tasks, among these, whose offsets name this worker as the owner; answered by `OwnNamed`."""

    number: int
    tasks: frozenset[TaskId]


@dataclass(frozen=True, slots=True)
class LearnMarks(Instruction):
    """Remember how far others committed tasks: what Kafka answers that is less is out of date."""

    marks: Mapping[TaskId, Mark]


@dataclass(frozen=True, slots=True)
class Report(Instruction):
    """Tell the coordinator what this worker holds."""

    urgent: bool
    """Whether to post a heartbeat at once."""


@dataclass(frozen=True, slots=True)
class GoBack(Instruction):
    """Go back to the last commit: another worker owns a task that runs here, and this one is fenced."""


@dataclass(frozen=True, slots=True)
class Withdraw(Instruction):
    """Hold nothing: the coordinator rejects this worker for what it runs."""


@dataclass(frozen=True, slots=True)
class ExpectTasks(Instruction):
    """Look for more input partitions at once: the coordinator named a task that the topology does not have."""


@dataclass(frozen=True, slots=True)
class LookAtCopies(Instruction):
    """See how far copies are behind the ends of their changelogs."""


@dataclass(frozen=True, slots=True)
class ReadDisk(Instruction):
    """Find out which tasks have state on disk and are not held."""


@dataclass(frozen=True, slots=True)
class CleanUp(Instruction):
    """Delete the state of tasks that were dropped long ago."""
