"""What the operator writes down of a StreamApp: its summary for people, and its intent for whoever leads next.

The status is the write-ahead log of the life cycle: what is about to be done stands here before it is done, so that an
operator that starts at any moment goes on where the last one was.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

import msgspec

from millpond_operator.kubernetes import shortened

__all__ = (
    "AppPhase",
    "AppStatus",
    "Bootstrapped",
    "Condition",
    "ConditionType",
    "FailedRevision",
    "KafkaProof",
    "Rendered",
    "RolloutProgress",
    "Scaling",
    "condition",
    "instant",
    "timestamp",
)


_LONGEST = 1_000
"""Of a message: what somebody else wrote in it was cut before, so that the cure at its end stays."""


class AppPhase(StrEnum):
    """What the operator is about, in one word."""

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
    """There only while it is True: workers run with credentials that were changed since they started."""
    SNAPSHOTS_FAILING = "SnapshotsFailing"
    """There only while it is True: snapshots that the StreamApp asks for are not made."""
    STALLED = "Stalled"
    """There only while it is True: nothing goes on by itself (kstatus)."""


class Condition(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """One condition, as Kubernetes has them."""

    type: str
    status: str
    reason: str
    message: str = ""
    last_transition_time: str = ""
    observed_generation: int = 0


class FailedRevision(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A revision that made no progress: it is not tried again unless something about it changes."""

    revision: str
    strategy: str
    reason: str
    message: str


class RolloutProgress(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A rollout under way."""

    revision: str
    strategy: str
    started_at: str
    from_: str = msgspec.field(default="", name="from")
    worker: str = ""
    """Rolling: the worker in hand."""
    worker_since: str = ""
    """Since when it is in hand; Recreate: since when the new workers are let start."""
    restarting: bool = False
    """Rolling: the worker in hand was let go of, and comes back with the new revision."""
    forced: bool = False
    """Its strategy is what it is whatever the StreamApp says: it goes back from where the same strategy had led."""
    stopped: bool = False
    """Recreate: all workers of the old revision have ended."""
    upgrade: bool = False
    """A new version of the operator caused it, not a change of the StreamApp."""


class Scaling(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A scale-in under way: workers beyond `to` are drained first."""

    to: int
    since: str


class Rendered(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """What the specification came to: by it a new version of the operator sees that only it makes the difference."""

    specification: str
    """A digest of what of the specification shows in pods."""
    revision: str


class KafkaProof(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The Kafka cluster that the application's workers reached, and on which its id is its own."""

    cluster_id: str
    since: str
    address: str = ""
    """At which it was reached, spelled as `addresses.py` does."""


class Bootstrapped(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """What is known of the snapshots that a StreamApp asks for."""

    since: str
    """What was due until then is made or given up."""
    schedule: str = ""
    """The schedule and its time zone that this is about."""
    next: str = ""
    """When the next one is due."""
    newest: str = ""
    """The StateBootstrap that was made last."""
    offsets: dict[str, int] = {}
    """Changelog offsets of tasks, summed over their stores, when it was made; empty where no threshold asks for them."""


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
    """The last revision that was seen to work; "" until one was."""
    target_revision: str = ""
    """The revision that should run now."""
    topology: str = ""
    """The hash of that revision's topology."""
    rendered: Rendered | None = None
    kafka: KafkaProof | None = None
    bootstrap: Bootstrapped | None = None
    failed: FailedRevision | None = None
    rollout: RolloutProgress | None = None
    scaling: Scaling | None = None
    conditions: tuple[Condition, ...] = ()

    @classmethod
    def of(cls, raw: Mapping[str, Any] | None) -> AppStatus:
        """The status of an object from the API server; an empty one when it has none or none that can be read."""
        try:
            return msgspec.convert(raw or {}, cls)
        except msgspec.ValidationError:  # written by somebody else: everything in it can be found out again
            return cls()

    def as_object(self) -> dict[str, Any]:
        """The status as the API server takes it."""
        built: dict[str, Any] = msgspec.to_builtins(self)
        # Shown to people even when they are zero.
        built.setdefault("replicas", 0)
        built.setdefault("readyReplicas", 0)
        return built

    def condition(self, type: ConditionType) -> Condition | None:
        """The condition of this type."""
        return next((each for each in self.conditions if each.type == type), None)

    def is_true(self, type: ConditionType) -> bool:
        """Whether the condition of this type is True."""
        found = self.condition(type)
        return found is not None and found.status == "True"


def condition(
    type: ConditionType, status: str, reason: str, message: str, before: AppStatus, generation: int, now: datetime
) -> Condition:
    """Return a condition with a message of bounded length, and since when it has had its status.

    Args:
        type: of the condition.
        status: True, False or Unknown.
        reason: one word.
        message: a sentence or two.
        before: the status so far.
        generation: of the StreamApp.
        now: the time of day.
    """
    last = before.condition(type)
    since = last.last_transition_time if last is not None and last.status == status else timestamp(now)
    return Condition(type.value, status, reason, shortened(message, _LONGEST), since, generation)


def timestamp(now: datetime) -> str:
    """A point in time as Kubernetes writes it: UTC, whole seconds."""
    return now.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def instant(text: str, default: datetime) -> datetime:
    """A point in time read back; `default` when there is none."""
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return default
