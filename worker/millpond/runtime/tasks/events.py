"""What happens to the tasks of a worker, as data: the input of their life cycle (`lifecycle.py`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from millpond.protocol import Answer, Brokers, Role
from millpond.runtime.offsets.metadata import Claim
from millpond.topology import TaskId

__all__ = (
    "AnswerReceived",
    "BackAtCommit",
    "ChangelogReplaced",
    "CommitBegun",
    "CommitCompleted",
    "CommitFailed",
    "CopyProgress",
    "Disowned",
    "Drop",
    "Event",
    "Finding",
    "HandedOver",
    "Hold",
    "Keep",
    "LookedUp",
    "OwnNamed",
    "OwnersRead",
    "Ownership",
    "Release",
    "SnapshotAwaited",
    "SnapshotReady",
    "StoresExpired",
    "StoresOpened",
    "StoresRestored",
    "TakeOverEnded",
    "TakenAway",
    "Turn",
)


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened."""


# What the coordinator wants, or a worker that has none ------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Hold(Event):
    """Hold tasks in a role."""

    tasks: tuple[TaskId, ...]
    role: Role


@dataclass(frozen=True, slots=True)
class Drop(Event):
    """Hold tasks no more. What they did not commit is processed again by their owners."""

    tasks: tuple[TaskId, ...]


@dataclass(frozen=True, slots=True)
class Release(Event):
    """Let the next commit name another owner."""

    task: TaskId
    owner: str


@dataclass(frozen=True, slots=True)
class Keep(Event):
    """Do not release a task after all, unless the commit has begun."""

    task: TaskId


# What Kafka says --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Finding:
    """What a look-up found of one task."""

    task: TaskId
    claim: Claim = Claim.RESUME
    """What this worker may do, by the owner in the metadata; of no concern for a copy."""
    owner: str | None = None
    epoch: int = 0
    """The owner's epoch."""
    resumable: bool = True
    """Whether the task is of this topology, or the coordinator admits this worker's."""


@dataclass(frozen=True, slots=True)
class LookedUp(Event):
    """Answer to `LookUp`, for some of its tasks or all."""

    number: int
    findings: tuple[Finding, ...]


@dataclass(frozen=True, slots=True)
class TakenAway(Event):
    """An active task is another worker's."""

    task: TaskId


# What becomes of stores -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StoresOpened(Event):
    """The stores of a task are open, and their restoration has begun."""

    task: TaskId
    restored: bool
    """Whether it is through already."""


@dataclass(frozen=True, slots=True)
class SnapshotAwaited(Event):
    """The stores of a task are opened once a snapshot is ingested, or turns out to be of no use."""

    task: TaskId


@dataclass(frozen=True, slots=True)
class SnapshotReady(Event):
    """A task need not wait for a snapshot any more."""

    task: TaskId


@dataclass(frozen=True, slots=True)
class ChangelogReplaced(Event):
    """Local rows of a copy are of another topic than its changelog: the committed offsets decide what to do."""

    task: TaskId


@dataclass(frozen=True, slots=True)
class StoresRestored(Event):
    """All stores of these active tasks are at the ends of their changelogs, and global stores are complete."""

    tasks: tuple[TaskId, ...]


@dataclass(frozen=True, slots=True)
class CopyProgress(Event):
    """A copy got nearer to the ends of its changelogs, or fell behind."""

    task: TaskId
    restored: bool
    """Whether it has seen all ends."""
    caught_up: bool
    """Whether its lag is within `acceptable.recovery.lag`."""


@dataclass(frozen=True, slots=True)
class StoresExpired(Event):
    """A store fell behind what its changelog still has; it is restored anew."""

    task: TaskId


# What becomes of commits ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CommitBegun(Event):
    """A commit that hands these tasks over is on its way."""

    tasks: tuple[TaskId, ...]


@dataclass(frozen=True, slots=True)
class CommitCompleted(Event):
    """It is through, and its rows are on disk."""

    tasks: tuple[TaskId, ...]


@dataclass(frozen=True, slots=True)
class CommitFailed(Event):
    """A commit failed, or nobody knows whether it did: active tasks go back to what is committed."""


# What the coordinator says, and what is known of it ---------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Turn(Event):
    """One turn of the worker's loop."""

    now: float
    """Monotonic seconds."""
    connected_at: float | None
    """When the coordinator answered last, in monotonic seconds; None when it never did."""
    rejected: bool
    """Whether the coordinator rejects this worker for what it runs."""
    brokers: Brokers
    """Whether brokers answer this worker."""


@dataclass(frozen=True, slots=True)
class AnswerReceived(Event):
    """The coordinator answered a heartbeat."""

    now: float
    answer: Answer


@dataclass(frozen=True, slots=True)
class TakeOverEnded(Event):
    """An order to take tasks over was carried out, as far as Kafka let it."""

    now: float
    previous: str | None
    owners: Mapping[TaskId, str | None]
    """Who owns each task now."""


@dataclass(frozen=True, slots=True)
class Ownership:
    """Who owns a task, by its committed offsets."""

    owners: frozenset[str]
    epoch: int
    resumable: bool
    """Whether they name this worker, and its topology or none."""


@dataclass(frozen=True, slots=True)
class OwnersRead(Event):
    """Answer to a look-up that checks who owns tasks that run here, for some of its tasks or all."""

    now: float
    number: int
    tasks: Mapping[TaskId, Ownership]


@dataclass(frozen=True, slots=True)
class OwnNamed(Event):
    """Answer to `FindOwn`."""

    number: int
    tasks: Mapping[TaskId, Ownership]


@dataclass(frozen=True, slots=True)
class Disowned(Event):
    """A task was to be active here, and Kafka names another owner, nobody, or another topology."""

    now: float
    task: TaskId
    claim: Claim
    owner: str | None


@dataclass(frozen=True, slots=True)
class HandedOver(Event):
    """A commit named the next owner of a task."""

    task: TaskId
    owner: str


@dataclass(frozen=True, slots=True)
class BackAtCommit(Event):
    """The worker went back to the last commit, or to one with more tasks."""

    now: float
    tasks: frozenset[TaskId]
    """All tasks of the application."""
