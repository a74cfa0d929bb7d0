"""What an application does now, in one document: the console, `millpond status` and `millpond dev` show it.

The operator serves it for applications on Kubernetes, `millpond dev` for a session on one machine. Times are epoch
milliseconds. Figures that are unknown are None.
"""

from __future__ import annotations

import msgspec

__all__ = (
    "ApplicationOverview",
    "ApplicationSummary",
    "AutoscalingOverview",
    "ConditionOverview",
    "CopyOverview",
    "EdgeOverview",
    "EventOverview",
    "MoveOverview",
    "NodeOverview",
    "TaskOverview",
    "TopologyOverview",
    "WorkerOverview",
)


class ConditionOverview(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A condition of a StreamApp."""

    type: str
    status: str
    reason: str = ""
    message: str = ""
    since_ms: int = 0
    """When the status last changed."""


class EventOverview(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Something that happened, newest first in lists."""

    at_ms: int
    reason: str
    text: str
    warning: bool = False
    count: int = 1


class CopyOverview(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A standby or a warm-up of a task."""

    worker: str
    state: str = ""
    """`restoring` or `running`; "" while the worker does not hold it yet."""
    lag: int | None = None
    """Changelog records."""


class TaskOverview(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One task."""

    task: str
    worker: str = ""
    """The worker that holds it; before that, the worker that it is assigned to; "" for none."""
    owner: str = ""
    """The owner by Kafka's offset metadata; "" while unknown."""
    state: str = ""
    """`acquiring`, `restoring`, `running` or `releasing`; "" while no worker holds it."""
    records_per_second: float | None = None
    lag: int | None = None
    """Records that its inputs have and that it has not processed."""
    lag_seconds: float | None = None
    """The time that the lag takes at the present rate of processing, in seconds; None while nothing is processed."""
    restoring: int | None = None
    """Changelog records to restore before it runs."""
    standbys: tuple[CopyOverview, ...] = ()
    warm_ups: tuple[CopyOverview, ...] = ()
    note: str = ""
    """Why it does not run yet, or what it waits for."""


class MoveOverview(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A task on its way to another worker."""

    task: str
    source: str = ""
    """The present owner; "" if there is none."""
    target: str = ""
    reason: str = ""
    """What the move waits for."""
    lag: int | None = None
    """Changelog records that the copy on the target is behind."""


class WorkerOverview(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One worker."""

    worker: str
    state: str
    """`alive`, `draining`, `starting` or `gone`."""
    active: int = 0
    standby: int = 0
    warm_up: int = 0
    records_per_second: float | None = None
    utilisation: float | None = None
    """Share of the time that its loop processes and commits, 0 to 1."""
    lag: int | None = None
    restoring: int = 0
    """Store copies that restore."""
    silent_ms: int = 0
    node: str = ""
    """The Kubernetes node; "" elsewhere."""
    revision: str = ""
    volume_used: float | None = None
    """Share of the volume with the state that is in use, 0 to 1."""
    trouble: str = ""


class NodeOverview(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A node of the drawn topology."""

    name: str
    """Unique in the drawing: `topic NAME` under the name in Kafka, `store NAME`, or the name of the source, processor
    or sink."""
    kind: str
    """`topic`, `processor`, `store`."""
    subtopology: int | None = None
    label: str = ""
    """The name of the topic, store, source, processor or sink."""


class EdgeOverview(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An edge of the drawn topology; edges from topics have a rate and a lag."""

    source: str
    target: str
    topic: str = ""
    records_per_second: float | None = None
    lag: int | None = None


class TopologyOverview(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The topology with live figures."""

    nodes: tuple[NodeOverview, ...] = ()
    edges: tuple[EdgeOverview, ...] = ()


class AutoscalingOverview(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the autoscaler recommends."""

    mode: str
    """`Auto` or `Recommend`."""
    current: int = 0
    recommended: int = 0
    reason: str = ""
    rescales_left: int | None = None
    """How many rescales the budget of the day still allows."""


class ApplicationSummary(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One row in the list of applications."""

    name: str
    namespace: str = ""
    phase: str = ""
    ready: bool = False
    degraded: str = ""
    """The reason of `Degraded`; "" if it is not degraded."""
    message: str = ""
    workers_ready: int = 0
    workers_wanted: int = 0
    tasks_running: int = 0
    tasks_total: int = 0
    records_per_second: float | None = None
    lag: int | None = None
    """Records that inputs have and that no task has processed."""
    lag_seconds: float | None = None
    """The longest of its tasks, in seconds; None while a task with a lag processes nothing."""


class ApplicationOverview(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Everything about one application that a person looks at."""

    summary: ApplicationSummary
    drawing: str = ""
    """A digest of the drawn topology: the picture changes only with it."""
    application_id: str = ""
    guarantee: str = ""
    image: str = ""
    revision: str = ""
    epoch: str = ""
    """Term and number of the assignment."""
    conditions: tuple[ConditionOverview, ...] = ()
    events: tuple[EventOverview, ...] = ()
    workers: tuple[WorkerOverview, ...] = ()
    tasks: tuple[TaskOverview, ...] = ()
    moves: tuple[MoveOverview, ...] = ()
    topology: TopologyOverview | None = None
    autoscaling: AutoscalingOverview | None = None
    at_ms: int = 0
    """When this was put together."""
