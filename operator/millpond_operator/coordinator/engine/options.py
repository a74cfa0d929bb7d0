"""Settings of the coordination of one application."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from millpond_operator.assignment import AssignmentOptions

__all__ = ("MOST_TASKS", "EngineOptions", "KafkaClaim")

#: A topology with more tasks counts as a mistake.
MOST_TASKS = 1_000_000


@dataclass(frozen=True)
class KafkaClaim:
    """The Kafka cluster on which an application owns its id.

    An application is identified by its id and its Kafka cluster, however the brokers' addresses are written. Workers
    report the cluster that they reach, and get tasks only if it is the claimed one.
    """

    cluster: str = ""
    """The id of the cluster; "" while none is claimed: workers wait, and `Engine.reached_clusters` has their
    clusters."""
    refusal: str = ""
    """Why no worker is admitted, with cause and cure; "" otherwise."""


@dataclass(frozen=True, kw_only=True)
class EngineOptions:
    """Settings of the coordination of one application."""

    assignment: AssignmentOptions = AssignmentOptions()
    session_timeout: timedelta = timedelta(seconds=6)
    """A worker without a heartbeat for this long counts as dead."""
    reconnect_timeout: timedelta = timedelta(seconds=1)
    """A worker whose connection broke counts as dead if it sends no heartbeat within this time, which makes the death
    of a process known at once. At most the session timeout. If the network fails for longer, tasks move needlessly."""
    return_timeout: timedelta = timedelta(0)
    """How long the workers of the last assignment have, at least, to find a restarted coordinator."""
    gathering: timedelta = timedelta(milliseconds=500)
    """How long a new application waits for further workers before its first assignment; four times that at most."""
    pinned: str = ""
    """The hash of the only topology that is admitted. With "", the topology of the live workers is; any, if there are
    none."""
    claim: KafkaClaim | None = None
    """The Kafka cluster that workers have to be on; None for any, where no other application can have this id."""
    most_tasks: int = MOST_TASKS
    """Topologies with more tasks are rejected."""
    latest_term: int | None = None
    """No later coordinator can have this term or a greater one, whatever workers report; None to believe them."""
