"""The observable state of a StreamApp without times, versions and uids, to compare two moments exactly."""

from __future__ import annotations

from typing import Any

from tests.cluster.api import Object
from tests.cluster.waiting import unchanged
from tests.operating.scene import Scene

__all__ = ("at_rest", "observed")

_KINDS = (
    "StatefulSet",
    "ControllerRevision",
    "Service",
    "ServiceAccount",
    "ConfigMap",
    "PodDisruptionBudget",
    "NetworkPolicy",
    "PersistentVolumeClaim",
    "Pod",
    "StreamAssignment",
    "Job",
)
_MOMENTS = frozenset(
    {
        "uid",
        "resourceVersion",
        "creationTimestamp",
        "generation",
        "managedFields",
        "observedGeneration",
        "lastTransitionTime",
        "since",
        "leaderEpoch",
        "millpond.dev/leader-epoch",
        "kubectl.kubernetes.io/last-applied-configuration",
        "volume.kubernetes.io/storage-provisioner",
        "volume.beta.kubernetes.io/storage-provisioner",
        "volume.kubernetes.io/selected-node",
        "nodeName",
        "controller-revision-hash",
    }
)


def observed(scene: Scene, name: str) -> dict[str, Any]:
    """Return a StreamApp and its objects, by kind and name."""
    app = scene.get("StreamApp", name)
    seen = {
        "StreamApp": {"spec": app["spec"], "finalizers": app["metadata"].get("finalizers"), "status": app["status"]}
    }
    for kind in _KINDS:
        for each in scene.of_app(kind, name):
            if kind != "ControllerRevision" or _is_kept(each, app["status"].get("currentRevision", "")):
                seen[f"{kind}/{each['metadata']['name']}"] = _normal(kind, each)
    found: dict[str, Any] = _timeless(seen)
    return found


def at_rest(scene: Scene, name: str) -> dict[str, Any]:
    """Return the observable state once it no longer changes.

    A StreamApp that has settled may go on: a worker that came last gets its tasks, and a StatefulSet is counted.
    """
    return unchanged(lambda: observed(scene, name), name)


def _is_kept(revision: Object, current: str) -> bool:
    """Return whether a ControllerRevision is the operator's and keeps another template than the StatefulSet's."""
    owners = {owner["kind"] for owner in revision["metadata"].get("ownerReferences", ())}
    return "StreamApp" in owners and revision["metadata"]["labels"]["millpond.dev/revision"] != current


def _normal(kind: str, given: Object) -> Object:
    metadata = dict(given["metadata"])
    metadata.pop("namespace", None)
    status = given.get("status", {})
    made = {key: value for key, value in given.items() if key not in {"metadata", "status", "kind", "apiVersion"}}
    made["metadata"] = metadata
    if kind == "StatefulSet":
        made["status"] = {key: status.get(key, 0) for key in ("replicas", "readyReplicas")}
    elif kind == "PersistentVolumeClaim":
        made["status"] = {key: status.get(key) for key in ("phase", "capacity")}
    elif kind == "Pod":
        ready = next((each["status"] for each in status.get("conditions", ()) if each["type"] == "Ready"), "")
        made["status"] = {"phase": status.get("phase"), "ready": ready}
    elif kind == "StreamAssignment":
        made["spec"] = _assignment(given["spec"])
        metadata.pop("annotations", None)  # a digest of all of it
    return made


def _assignment(spec: Object) -> Object:
    """Return the assignment without which worker has which task."""
    workers = [worker for worker in spec.get("workers", ()) if worker.get("alive")]
    tasks = {
        role: sorted(task for worker in workers for task in worker.get(role, ()))
        for role in ("owns", "active", "standby", "warmUp")
    }
    return {
        "application": spec["application"],
        "topology": spec.get("topology"),
        "workers": sorted(worker["name"] for worker in workers),
        **tasks,
    }


def _timeless(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _timeless(item) for key, item in value.items() if key not in _MOMENTS}
    if isinstance(value, list):
        return [_timeless(item) for item in value]
    return value
