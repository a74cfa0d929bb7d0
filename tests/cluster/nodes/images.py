"""The contents of an image, as far as a simulated worker needs them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from millpond.protocol import SubtopologySummary, TopologySummary

__all__ = ("Image", "topology")


def topology(
    partitions: int = 4, *, hash: str = "h1", stateful: bool = True, store: str = "counts", source: str = "flights"
) -> TopologySummary:
    """An application with one sub-topology."""
    stores = (store,) if stateful else ()
    return TopologySummary(hash, (SubtopologySummary(0, partitions, stateful, stores, {source: partitions}),))


@dataclass(frozen=True)
class Image:
    """The behaviour of a container with this image. Durations are in seconds."""

    topology: TopologySummary = topology()
    pull_error: str | None = None
    """Why it cannot be pulled."""
    create_error: str | None = None
    """Why its container cannot be made, e.g. because it has no such command."""
    starts_after: float = 0.05
    """Until the worker's first heartbeat."""
    crash: tuple[str, str] | None = None
    """Its worker ends instead, or `crash_after` later: class and sentence of the error it writes down."""
    crash_after: float = 0.0
    end_hidden_for: float = 0.0
    """How long the status of a restarted pod lacks the last state of its container, as a busy kubelet's may."""
    exit_code: int = 1
    """Of a worker that crashes, and of a clean-up."""
    trouble: tuple[str, str] | None = None
    """Its worker waits instead, for ever: class and sentence of the error that it tells the coordinator."""
    restores_for: float = 0.2
    """To restore a task's state from nothing."""
    processes: bool = True
    """Whether its active tasks ever begin to process."""
    snapshot_after: float = 0.5
    """To make a snapshot, or to fail at it."""
    snapshot_may_end: Callable[[], bool] = lambda: True
    """Whether a snapshot may end after that time: it is asked again and again."""
    takes_over_after: float = 0.05
    """To take tasks over from another owner."""
