"""The final state of an application: all its objects, without what differs from run to run."""

from __future__ import annotations

import asyncio
import json
import re
from typing import Any

from tests.cluster.api import Api, Object

__all__ = ("difference", "final_state")

_LABEL = "millpond.dev/app"
_KINDS = (
    "StatefulSet",
    "Pod",
    "ControllerRevision",
    "StreamAssignment",
    "Service",
    "ServiceAccount",
    "ConfigMap",
    "PodDisruptionBudget",
    "NetworkPolicy",
    "Job",
    "PersistentVolumeClaim",
)
#: Of each write, each object or each moment.
_PASSING = frozenset(
    {
        "uid",
        "resourceVersion",
        "generation",
        "creationTimestamp",
        "managedFields",
        "lastTransitionTime",
        "message",
        "since",
        "leaderEpoch",
        "observedGeneration",
        "millpond.dev/leader-epoch",
        "millpond.dev/applied",
    }
)
_PEM = re.compile(r"-----BEGIN.*?-----END [A-Z ]+-----(\\n)?")


def final_state(api: Api, namespace: str, name: str) -> Object:
    """Return the objects of an application in a form that does not depend on its name and its revisions.

    Args:
        api: to look with.
        namespace: of the application.
        name: of the application.
    """
    app, *lists = api.background.call(_look(api, namespace, name))
    found: Object = {} if app is None else {"StreamApp": _scrubbed({key: app.get(key) for key in ("spec", "status")})}
    if app is not None:
        found["StreamApp"]["finalizers"] = app["metadata"].get("finalizers", [])
        found["StreamApp"]["told"] = app.get("status", {}).get("observedGeneration") == app["metadata"]["generation"]
    for kind, items in zip(_KINDS, lists, strict=True):
        for each in items:
            owners = each["metadata"].get("ownerReferences", ())
            if kind == "ControllerRevision" and any(owner["kind"] == "StatefulSet" for owner in owners):
                continue  # the StatefulSet controller's own book-keeping
            found[f"{kind} {each['metadata']['name']}"] = _described(kind, each)
    text = _PEM.sub("<certificate>", json.dumps(found, sort_keys=True))
    status = (app or {}).get("status", {})
    revisions = {"<failed>": (status.get("failed") or {}).get("revision"), "<current>": status.get("currentRevision")}
    for word, revision in revisions.items():
        if revision:
            text = text.replace(revision, word)
    return json.loads(text.replace(namespace, "<namespace>").replace(name, "<app>"))


def difference(wanted: Any, found: Any, path: str = "") -> list[str]:
    """Return the differences between two final states, one line each."""
    if isinstance(wanted, dict) and isinstance(found, dict):
        return [
            line
            for key in sorted({*wanted, *found})
            for line in difference(wanted.get(key, "nothing"), found.get(key, "nothing"), f"{path} / {key}")
        ]
    return [] if wanted == found else [f"{path.removeprefix(' / ')}: {wanted} became {found}"]


async def _look(api: Api, namespace: str, name: str) -> list[Any]:
    inside = api.inside
    return await asyncio.gather(
        inside.find("StreamApp", namespace, name),
        *(inside.list(kind, namespace, f"{_LABEL}={name}") for kind in _KINDS),
    )


def _described(kind: str, object: Object) -> Any:
    metadata, spec = object["metadata"], object.get("spec", {})
    if "deletionTimestamp" in metadata:
        return "is being deleted"
    match kind:
        case "Pod":
            conditions = object.get("status", {}).get("conditions", ())
            ready = {each["type"]: each["status"] for each in conditions}.get("Ready")
            revision = metadata["labels"].get("millpond.dev/revision")
            return {"revision": revision, "image": spec["containers"][0]["image"], "ready": ready}
        case "PersistentVolumeClaim":
            return {"size": spec["resources"]["requests"]["storage"]}
        case "StreamAssignment":
            workers = spec.get("workers", ())
            alive = [each for each in workers if each.get("alive")]
            return {
                "topology": (spec.get("topology") or {}).get("hash"),
                "workers": [each["name"] for each in alive],
                "draining": [each["name"] for each in workers if each.get("draining")],
                "tasks": sorted(task for each in workers for task in each.get("active", ())),
                "of those who are not there": [
                    each["name"] for each in workers if each not in alive and (each.get("owns") or each.get("active"))
                ],
            }
    kept = {"metadata": {key: metadata.get(key, {}) for key in ("labels", "annotations", "ownerReferences")}}
    return _scrubbed(kept | {key: object[key] for key in ("spec", "data") if key in object})


def _scrubbed(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _scrubbed(each) for key, each in value.items() if key not in _PASSING}
    if isinstance(value, list):
        return [_scrubbed(each) for each in value]
    return value
