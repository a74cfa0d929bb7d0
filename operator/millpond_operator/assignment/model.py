"""What the assignment is computed from, and what comes out of it."""

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
    """`client.tag.*`, e.g. zone and cluster."""
    rack: str | None = None
    """`client.rack`. Where no `rack_aware_tags` are configured, it is the one tag that standbys are spread over."""
    placeable: bool = True
    """Whether it may get tasks. One that drains gets nothing new and loses what it has as soon as possible."""
    leaving: bool = False
    """Its process is about to end: what it has is handed over now, to a warm copy or a cold one. It is not placeable."""


@dataclass(frozen=True)
class Task:
    """One task of the topology."""

    id: TaskId
    stateful: bool
    """Whether it has a store with a changelog: only such a task has copies, and only such a one can be warm or cold."""
    weight: float = 1.0
    """What it costs to run, relative to the others; more than 0."""


@dataclass(frozen=True)
class Copy:
    """A task on a worker, as that worker reports it."""

    role: Role
    state: TaskState
    lag: int | None
    """Changelog records to go, over all stores; None while unknown, which counts as far behind."""
    offset: int
    """Changelog offsets reached, summed over all stores."""


@dataclass(frozen=True)
class AssignmentOptions:
    """The application's settings of the same names in Kafka Streams."""

    standby_replicas: int = 0
    """`num.standby.replicas`: copies of each stateful task beside the active one."""
    max_warm_ups: int = 2
    """`max.warmup.replicas`: copies beyond those that warm up at a time, in the whole application. With 0 nothing
    warms up: tasks move at once and restore where they arrive (KIP-1071)."""
    acceptable_lag: int = 10_000
    """`acceptable.recovery.lag`, in records: a copy that is no further behind is caught up. With 2**63 - 1 every copy
    is, and so is none at all: tasks move at once (KIP-441)."""
    rack_aware_tags: tuple[str, ...] = ()
    """`rack.aware.assignment.tags`: keys of the tags that the copies of a task should differ in (KIP-708)."""


@dataclass(frozen=True)
class Situation:
    """All that is known of an application's tasks and workers."""

    tasks: Mapping[TaskId, Task]
    """Every task of the topology."""
    workers: Mapping[str, AssignableWorker]
    """The live ones."""
    copies: Mapping[str, Mapping[TaskId, Copy]]
    """What each live worker says it holds. A worker that is missing here has not reported yet, and may hold anything."""
    on_disk: Mapping[str, Mapping[TaskId, int]]
    """Tasks that a worker has state of without holding them: the sum of their changelog offsets."""
    owners: Mapping[TaskId, str | None]
    """Who owns a task in Kafka, be it alive or dead. None: nobody. A task that is missing here: not known."""


@dataclass(frozen=True)
class Placement:
    """Which workers hold which tasks. Two of them are equal when they place alike, whatever the reasons."""

    active: Mapping[TaskId, str] = field(default_factory=dict)
    """A task is missing when there is no worker that could have it."""
    standby: Mapping[TaskId, tuple[str, ...]] = field(default_factory=dict)
    """Tasks without standbys are missing."""
    warm_up: Mapping[TaskId, tuple[str, ...]] = field(default_factory=dict)
    """Tasks without warm-ups are missing; so are all of them in a target."""
    waiting: Mapping[TaskId, str] = field(default_factory=dict, compare=False)
    """Why a task does not run where it should run in the end, one sentence each."""


@dataclass(frozen=True)
class Instructions:
    """What one worker is told: the whole of it, not the difference."""

    tasks: Mapping[TaskId, Role] = field(default_factory=dict)
    """What it holds. An active task is its own in Kafka already, as far as is known."""
    release: Mapping[TaskId, str] = field(default_factory=dict)
    """Those of its active tasks that it hands over, with their next owners."""
    take_over: tuple[TakeOver, ...] = ()
    """What it moves in Kafka from workers that are gone, or from nobody."""
