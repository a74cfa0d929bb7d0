"""Words about workers, for conditions and events."""

from __future__ import annotations

from collections.abc import Sequence

from .observation import ObservedPod

__all__ = ("count_workers", "workers_to_end")

_MOST_NAMED = 3


def count_workers(count: int) -> str:
    """Return so many workers, in words."""
    return "1 worker" if count == 1 else f"{count} workers"


def workers_to_end(pods: Sequence[ObservedPod]) -> str:
    """Return what has to end; by name when there are few, since a pod on a lost node never ends by itself."""
    if len(pods) > _MOST_NAMED:
        return f"{count_workers(len(pods))} to commit and end"
    return f"{', '.join(pod.name for pod in pods)} to commit and end"
