"""Subresources of pods: binding and eviction."""

from __future__ import annotations

from typing import Any

from tests.cluster.memory.failures import ApiFailure, conflict
from tests.cluster.memory.kinds import Kind
from tests.cluster.memory.resources import Resources, stamp
from tests.cluster.memory.selectors import by_selector

__all__ = ("bind", "evict")

Object = dict[str, Any]


def bind(resources: Resources, kind: Kind, namespace: str, name: str, binding: Object) -> None:
    """Set the node of a pod.

    Raises:
        ApiFailure: there is no such pod, or it has a node.
    """
    live = resources.get(kind, namespace, name)
    pod = live.object
    uid = (binding.get("metadata") or {}).get("uid")
    if uid not in (None, "", pod["metadata"]["uid"]):
        raise conflict(
            kind, name, f"Precondition failed: UID in precondition: {uid}, UID in object meta: {pod['metadata']['uid']}"
        )
    if "deletionTimestamp" in pod["metadata"]:
        raise conflict(kind, name, f"pod {name} is being deleted, cannot be assigned to a host")
    if there := pod["spec"].get("nodeName"):
        raise conflict(kind, name, f'pod {name} is already assigned to node "{there}"')
    condition = {
        "type": "PodScheduled",
        "status": "True",
        "lastProbeTime": None,
        "lastTransitionTime": stamp(resources.now()),
    }
    status = pod.get("status") or {}
    kept = [each for each in status.get("conditions") or () if each["type"] != "PodScheduled"]
    made = {
        **pod,
        "spec": {**pod["spec"], "nodeName": binding["target"]["name"]},
        "status": {**status, "conditions": [*kept, condition]},
    }
    resources.store.put(kind, made)


def evict(resources: Resources, kind: Kind, namespace: str, name: str, eviction: Object) -> None:
    """Delete a pod, if disruption budgets allow it.

    Raises:
        ApiFailure: a budget does not, or there is no such pod.
    """
    pod = resources.get(kind, namespace, name).object
    budgets = resources.kinds.at("policy", "v1", "poddisruptionbudgets")
    assert budgets is not None
    phase = pod.get("status", {}).get("phase")
    if phase not in {"Failed", "Succeeded", "Pending"} and "deletionTimestamp" not in pod["metadata"]:
        labels = pod["metadata"].get("labels") or {}
        for entry in resources.store.entries(budgets, namespace):
            budget = entry.object
            if not by_selector(budget["spec"].get("selector"))(labels):
                continue
            ready = any(
                each["type"] == "Ready" and each["status"] == "True" for each in pod["status"].get("conditions") or ()
            )
            if not ready and budget["spec"].get("unhealthyPodEvictionPolicy") == "AlwaysAllow":
                continue
            status = budget.get("status") or {}
            if status.get("disruptionsAllowed", 0) <= 0:
                raise ApiFailure(
                    429,
                    "TooManyRequests",
                    "Cannot evict pod as it would violate the pod's disruption budget.",
                    {
                        "causes": [
                            {
                                "reason": "DisruptionBudget",
                                "message": f"The disruption budget {budget['metadata']['name']} needs "
                                f"{status.get('desiredHealthy', 0)} healthy pods and has "
                                f"{status.get('currentHealthy', 0)} currently",
                            }
                        ]
                    },
                )
            disrupted = {**(status.get("disruptedPods") or {}), name: stamp(resources.now())}
            left = {**status, "disruptionsAllowed": status["disruptionsAllowed"] - 1, "disruptedPods": disrupted}
            resources.store.put(budgets, {**budget, "status": left})
    resources.delete(kind, namespace, name, eviction.get("deleteOptions") or {})
