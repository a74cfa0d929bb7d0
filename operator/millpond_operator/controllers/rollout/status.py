"""The status of a StreamApp: a summary for people, and the intent for the next leader.

The status is the write-ahead log of the life cycle: a step is saved here before it is taken, so an operator that starts
at any moment continues where the last one stopped.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

import msgspec

from millpond_operator.autoscaling import AutoscalingStatus
from millpond_operator.kubernetes import shortened

__all__ = (
    "AppPhase",
    "AppStatus",
    "Bootstrapped",
    "Condition",
    "ConditionType",
    "Draining",
    "FailedRevision",
    "KafkaProof",
    "Rendered",
    "RolloutProgress",
    "Scaling",
    "condition",
    "instant",
    "timestamp",
)

_MAX_MESSAGE = 1_000
"""The longest message in characters. Quoted texts are shortened before, so the cure at its end is kept."""


class AppPhase(StrEnum):
    """The phase of a StreamApp."""

    PENDING = "Pending"
    RUNNING = "Running"
    ROLLING_OUT = "RollingOut"
    ROLLING_BACK = "RollingBack"
    SCALING = "Scaling"
    SUSPENDING = "Suspending"
    SUSPENDED = "Suspended"
    DEGRADED = "Degraded"
    DELETING = "Deleting"


class ConditionType(StrEnum):
    """The conditions of a StreamApp."""

    READY = "Ready"
    PROGRESSING = "Progressing"
    DEGRADED = "Degraded"
    STANDBYS_CAUGHT_UP = "StandbysCaughtUp"
    SUSPENDED = "Suspended"
    CREDENTIALS_OUTDATED = "CredentialsOutdated"
    """Present only while it is True: credential files have changed since workers started."""
    SNAPSHOTS_FAILING = "SnapshotsFailing"
    """Present only while it is True: snapshots that the StreamApp asks for fail."""
    SCALING_LIMITED = "ScalingLimited"
    """Present only while it is True: the autoscaler wants another number of workers than it may choose."""
    STALLED = "Stalled"
    """Present only while it is True: there is no progress until a person changes something (kstatus)."""


_TYPES = frozenset(each.value for each in ConditionType)


class Condition(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A Kubernetes condition."""

    type: str
    status: str
    reason: str
    message: str = ""
    last_transition_time: str = ""
    observed_generation: int = 0


class FailedRevision(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A revision that failed. It is not tried again until the revision or the strategy changes."""

    revision: str
    strategy: str
    reason: str
    message: str


class RolloutProgress(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A rollout in progress."""

    revision: str
    strategy: str
    started_at: str
    from_: str = msgspec.field(default="", name="from")
    worker: str = ""
    """Rolling: the current worker."""
    worker_since: str = ""
    """Rolling: when the current worker was chosen or deleted; Recreate: when the new workers were allowed to start."""
    restarting: bool = False
    """Rolling: whether the current worker's pod was deleted, so that it starts with the new revision."""
    forced: bool = False
    """Whether the strategy is fixed, whatever the StreamApp says: a rollback uses that of the failed rollout."""
    stopped: bool = False
    """Recreate: whether all workers of the old revision have ended."""
    upgrade: bool = False
    """Whether a new version of the operator caused it, not a change of the StreamApp."""


class Scaling(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A scale-in in progress: workers with ordinals of `to` and above are drained first."""

    to: int
    since: str


class Draining(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Workers that the annotation `millpond.dev/drain` asks to drain."""

    workers: tuple[str, ...]
    since: str
    drained: tuple[str, ...] = ()
    """Those of them that run no task."""
    message: str = ""
    """Why they are not drained now; "" while they are."""

    @property
    def finished(self) -> bool:
        """Whether none of them runs a task."""
        return self.drained == self.workers


class Rendered(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The revision of a specification. If the same specification gives another one, the operator was upgraded."""

    specification: str
    """The digest of those fields of the specification that show in pods."""
    revision: str


class KafkaProof(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The Kafka cluster that the application's workers reached, where the application id is this StreamApp's."""

    cluster_id: str
    since: str
    address: str = ""
    """The address at which it was reached, as `broker_addresses` spells it."""


class Bootstrapped(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The state of the snapshots that a StreamApp asks for."""

    since: str
    """Snapshots that were due up to then have been created or given up."""
    schedule: str = ""
    """The schedule and its time zone that `since` is about."""
    next: str = ""
    """When the next one is due."""
    newest: str = ""
    """The newest StateBootstrap."""
    offsets: dict[str, int] = {}
    """The changelog offsets of tasks when it was created, summed over their stores; only with `whenReplayExceeds`."""


class AppStatus(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The status of a StreamApp."""

    observed_generation: int = 0
    leader_epoch: int = 0
    phase: str = ""
    selector: str = ""
    replicas: int = 0
    ready_replicas: int = 0
    workers: str = ""
    tasks: str = ""
    image: str = ""
    current_revision: str = ""
    """The last revision that worked; "" until one did."""
    target_revision: str = ""
    """The revision that should run now."""
    topology: str = ""
    """The hash of that revision's topology."""
    rendered: Rendered | None = None
    kafka: KafkaProof | None = None
    bootstrap: Bootstrapped | None = None
    autoscaling: AutoscalingStatus | None = None
    failed: FailedRevision | None = None
    rollout: RolloutProgress | None = None
    scaling: Scaling | None = None
    draining: Draining | None = None
    conditions: tuple[Condition, ...] = ()

    @classmethod
    def of(cls, raw: Mapping[str, Any] | None) -> AppStatus:
        """Return the status of an API server object; an empty one when it has none or an invalid one.

        Conditions of other programs are left out.
        """
        try:
            found = msgspec.convert(raw or {}, cls)
        except msgspec.ValidationError:  # not written by the operator; its content can be observed again
            return cls()
        own = tuple(each for each in found.conditions if each.type in _TYPES)
        return found if len(own) == len(found.conditions) else msgspec.structs.replace(found, conditions=own)

    def as_object(self) -> dict[str, Any]:
        """Return the status as JSON values."""
        built: dict[str, Any] = msgspec.to_builtins(self)
        # The printer columns show them even when they are zero.
        built.setdefault("replicas", 0)
        built.setdefault("readyReplicas", 0)
        return built

    @property
    def drained(self) -> tuple[str, ...]:
        """The workers that get no tasks because a person wants them drained."""
        return self.draining.workers if self.draining is not None and not self.draining.message else ()

    def condition(self, type: ConditionType) -> Condition | None:
        """Return the condition of a type; None when there is none."""
        return next((each for each in self.conditions if each.type == type), None)

    def is_true(self, type: ConditionType) -> bool:
        """Return whether the condition of a type is True."""
        found = self.condition(type)
        return found is not None and found.status == "True"


def condition(  # noqa: PLR0913 - the fields of a condition
    type: ConditionType, status: str, reason: str, message: str, before: AppStatus, generation: int, now: datetime
) -> Condition:
    """Return a condition with a message of limited length and its last transition time.

    Args:
        type: the condition's type.
        status: True, False or Unknown.
        reason: one word.
        message: one or two sentences.
        before: the status so far.
        generation: the generation of the StreamApp.
        now: the current time.
    """
    last = before.condition(type)
    since = last.last_transition_time if last is not None and last.status == status else timestamp(now)
    return Condition(type.value, status, reason, shortened(message, _MAX_MESSAGE), since, generation)


def timestamp(now: datetime) -> str:
    """Return a time as Kubernetes writes it: UTC, whole seconds."""
    return now.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def instant(text: str, default: datetime) -> datetime:
    """Parse a timestamp; return `default` when it is empty or invalid."""
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return default
