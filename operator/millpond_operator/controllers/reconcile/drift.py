"""Reverts changes by other clients to the operator's objects, and reports a problem when a change is repeated.

Applying an object again restores fields that were changed or removed. A patch of the very version that was read removes
fields that were added.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from millpond.protocol import clock
from millpond_operator.controllers.rollout.problems import Problem
from millpond_operator.kubernetes import Cache, Client, Invalid, Kind, Object
from millpond_operator.resources import FIELD_MANAGER, StreamApp, additions

__all__ = ("Drift",)

log = logging.getLogger(__name__)

#: A client that adds the same fields again sooner does so automatically; they are not removed more often than this.
_REMOVAL_INTERVAL_S = 50.0

_Key = tuple[str, str]


@dataclass(frozen=True)
class _Removal:
    """The last removal of added fields from one object."""

    fields: tuple[str, ...]
    at: float
    problem: Problem | None = None
    """Why it did not last."""


class Drift:
    """Reverts changes by other clients to the objects of applications.

    Args:
        client: patches objects.
        cache: gets the patched objects.
        clock: returns monotonic seconds.
    """

    def __init__(self, client: Client, cache: Cache, clock: Callable[[], float] = clock.monotonic) -> None:
        self._client = client
        self._cache = cache
        self._clock = clock
        self._removals: dict[_Key, dict[tuple[str, str], _Removal]] = {}
        self._events: dict[_Key, list[tuple[str, str, str]]] = {}

    def forget(self, namespace: str, name: str) -> None:
        """Forget a deleted StreamApp."""
        self._removals.pop((namespace, name), None)
        self._events.pop((namespace, name), None)

    def problem(self, app: StreamApp) -> Problem | None:
        """Return the problem of fields that another client adds repeatedly; None when there is none."""
        removals = self._removals.get((app.namespace, app.name), {}).values()
        return next((each.problem for each in removals if each.problem is not None), None)

    def take_events(self, app: StreamApp) -> list[tuple[str, str, str]]:
        """Return the events since the last call: type, reason, message."""
        return self._events.pop((app.namespace, app.name), [])

    async def remove_additions(self, app: StreamApp, kind: Kind, manifest: Object, existing: Object) -> Object:
        """Remove the fields that other clients added to an object.

        Args:
            app: the StreamApp of the object.
            kind: the kind of the object.
            manifest: the wanted object.
            existing: the object as it was read.

        Returns:
            The current object.

        Raises:
            Conflict: the object changed meanwhile.
            ApiError: it cannot be patched.
        """
        name = manifest["metadata"]["name"]
        removals = self._removals.setdefault((app.namespace, app.name), {})
        found, last, now = additions(manifest, existing), removals.get((kind.kind, name)), self._clock()
        if found is None:
            if last is not None and now >= last.at + _REMOVAL_INTERVAL_S:
                del removals[kind.kind, name]
            return existing
        who = ", ".join(f"'{manager}'" for manager in found.managers)
        problem = None
        if last is not None and last.fields == found.fields:
            problem = Problem(
                "FieldsAdded",
                f"{who} adds {found} to {kind} '{name}' again whenever the operator removes it: stop that, or set it "
                "in the StreamApp.",
                persistent=True,
            )
            if now < last.at + _REMOVAL_INTERVAL_S:
                removals[kind.kind, name] = _Removal(last.fields, last.at, problem)
                return existing
        guard = {"op": "replace", "path": "/metadata/resourceVersion", "value": existing["metadata"]["resourceVersion"]}
        try:
            existing = await self._client.patch(kind, app.namespace, name, [guard, *found.patch])
        except Invalid as error:
            rejected = Problem(
                "FieldsAdded",
                f"{who} added {found} to {kind} '{name}', and the API server rejects its removal: {error}",
                persistent=True,
            )
            removals[kind.kind, name] = _Removal(found.fields, now, rejected)
            return existing
        removals[kind.kind, name] = _Removal(found.fields, now, problem)
        self._cache.put(kind, existing)
        self._record(app, f"{who} added {found} to {kind} '{name}'; the operator removed it: set it in the StreamApp.")
        return existing

    def report_revert(self, app: StreamApp, kind: Kind, manifest: Object, existing: Object) -> None:
        """Record an event that an object is applied again because another client changed it.

        Args:
            app: the StreamApp of the object.
            kind: the kind of the object.
            manifest: the wanted object.
            existing: the object as it was read.
        """
        entries = existing["metadata"].get("managedFields") or ()
        managers = sorted({each.get("manager", "") for each in entries} - {FIELD_MANAGER})
        # The API server notes no manager of scaling to 0. Other changes without a manager are a webhook's or another
        # leader's.
        scaled = manifest.get("spec", {}).get("replicas") != existing.get("spec", {}).get("replicas")
        if managers or scaled:
            who = ", ".join(f"'{manager}'" for manager in managers) or "Another client"
            name = existing["metadata"]["name"]
            self._record(app, f"{who} changed {kind} '{name}'; the operator reverts it: change the StreamApp instead.")

    def _record(self, app: StreamApp, message: str) -> None:
        log.warning("StreamApp %s/%s: %s", app.namespace, app.name, message)
        self._events.setdefault((app.namespace, app.name), []).append(("Warning", "ChangeUndone", message))
