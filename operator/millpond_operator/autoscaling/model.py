"""The inputs and the result of the autoscaler."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Literal, NamedTuple

import msgspec

from millpond.protocol.loads import WorkerLoad

__all__ = (
    "AUTO",
    "RECOMMEND",
    "AutoscalingStatus",
    "Policy",
    "Reason",
    "ReportedLoad",
    "Situation",
    "past",
    "timestamp",
)

AUTO: Literal["Auto"] = "Auto"
RECOMMEND: Literal["Recommend"] = "Recommend"


class Reason(StrEnum):
    """Why the autoscaler recommends what it recommends."""

    STEADY = "Steady"
    """The number of workers fits."""
    SCALE_OUT = "ScaleOut"
    """More workers are needed."""
    SCALE_IN = "ScaleIn"
    """Fewer workers suffice."""
    STABILIZING = "Stabilizing"
    """Fewer workers seem to suffice, and the load is watched for a while before workers go."""
    CATCHING_UP = "CatchingUp"
    """Fewer workers suffice for the records that arrive, and all are kept while lag is worked off."""
    AT_MAX = "AutoscalerAtMax"
    """More workers are needed than `maxReplicas` or the number of tasks allows."""
    HOT_TASK = "HotTask"
    """Tasks cannot be divided, and one worker with the fewest possible tasks has too much to do."""
    BUDGET_SPENT = "RescaleBudgetSpent"
    """Another number of workers is needed, and the rescales of the day are used up."""
    SETTLING = "Settling"
    """Workers or tasks move, so rates mean nothing yet."""
    UNMEASURED = "Unmeasured"
    """Rates are not known."""
    IDLE = "Idle"
    """No records arrive, so rates are not known."""
    CONFLICT = "AutoscalerConflict"
    """Another autoscaler sets the number of workers."""
    DISABLED = "Disabled"
    """No workers are wanted."""


@dataclass(frozen=True)
class Policy:
    """What a StreamApp asks of the autoscaler: `spec.autoscaling`."""

    min_replicas: int = 1
    max_replicas: int = 10
    target_lag: timedelta = timedelta(seconds=30)
    """The lag, as time that records wait, up to which nothing has to be done about it."""
    target_utilization: float = 0.7
    """The share of its time that the busiest worker should spend on the records that arrive, 0 to 1."""
    stabilization: timedelta = timedelta(minutes=5)
    """For how long fewer workers must have sufficed before workers go; also the time in which lag is worked off."""
    rescales_per_day: int = 4
    mode: Literal["Auto", "Recommend"] = AUTO

    @property
    def catch_up(self) -> timedelta:
        """The time in which lag above the target should be worked off."""
        return max(self.target_lag, self.stabilization)

    @property
    def reserve(self) -> int:
        """Rescales of a day beyond the budget, for scale-outs while the target lag is in danger."""
        return math.ceil(self.rescales_per_day / 2)


class ReportedLoad(NamedTuple):
    """The load that a worker reported last."""

    incarnation: str
    """Different for each start of the worker's process, whose counters begin at zero."""
    load: WorkerLoad


@dataclass(frozen=True)
class Situation:
    """What the operator knows about the application besides the load."""

    spec_replicas: int
    """`spec.replicas`."""
    tasks: Mapping[int, int]
    """The number of tasks of each sub-topology; empty while the topology is not known."""
    unsteady: str = ""
    """Why rates mean nothing now, as a clause: `workers restart`. "" while workers and tasks stay where they are."""
    conflict: str = ""
    """The name of another autoscaler that sets `spec.replicas`; "" for none."""


class AutoscalingStatus(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The state of the autoscaler: `status.autoscaling`. All that has to survive a restart of the operator."""

    mode: str = ""
    current_replicas: int = 0
    """The number of workers that is wanted now. In mode Auto this decides, not `spec.replicas`."""
    recommended_replicas: int = 0
    """The number of workers that the autoscaler thinks right; what it does at once in mode Auto."""
    max_replicas: int = 0
    """The largest number of workers that it may choose: of `maxReplicas` and the number of tasks."""
    spec_replicas: int = 0
    """The `spec.replicas` that was seen last: a change of it is a request of a person."""
    reason: str = ""
    message: str = ""
    limited: bool = False
    """Whether another number of workers is needed and not allowed."""
    last_scale_time: str = ""
    rescales_today: int = 0
    """The number of rescales in the last 24 hours."""
    rescales: tuple[str, ...] = ()
    """The times of these rescales."""


def timestamp(now: datetime) -> str:
    """Return a time as Kubernetes writes it: UTC, whole seconds."""
    return now.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def past(text: str, now: datetime) -> datetime | None:
    """Parse a timestamp; return None when it is empty or invalid.

    A later time than now, of a clock that was ahead, counts as now.
    """
    try:
        found = datetime.fromisoformat(text)
        return None if found.tzinfo is None else min(found.astimezone(UTC), now)
    except (ValueError, OverflowError):  # a time of the year 1 or 9999 may not exist in UTC
        return None
