"""The inputs and the result of a rollout decision."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

import msgspec

from .observation import ObservedApp, ObservedPod, ObservedWorker
from .status import AppPhase, AppStatus, instant

__all__ = ("RECREATE", "REQUEUE_SOON", "Decision", "Existing", "RolloutState", "WantedWorkers", "pinned_by")

RECREATE = "Recreate"
#: The shortest and the longest time after which a waiting decision is made again.
REQUEUE_SOON, _REQUEUE_LATE = timedelta(seconds=1), timedelta(minutes=1)
#: A rollout that has been waiting for a time t is decided again after t / 20.
_REQUEUE_FRACTION = 20


@dataclass(frozen=True)
class WantedWorkers:
    """The part of the specification that concerns rollouts."""

    revision: str
    replicas: int
    strategy: str = "Rolling"
    min_ready: timedelta = timedelta(seconds=10)
    progress_deadline: timedelta = timedelta(minutes=5)
    auto_rollback: bool = True
    suspended: bool = False
    deleting: bool = False
    """Whether the StreamApp is being deleted, and a finalizer still delays that."""
    kept: frozenset[str] = frozenset()
    """The revisions whose pod templates exist, so that a rollback to them is possible."""
    upgrade: bool = False
    """Whether the revision differs only because this version of the operator renders pods differently."""
    drain: frozenset[str] = frozenset()
    """The workers that a person wants drained."""


@dataclass(frozen=True)
class Existing:
    """The existing StatefulSet."""

    revision: str
    replicas: int
    observed: bool = True
    """Whether its controller has observed the latest generation. Until then it may recreate a deleted pod as it was."""


@dataclass(frozen=True)
class Decision:
    """The next step. It is level-based: deciding again without a change gives the same decision."""

    phase: AppPhase
    revision: str
    """The revision of the StatefulSet's template."""
    replicas: int
    """The replicas of the StatefulSet."""
    status: AppStatus
    """The status to be saved before anything else is done."""
    drain: frozenset[str] = frozenset()
    """The workers to drain; all others take tasks."""
    delete: tuple[ObservedPod, ...] = ()
    """The pods to delete."""
    keep_volumes: bool = False
    """Whether the StatefulSet has to keep the volumes of pods that it removes."""
    requeue_after: timedelta | None = None
    """When time alone may change the decision."""
    events: tuple[tuple[str, str, str], ...] = ()
    """The events to record: type (Normal, Warning), reason, message."""
    waiting: str = ""
    """What the next step waits for, as the end of "waiting for"."""

    @property
    def pinned(self) -> str:
        """The hash of the topology that workers have to run; "" for any topology."""
        return pinned_by(self.status)


def pinned_by(status: AppStatus) -> str:
    """Return the hash of the topology that workers have to run; "" (any) once all have stopped for a `Recreate`."""
    rollout = status.rollout
    recreated = rollout is not None and rollout.strategy == RECREATE and rollout.stopped
    return "" if recreated else status.topology


@dataclass
class RolloutState:
    """The state of one decision while it is made."""

    wanted: WantedWorkers
    existing: Existing | None
    observed: ObservedApp
    status: AppStatus
    now: datetime
    events: list[tuple[str, str, str]] = field(default_factory=list)

    @property
    def workers(self) -> Mapping[str, ObservedWorker]:
        """The workers, by name."""
        return self.observed.workers

    @property
    def recreates(self) -> bool:
        """Whether all workers stop before new ones start. Once new ones may start, a rollback does the same."""
        rollout = self.status.rollout
        if rollout is not None and rollout.strategy == RECREATE and (rollout.stopped or rollout.forced):
            return True
        upgrade = rollout is not None and rollout.upgrade and rollout.revision == self.status.target_revision
        # A new version of the operator does not change the topology, so one worker at a time can restart.
        return self.wanted.strategy == RECREATE and not (self.wanted.upgrade or upgrade)

    def elapsed(self, since: str) -> timedelta:
        """Return the time since a timestamp."""
        return self.now - instant(since, self.now)

    def update(self, **changes: object) -> None:
        """Change fields of the status."""
        self.status = msgspec.structs.replace(self.status, **changes)

    def record(self, reason: str, message: str, type: str = "Normal") -> None:
        """Add an event."""
        self.events.append((type, reason, message))

    def decision(  # noqa: PLR0913 - the fields of a Decision
        self,
        phase: AppPhase,
        revision: str,
        replicas: int,
        *,
        drain: frozenset[str] = frozenset(),
        delete: tuple[ObservedPod, ...] = (),
        keep_volumes: bool = False,
        requeue_after: timedelta | None = None,
        waiting: str = "",
    ) -> Decision:
        """Return a decision with the status and the events so far."""
        if requeue_after is not None:
            rollout = self.status.rollout
            waited = self.elapsed(rollout.started_at) / _REQUEUE_FRACTION if rollout is not None else requeue_after
            requeue_after = min(max(requeue_after, waited), _REQUEUE_LATE) if self.observed.pods else _REQUEUE_LATE
        events = tuple(self.events)
        return Decision(
            phase, revision, replicas, self.status, drain, delete, keep_volumes, requeue_after, events, waiting
        )
