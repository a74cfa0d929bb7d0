"""Inputs and results of the assignment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from millpond.protocol import Role, TakeOver, TaskState
from millpond.topology import TaskId

__all__ = ("AssignableWorker", "AssignmentOptions", "Copy", "Instructions", "Placement", "Situation", "Task")


@dataclass(frozen=True)
class AssignableWorker:
    """A live worker."""

    id: str
    tags: Mapping[str, str] = field(default_factory=dict)
    """`client.tag.*`, such as zone and cluster."""
    rack: str | None = None
    """`client.rack`. Without `rack_aware_tags`, it is the one tag that standbys are spread over."""
    placeable: bool = True
    """Whether it may get tasks. A draining worker may not, and loses its tasks as soon as possible."""
    leaving: bool = False
    """Whether its process is about to end: its tasks are handed over now, to a warm copy or a cold one. It is not
    placeable."""


@dataclass(frozen=True)
class Task:
    """One task of the topology."""

    id: TaskId
    stateful: bool
    """Whether it has a store with a changelog. Only then does it have copies."""
    weight: float = 1.0
    """The cost of running it, relative to other tasks; more than 0."""


@dataclass(frozen=True)
class Copy:
    """A task on a worker, as that worker reports it."""

    role: Role
    state: TaskState
    lag: int | None
    """Changelog records to restore, over all stores; None while unknown, which counts as far behind."""
    offset: int
    """The reached changelog offsets, summed over all stores."""


@dataclass(frozen=True)
class AssignmentOptions:
    """The application's settings of the same names in Kafka Streams."""

    standby_replicas: int = 0
    """`num.standby.replicas`: copies of each stateful task besides the active one."""
    max_warm_ups: int = 2
    """`max.warmup.replicas`: further copies that warm up at the same time, in the whole application. With 0 nothing
    warms up: tasks move at once and restore on their new worker (KIP-1071)."""
    acceptable_lag: int = 10_000
    """`acceptable.recovery.lag`, in records: a copy with at most this lag is caught up. With 2**63 - 1 every copy is,
    and so is a missing one: tasks move at once (KIP-441)."""
    rack_aware_tags: tuple[str, ...] = ()
    """`rack.aware.assignment.tags`: keys of the tags that copies of a task are spread over (KIP-708)."""


@dataclass(frozen=True)
class Situation:
    """The known tasks and workers of an application."""

    tasks: Mapping[TaskId, Task]
    """Every task of the topology."""
    workers: Mapping[str, AssignableWorker]
    """The live workers."""
    copies: Mapping[str, Mapping[TaskId, Copy]]
    """The copies that each live worker reports. A worker that is missing here has not reported yet, and may hold any
    task."""
    on_disk: Mapping[str, Mapping[TaskId, int]]
    """Tasks of which a worker has state without holding them: the sum of their changelog offsets."""
    owners: Mapping[TaskId, str | None]
    """The owner of a task in Kafka, live or dead. None: no owner. A task that is missing here: not known."""


@dataclass(frozen=True)
class Placement:
    """The workers of each task. Two placements with different reasons are equal if the workers are the same."""

    active: Mapping[TaskId, str] = field(default_factory=dict)
    """Tasks that no worker could run are missing."""
    standby: Mapping[TaskId, tuple[str, ...]] = field(default_factory=dict)
    """Tasks without standbys are missing."""
    warm_up: Mapping[TaskId, tuple[str, ...]] = field(default_factory=dict)
    """Tasks without warm-ups are missing; so are all of them in a target."""
    waiting: Mapping[TaskId, str] = field(default_factory=dict, compare=False)
    """Why a task does not run on its target, one sentence each."""


@dataclass(frozen=True)
class Instructions:
    """The instructions for one worker: its whole assignment, not a difference."""

    tasks: Mapping[TaskId, Role] = field(default_factory=dict)
    """The tasks that it holds. It owns the active ones in Kafka already, as far as is known."""
    release: Mapping[TaskId, str] = field(default_factory=dict)
    """The active tasks that it hands over, with their next owners."""
    take_over: tuple[TakeOver, ...] = ()
    """The tasks that it moves in Kafka, from dead workers or from no owner."""
