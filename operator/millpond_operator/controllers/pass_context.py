"""The context of one reconcile pass over a StreamApp, and the memory that passes share."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta

from millpond_operator.autoscaling import Autoscaler
from millpond_operator.controllers.rollout.observation import ObservedApp
from millpond_operator.controllers.rollout.problems import Problem
from millpond_operator.controllers.rollout.status import AppStatus
from millpond_operator.controllers.rollout.worker_failures import WorkerFailure
from millpond_operator.kubernetes import Object
from millpond_operator.resources import StreamApp

__all__ = ("AppMemory", "Key", "ReconcilePass", "sooner")

Key = tuple[str, str]
"""The namespace and name of a StreamApp."""


@dataclass
class AppMemory:
    """The memory of one StreamApp between passes. A new leader can do without it."""

    uid: str = ""
    """The uid of the StreamApp; "" until its first pass."""
    served_since: datetime | None = None
    """When this coordinator began to serve its workers; None while it does not."""
    rejection: Problem | None = None
    """What the API server rejected in the last pass."""
    reached_clusters: tuple[str, ...] = ()
    """The ids of Kafka clusters because of which workers are not admitted."""
    apply_problem: Problem | None = None
    """Why its volumes cannot grow, or its objects are not as they were applied."""
    mounts_checked_at: datetime | None = None
    """When events about pods without containers were last read."""
    mount_problems: dict[str, Problem] = field(default_factory=dict)
    """The problems that these events report, by name of the pod."""
    missing_since: datetime | None = None
    """Since when pods are missing."""
    missing_checked_at: datetime | None = None
    """When events were last read for missing pods."""
    missing_problems: dict[str, Problem] = field(default_factory=dict)
    """The problems that these events report, by name of the pod."""
    failures: dict[str, WorkerFailure] = field(default_factory=dict)
    """The failures of workers that have not been ready since, by name of the worker."""
    autoscaler: Autoscaler | None = None
    """Has the measurements of the last minutes."""
    led: bool = False
    """Whether no other operator with a later epoch had written its status when this one saw it."""
    shared_since: datetime | None = None
    """Since when another operator has served it, too."""
    looked_at: datetime | None = None
    """When the last pass began."""


@dataclass
class ReconcilePass:
    """The context of one pass."""

    app: StreamApp
    status: AppStatus
    """The status as it was last written."""
    now: datetime
    memory: AppMemory
    template: Object = field(default_factory=dict)
    """The pod template of `revision`."""
    revision: str = ""
    """The revision that is wanted for now; the former one while an upgrade waits."""
    specification: str = ""
    """The digest of those fields of the StreamApp that show in pods."""
    upgrade: bool = False
    """Whether the revision differs only because of the operator's version."""
    upgrade_waits: bool = False
    """Whether such a revision waits for the restarts of other StreamApps."""
    observed: ObservedApp = ObservedApp()
    snapshot_problem: Problem | None = None
    """Why snapshots that the StreamApp asks for fail."""
    autoscaling_problem: Problem | None = None
    """Why the autoscaler only recommends, although it should act."""
    id_conflict: Problem | None = None
    """Why the StreamApp must not use its applicationId: another StreamApp does."""
    requeue_after: timedelta | None = None
    """After which time another pass is due; None to wait for a change."""
    events: list[tuple[str, str, str]] = field(default_factory=list)
    """The events to record: type, reason, message."""

    @property
    def name(self) -> str:
        """The application as people write it: `namespace/name`."""
        return f"{self.app.namespace}/{self.app.name}"

    def requeue(self, after: timedelta) -> None:
        """Request another pass after a time, or earlier."""
        self.requeue_after = sooner(self.requeue_after, after)


def sooner(one: timedelta | None, other: timedelta | None) -> timedelta | None:
    """Return the shorter of two times; None stands for never."""
    return min((each for each in (one, other) if each is not None), default=None)
