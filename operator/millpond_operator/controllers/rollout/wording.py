"""Wording for conditions and events about workers."""

from __future__ import annotations

from collections.abc import Sequence

from .observation import ObservedPod

__all__ = ("count_workers", "workers_to_end")

_MAX_NAMED = 3


def count_workers(count: int) -> str:
    """Return a number of workers in words: `1 worker`, `2 workers`."""
    return "1 worker" if count == 1 else f"{count} workers"


def workers_to_end(pods: Sequence[ObservedPod]) -> str:
    """Return which workers have to commit and end, by name when there are few: a pod on a lost node never ends."""
    if len(pods) > _MAX_NAMED:
        return f"{count_workers(len(pods))} to commit and end"
    return f"{', '.join(pod.name for pod in pods)} to commit and end"
