"""Claims that a pod uses are not deleted."""

from __future__ import annotations

from tests.cluster.memory.controllers.base import Controller, Object
from tests.cluster.memory.store import Change

__all__ = ("ClaimProtection",)

_FINALIZER = "kubernetes.io/pvc-protection"


class ClaimProtection(Controller):
    """Adds the finalizer to claims, and removes it when they are being deleted and no pod uses them."""

    def heard(self, change: Change) -> None:
        metadata = change.entry.object["metadata"]
        if change.kind.kind == "PersistentVolumeClaim":
            self.add(metadata["namespace"], metadata["name"])
        elif change.kind.kind == "Pod":
            for name in _claims(change.entry.object):
                self.add(metadata["namespace"], name)

    def look(self, namespace: str, name: str) -> None:
        cluster = self.cluster
        claim = cluster.find("PersistentVolumeClaim", namespace, name)
        if claim is None:
            return
        finalizers = claim["metadata"].get("finalizers") or []
        if "deletionTimestamp" not in claim["metadata"]:
            if _FINALIZER not in finalizers:
                cluster.rewrite(cluster.kind("PersistentVolumeClaim"), claim, finalizers=[*finalizers, _FINALIZER])
            return
        if _FINALIZER not in finalizers:
            return
        for pod in cluster.list("Pod", namespace):
            if pod["spec"].get("nodeName") and name in _claims(pod):
                return
        kept = [each for each in finalizers if each != _FINALIZER]
        cluster.rewrite(cluster.kind("PersistentVolumeClaim"), claim, finalizers=kept or None)


def _claims(pod: Object) -> list[str]:
    volumes = pod["spec"].get("volumes") or ()
    return [each["persistentVolumeClaim"]["claimName"] for each in volumes if "persistentVolumeClaim" in each]
