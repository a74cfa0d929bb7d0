"""Requests to drain workers: the annotation `millpond.dev/drain` of a StreamApp, which the operator obeys."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any

from millpond.errors import MillpondError

from .client import Cluster, Object
from .failures import Conflict
from .overview import wanted_workers

__all__ = ("DRAIN", "annotation", "change", "requested", "worker_named", "workers_of")

DRAIN = "millpond.dev/drain"
"""The annotation: names of workers, separated by commas."""

_ATTEMPTS = 5


def requested(app: Mapping[str, Any]) -> list[str]:
    """Return the workers that a StreamApp's annotation names."""
    text = (app["metadata"].get("annotations") or {}).get(DRAIN) or ""
    return [each for part in text.split(",") if (each := part.strip())]


def workers_of(app: Mapping[str, Any]) -> list[str]:
    """Return the names of a StreamApp's wanted workers."""
    return [f"{app['metadata']['name']}-{number}" for number in range(wanted_workers(app))]


def worker_named(app: Mapping[str, Any], text: str) -> str:
    """Return the worker of a name or an ordinal.

    Raises:
        MillpondError: there is none.
    """
    workers, name = workers_of(app), app["metadata"]["name"]
    for each in workers:
        if text in {each, each.rpartition("-")[2]}:
            return each
    near = difflib.get_close_matches(text, workers, n=1, cutoff=0.8)
    hint = f"did you mean '{near[0]}'?" if near else f"it has: {', '.join(workers) or 'none'}."
    raise MillpondError(f"StreamApp '{name}' has no worker '{text}': {hint}")


def annotation(app: Mapping[str, Any], worker: str | None, *, undo: bool) -> str | None:
    """Return the annotation's new value; None to remove it.

    Args:
        app: the StreamApp.
        worker: the worker to add or remove; None to remove all.
        undo: whether to remove it.

    Raises:
        MillpondError: no worker would be left for the tasks.
    """
    kept = [each for each in requested(app) if each != worker and worker is not None]
    wanted = kept if undo or worker is None else sorted({*kept, worker})
    if not undo and {*workers_of(app)} <= {*wanted}:
        others = [each for each in wanted if each != worker]
        why = f"the others are drained already: {', '.join(others)}" if others else "it is the only one"
        raise MillpondError(
            f"cannot drain '{worker}', since no other worker could take its tasks: {why}. Scale out, or undo another "
            "drain, first."
        )
    return ",".join(wanted) or None


def change(cluster: Cluster, app: Object, worker: str | None, *, undo: bool) -> Object:
    """Change the annotation of a StreamApp; return the StreamApp.

    Raises:
        MillpondError: no worker would be left for the tasks.
        ClusterError: the StreamApp cannot be changed.
    """
    metadata = app["metadata"]
    for attempt in range(_ATTEMPTS):
        value = annotation(app, worker, undo=undo)
        if value == (metadata.get("annotations") or {}).get(DRAIN):
            return app
        patch = {"metadata": {"annotations": {DRAIN: value}, "resourceVersion": metadata["resourceVersion"]}}
        try:
            return cluster.patch_stream_app(metadata["namespace"], metadata["name"], patch)
        except Conflict:  # the operator writes the status now and then
            if attempt == _ATTEMPTS - 1:
                raise
            app = cluster.stream_app(metadata["namespace"], metadata["name"])
            metadata = app["metadata"]
    raise AssertionError
