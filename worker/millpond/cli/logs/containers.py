"""The containers whose logs are read: pure functions of pods as the API server shows them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from millpond.times import parse_epoch_ms

__all__ = ("CONTAINER", "Container", "container_of", "task_worker")

CONTAINER = "worker"
"""The container of the application in a worker's pod."""


@dataclass(frozen=True)
class Container:
    """The container of a worker, and how its predecessor ended."""

    worker: str
    uid: str
    """The uid of the pod."""
    instance: str
    """A different text for each start of the container."""
    running: bool
    has_log: bool
    """Whether a container was started, so that there is a log."""
    waits_for: str = ""
    """Why it does not run, by Kubernetes."""
    crash: str = ""
    """How the container before this one ended; "" if it is the first one, or does not run itself."""
    crashed_ms: int = 0
    """When it ended, epoch ms."""


def container_of(pod: Mapping[str, Any]) -> Container:
    """Return the container of a worker's pod."""
    found: Mapping[str, Any] = next(
        (each for each in pod.get("status", {}).get("containerStatuses", ()) if each.get("name") == CONTAINER), {}
    )
    state, last = found.get("state") or {}, (found.get("lastState") or {}).get("terminated") or {}
    running = bool(state.get("running"))
    ended = state.get("terminated") or {}
    waiting = state.get("waiting") or {}
    crashed = running and last
    return Container(
        worker=pod["metadata"]["name"],
        uid=pod["metadata"]["uid"],
        instance=f"{pod['metadata']['uid']} {found.get('restartCount', 0)} {'' if running else 'ended'}",
        running=running,
        has_log=bool(running or last or ended),
        waits_for=""
        if running
        else _why(ended) or waiting.get("message") or waiting.get("reason") or "not started yet",
        crash=_why(last) if crashed else "",
        crashed_ms=_ms(last.get("finishedAt")) if crashed else 0,
    )


def task_worker(assignment: Mapping[str, Any], task: str) -> str:
    """Return the worker that a task is assigned to, by a StreamAssignment; "" if there is none."""
    workers = assignment.get("spec", {}).get("workers", ())
    return next((str(each["name"]) for each in workers if task in each.get("active", ())), "")


def _why(ended: Mapping[str, Any]) -> str:
    return f"{ended.get('reason') or 'ended'} (status {ended.get('exitCode')})" if ended else ""


def _ms(text: str | None) -> int:
    try:
        return parse_epoch_ms(text or "")
    except ValueError:
        return 0
