"""Changes that somebody else made to the operator's objects: they are undone and told, and named as a problem when they return.

What was changed or removed, applying puts back. What was added is taken out by a patch of the very version that was looked at.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from millpond.protocol import clock
from millpond_operator.controllers.rollout.pod_problems import Problem
from millpond_operator.kubernetes import Cache, Client, Invalid, Kind, Object
from millpond_operator.resources import FIELD_MANAGER, StreamApp, additions

__all__ = ("Drift",)

log = logging.getLogger(__name__)

#: Whoever adds the same again sooner than this does so by itself, and is not fought more often.
_AGAIN_S = 50.0

_Key = tuple[str, str]


@dataclass(frozen=True)
class _Undone:
    """What was taken out of one object last."""

    fields: tuple[str, ...]
    at: float
    problem: Problem | None = None
    """Why that was in vain."""


class Drift:
    """Undoes what others do to the objects of applications.

    Args:
        client: to write with.
        cache: gets what is written.
        clock: any that only goes forward, in seconds.
    """

    def __init__(self, client: Client, cache: Cache, clock: Callable[[], float] = clock.monotonic) -> None:
        self._client = client
        self._cache = cache
        self._clock = clock
        self._undone: dict[_Key, dict[tuple[str, str], _Undone]] = {}
        self._told: dict[_Key, list[tuple[str, str, str]]] = {}

    def forget(self, namespace: str, name: str) -> None:
        """The application is gone."""
        self._undone.pop((namespace, name), None)
        self._told.pop((namespace, name), None)

    def problem(self, app: StreamApp) -> Problem | None:
        """Return what others add again and again, or None."""
        undone = self._undone.get((app.namespace, app.name), {}).values()
        return next((each.problem for each in undone if each.problem is not None), None)

    def told(self, app: StreamApp) -> list[tuple[str, str, str]]:
        """Return the events since the last call: type, reason, sentence."""
        return self._told.pop((app.namespace, app.name), [])

    async def take_out(self, app: StreamApp, kind: Kind, manifest: Object, there: Object) -> Object:
        """Take out of an object what others added to it.

        Args:
            app: whose object it is.
            kind: of the object.
            manifest: what is wanted.
            there: the object as it was read.

        Returns:
            The object as it is now.

        Raises:
            Conflict, ApiError: it cannot be written, or changed meanwhile.
        """
        name = manifest["metadata"]["name"]
        undone = self._undone.setdefault((app.namespace, app.name), {})
        found, last, now = additions(manifest, there), undone.get((kind.kind, name)), self._clock()
        if found is None:
            if last is not None and now >= last.at + _AGAIN_S:
                del undone[kind.kind, name]
            return there
        who = ", ".join(f"'{manager}'" for manager in found.managers)
        problem = None
        if last is not None and last.fields == found.fields:
            problem = Problem(
                "FieldsAdded",
                f"{who} adds {found} to {kind} '{name}' again whenever the operator takes it out: stop that, or set it in the "
                "StreamApp.",
                settled=True,
            )
            if now < last.at + _AGAIN_S:
                undone[kind.kind, name] = _Undone(last.fields, last.at, problem)
                return there
        guard = {"op": "replace", "path": "/metadata/resourceVersion", "value": there["metadata"]["resourceVersion"]}
        try:
            there = await self._client.patch(kind, app.namespace, name, [guard, *found.patch])
        except Invalid as error:
            refused = Problem(
                "FieldsAdded",
                f"{who} added {found} to {kind} '{name}', and the API server does not let the operator take it out: {error}",
                settled=True,
            )
            undone[kind.kind, name] = _Undone(found.fields, now, refused)
            return there
        undone[kind.kind, name] = _Undone(found.fields, now, problem)
        self._cache.put(kind, there)
        self._tell(app, f"{who} added {found} to {kind} '{name}', which is taken out again: set it in the StreamApp.")
        return there

    def put_back(self, app: StreamApp, kind: Kind, manifest: Object, there: Object) -> None:
        """Tell that an object which somebody changed is applied again.

        Args:
            app: whose object it is.
            kind: of the object.
            manifest: what is wanted.
            there: the object as it was.
        """
        entries = there["metadata"].get("managedFields") or ()
        managers = sorted({each.get("manager", "") for each in entries} - {FIELD_MANAGER})
        # The API server does not note who scales to 0. Other changes without a manager are a webhook's, or another leader's.
        scaled = manifest.get("spec", {}).get("replicas") != there.get("spec", {}).get("replicas")
        if managers or scaled:
            who = ", ".join(f"'{manager}'" for manager in managers) or "Somebody"
            name = there["metadata"]["name"]
            self._tell(app, f"{who} changed {kind} '{name}', which is put back: change the StreamApp instead.")

    def _tell(self, app: StreamApp, sentence: str) -> None:
        log.warning("StreamApp %s/%s: %s", app.namespace, app.name, sentence)
        self._told.setdefault((app.namespace, app.name), []).append(("Warning", "ChangeUndone", sentence))
