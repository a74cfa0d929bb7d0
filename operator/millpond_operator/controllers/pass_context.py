"""What one pass over a StreamApp works with, and what the next one should still know."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta

from millpond_operator.controllers.rollout.observation import ObservedApp
from millpond_operator.controllers.rollout.pod_problems import Problem
from millpond_operator.controllers.rollout.status import AppStatus
from millpond_operator.kubernetes import Object
from millpond_operator.resources import StreamApp

__all__ = ("Key", "Memory", "ReconcilePass", "sooner")

Key = tuple[str, str]


@dataclass
class Memory:
    """What is remembered of one StreamApp from pass to pass; nothing that must outlive the operator."""

    uid: str = ""
    """Of the StreamApp; "" until a pass began to look at it."""
    served_since: datetime | None = None
    """Since when its coordinator has been here; None while it has none."""
    rejected: Problem | None = None
    """What the API server did not take at the last pass."""
    reached: tuple[str, ...] = ()
    """The Kafka clusters that workers reached last which were not let in because of that."""
    stunted: Problem | None = None
    """Why its volumes cannot grow."""
    asked_at: datetime | None = None
    """When events were asked for last,"""
    told: dict[str, Problem] = field(default_factory=dict)
    """and what they told, by name of the pod."""
    missing_since: datetime | None = None
    """Since when pods are missing that should be there,"""
    missed_at: datetime | None = None
    """when events were asked for why,"""
    missing: dict[str, Problem] = field(default_factory=dict)
    """and what they told, by name of the pod."""


@dataclass
class ReconcilePass:
    """What one pass works with."""

    app: StreamApp
    status: AppStatus
    now: datetime
    memory: Memory
    template: Object = field(default_factory=dict)
    revision: str = ""
    """That is wanted for now, and its pod template. It may be an earlier one, while an upgrade waits."""
    specification: str = ""
    """The digest of what of the StreamApp shows in pods."""
    upgrade: bool = False
    """The revision is another one because of the operator's version."""
    upgrade_waits: bool = False
    """It would be another one, and others come first."""
    observed: ObservedApp = ObservedApp()
    snapshots: Problem | None = None
    """Why snapshots that it asks for are not made."""
    taken: Problem | None = None
    """Its applicationId is another StreamApp's."""
    again: timedelta | None = None
    events: list[tuple[str, str, str]] = field(default_factory=list)
    """What was seen and is to be told: type, reason, sentence."""

    @property
    def name(self) -> str:
        """Of the application, as people write it."""
        return f"{self.app.namespace}/{self.app.name}"

    def come_again(self, after: timedelta) -> None:
        """Another pass is due then, or earlier."""
        self.again = sooner(self.again, after)


def sooner(one: timedelta | None, other: timedelta | None) -> timedelta | None:
    """Return the shorter of two times; None stands for never."""
    return min((each for each in (one, other) if each is not None), default=None)
