"""The events of a worker's tasks: the input of the state machines in `lifecycle.py` and `assignment_follower.py`."""

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
    "Drop",
    "Event",
    "Finding",
    "HandedOver",
    "Hold",
    "Keep",
    "LookedUp",
    "NotOwned",
    "OwnTasksFound",
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
    """An event."""


# Orders, by the coordinator or by a worker that has none


@dataclass(frozen=True, slots=True)
class Hold(Event):
    """Hold tasks in a role."""

    tasks: tuple[TaskId, ...]
    role: Role


@dataclass(frozen=True, slots=True)
class Drop(Event):
    """Stop holding tasks. Their owners process again what was not committed."""

    tasks: tuple[TaskId, ...]


@dataclass(frozen=True, slots=True)
class Release(Event):
    """Hand a task over: the next commit names another owner."""

    task: TaskId
    owner: str


@dataclass(frozen=True, slots=True)
class Keep(Event):
    """Cancel the hand-over of a task, unless its commit has begun."""

    task: TaskId


# Results of lookups in Kafka


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of a lookup for one task."""

    task: TaskId
    claim: Claim = Claim.RESUME
    """The right of this worker, by the owner in the offset metadata; not used for a copy."""
    owner: str | None = None
    epoch: int = 0
    """The owner's epoch."""
    resumable: bool = True
    """Whether the offset metadata names this worker's topology, or the coordinator has admitted that topology."""


@dataclass(frozen=True, slots=True)
class LookedUp(Event):
    """The answer to `LookUp`, for all of its tasks or some."""

    number: int
    findings: tuple[Finding, ...]


@dataclass(frozen=True, slots=True)
class TakenAway(Event):
    """The loss of an active task: another worker owns it."""

    task: TaskId


# Stores


@dataclass(frozen=True, slots=True)
class StoresOpened(Event):
    """The stores of a task are open, and their restore has begun."""

    task: TaskId
    restored: bool
    """Whether nothing is left to restore."""


@dataclass(frozen=True, slots=True)
class SnapshotAwaited(Event):
    """A task waits for a snapshot: its stores are opened when the snapshot is ingested or cannot be used."""

    task: TaskId


@dataclass(frozen=True, slots=True)
class SnapshotReady(Event):
    """A task no longer has to wait for a snapshot."""

    task: TaskId


@dataclass(frozen=True, slots=True)
class ChangelogReplaced(Event):
    """The changelog of a copy's local rows was deleted and created again: the committed offsets decide what to do."""

    task: TaskId


@dataclass(frozen=True, slots=True)
class StoresRestored(Event):
    """All stores of these active tasks are at the ends of their changelogs, and global stores are complete."""

    tasks: tuple[TaskId, ...]


@dataclass(frozen=True, slots=True)
class CopyProgress(Event):
    """The lag of a copy has changed."""

    task: TaskId
    restored: bool
    """Whether the copy has reached the ends of all its changelogs."""
    caught_up: bool
    """Whether its lag is within `acceptable.recovery.lag`."""


@dataclass(frozen=True, slots=True)
class StoresExpired(Event):
    """A store needs records that its changelog no longer has; it is restored from the beginning."""

    task: TaskId


# Commits


@dataclass(frozen=True, slots=True)
class CommitBegun(Event):
    """A commit that hands these tasks over has begun."""

    tasks: tuple[TaskId, ...]


@dataclass(frozen=True, slots=True)
class CommitCompleted(Event):
    """The commit that hands these tasks over is complete, and its rows are on disk."""

    tasks: tuple[TaskId, ...]


@dataclass(frozen=True, slots=True)
class CommitFailed(Event):
    """A commit failed, or its result is unknown: active tasks go back to their committed offsets."""


# The coordinator, and the worker's session with it


@dataclass(frozen=True, slots=True)
class Turn(Event):
    """One turn of the worker's loop."""

    now: float
    """The current time, in monotonic seconds."""
    connected_at: float | None
    """The time of the coordinator's last answer, in monotonic seconds; None if it never answered."""
    rejected: bool
    """Whether the coordinator rejects this worker's topology."""
    brokers: Brokers
    """Whether brokers answer this worker."""
    doubtful: bool = False
    """Whether its tasks may have been taken over because some brokers do not answer it."""


@dataclass(frozen=True, slots=True)
class AnswerReceived(Event):
    """The coordinator answered a heartbeat."""

    now: float
    answer: Answer


@dataclass(frozen=True, slots=True)
class TakeOverEnded(Event):
    """The end of a take-over, whether or not Kafka accepted it."""

    now: float
    previous: str | None
    owners: Mapping[TaskId, str | None]
    """The owner of each task now."""


@dataclass(frozen=True, slots=True)
class Ownership:
    """The owner of a task, by its committed offsets."""

    owners: frozenset[str]
    epoch: int
    resumable: bool
    """Whether the offsets name this worker, and no topology but this worker's."""


@dataclass(frozen=True, slots=True)
class OwnersRead(Event):
    """The answer to a lookup that checks the owners of running tasks, for all of its tasks or some."""

    now: float
    number: int
    tasks: Mapping[TaskId, Ownership]


@dataclass(frozen=True, slots=True)
class OwnTasksFound(Event):
    """The answer to `FindOwnTasks`."""

    number: int
    tasks: Mapping[TaskId, Ownership]


@dataclass(frozen=True, slots=True)
class NotOwned(Event):
    """This worker may not activate a task: Kafka names another owner, none, or another topology."""

    now: float
    task: TaskId
    claim: Claim
    owner: str | None


@dataclass(frozen=True, slots=True)
class HandedOver(Event):
    """A commit has named the next owner of a task."""

    task: TaskId
    owner: str


@dataclass(frozen=True, slots=True)
class BackAtCommit(Event):
    """The worker has gone back to the last commit, perhaps with more tasks than before."""

    now: float
    tasks: frozenset[TaskId]
    """All tasks of the application."""
