"""How many pods a disruption budget lets go."""

from __future__ import annotations

import math
from datetime import datetime

from tests.cluster.memory.controllers.base import Controller, Object, controller_of
from tests.cluster.memory.selectors import by_selector
from tests.cluster.memory.store import Change

__all__ = ("Budgets",)

_FORGOTTEN_S = 120.0


class Budgets(Controller):
    """The status of disruption budgets."""

    def heard(self, change: Change) -> None:
        metadata = change.entry.object["metadata"]
        namespace = metadata.get("namespace", "")
        if change.kind.kind == "PodDisruptionBudget":
            self.add(namespace, metadata["name"])
        elif change.kind.kind in {"Pod", "StatefulSet"}:
            for budget in self.cluster.list("PodDisruptionBudget", namespace):
                self.add(namespace, budget["metadata"]["name"])

    def look(self, namespace: str, name: str) -> None:
        cluster = self.cluster
        budget = cluster.find("PodDisruptionBudget", namespace, name)
        if budget is None or "deletionTimestamp" in budget["metadata"]:
            return
        fits = by_selector(budget["spec"].get("selector"))
        pods = [pod for pod in cluster.list("Pod", namespace) if fits(pod["metadata"].get("labels") or {})]
        before = budget.get("status") or {}
        disrupted = {}
        now = cluster.now().timestamp()
        for pod, since in (before.get("disruptedPods") or {}).items():
            there = cluster.find("Pod", namespace, pod)
            left = datetime.fromisoformat(since).timestamp() + _FORGOTTEN_S - now
            if there is not None and "deletionTimestamp" not in there["metadata"] and left > 0:
                disrupted[pod] = since
                self.add_later(left, namespace, name)
        counted = [pod for pod in pods if (pod.get("status") or {}).get("phase") not in {"Succeeded", "Failed"}]
        healthy = sum(
            1
            for pod in counted
            if "deletionTimestamp" not in pod["metadata"] and pod["metadata"]["name"] not in disrupted and _ready(pod)
        )
        expected, desired = self._expected(budget, counted)
        allowed = max(0, healthy - desired) if expected > 0 else 0
        status: Object = {
            "currentHealthy": healthy,
            "desiredHealthy": desired,
            "expectedPods": expected,
            "disruptionsAllowed": allowed,
            "observedGeneration": budget["metadata"]["generation"],
            "conditions": _conditions(before, cluster.stamp(), budget["metadata"]["generation"], allowed),
        }
        if disrupted:
            status["disruptedPods"] = disrupted
        if status != before:
            cluster.update("PodDisruptionBudget", {**budget, "status": status}, "status")

    def _expected(self, budget: Object, pods: list[Object]) -> tuple[int, int]:
        spec = budget["spec"]
        if "maxUnavailable" not in spec and isinstance(spec.get("minAvailable"), int):
            return len(pods), spec["minAvailable"]
        owners: dict[str, int] = {}
        for pod in pods:
            owner = controller_of(pod)
            if owner is not None and owner["kind"] == "StatefulSet":
                found = self.cluster.find("StatefulSet", pod["metadata"]["namespace"], owner["name"])
                if found is not None and found["metadata"]["uid"] == owner["uid"]:
                    owners[owner["uid"]] = found["spec"]["replicas"]
        expected = sum(owners.values())
        if "maxUnavailable" in spec:
            return expected, max(0, expected - _scaled(spec["maxUnavailable"], expected))
        return expected, _scaled(spec.get("minAvailable", 0), expected)


def _scaled(value: int | str, total: int) -> int:
    return value if isinstance(value, int) else math.ceil(int(value.rstrip("%")) * total / 100)


def _ready(pod: Object) -> bool:
    return any(
        each["type"] == "Ready" and each["status"] == "True"
        for each in (pod.get("status") or {}).get("conditions") or ()
    )


def _conditions(before: Object, now: str, generation: int, allowed: int) -> list[Object]:
    status, reason = ("True", "SufficientPods") if allowed > 0 else ("False", "InsufficientPods")
    old = next((each for each in before.get("conditions") or () if each["type"] == "DisruptionAllowed"), {})
    since = old.get("lastTransitionTime", now) if old.get("status") == status else now
    return [
        {
            "type": "DisruptionAllowed",
            "status": status,
            "observedGeneration": generation,
            "lastTransitionTime": since,
            "reason": reason,
            "message": "",
        }
    ]
