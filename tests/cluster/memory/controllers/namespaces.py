"""The default objects of a namespace, and its deletion."""

from __future__ import annotations

from pathlib import Path

from tests.cluster.memory.controllers.base import Cluster, Controller
from tests.cluster.memory.failures import ApiFailure
from tests.cluster.memory.resources import Options
from tests.cluster.memory.store import Change

__all__ = ("NamespaceContents", "Namespaces")


class NamespaceContents(Controller):
    """Creates the service account `default`, and the ConfigMap with the certificate authority."""

    def __init__(self, cluster: Cluster, authority: Path) -> None:
        self._authority = authority
        super().__init__(cluster)

    def heard(self, change: Change) -> None:
        name = change.entry.object["metadata"]["name"]
        if change.kind.kind == "Namespace" and change.type != "DELETED":
            self.add("", name)
        elif change.type == "DELETED" and (change.kind.kind, name) in {
            ("ServiceAccount", "default"),
            ("ConfigMap", "kube-root-ca.crt"),
        }:
            self.add("", change.entry.object["metadata"]["namespace"])

    def look(self, namespace: str, name: str) -> None:
        cluster = self.cluster
        found = cluster.find("Namespace", "", name)
        if found is None or "deletionTimestamp" in found["metadata"]:
            return
        if cluster.find("ServiceAccount", name, "default") is None:
            cluster.create("ServiceAccount", {"metadata": {"name": "default", "namespace": name}})
        if cluster.find("ConfigMap", name, "kube-root-ca.crt") is None:
            told = (
                "Contains a CA bundle that can be used to verify the kube-apiserver when using internal endpoints such "
                "as the internal service IP or kubernetes.default.svc. No other usage is guaranteed across "
                "distributions of "
                "Kubernetes clusters."
            )
            metadata = {
                "name": "kube-root-ca.crt",
                "namespace": name,
                "annotations": {"kubernetes.io/description": told},
            }
            cluster.create("ConfigMap", {"metadata": metadata, "data": {"ca.crt": self._authority.read_text()}})


class Namespaces(Controller):
    """Deletes everything in a namespace before the namespace."""

    def heard(self, change: Change) -> None:
        metadata = change.entry.object["metadata"]
        if change.kind.kind == "Namespace":
            if "deletionTimestamp" in metadata:
                self.add("", metadata["name"])
        elif change.type == "DELETED" and (namespace := metadata.get("namespace")):
            found = self.cluster.find("Namespace", "", namespace)
            if found is not None and "deletionTimestamp" in found["metadata"]:
                self.add("", namespace)

    def look(self, namespace: str, name: str) -> None:
        cluster = self.cluster
        found = cluster.find("Namespace", "", name)
        if found is None or "deletionTimestamp" not in found["metadata"]:
            return
        left = False
        for kind in cluster.resources.kinds.all():
            if not kind.namespaced or not kind.stored:
                continue
            for entry in list(cluster.store.entries(kind, name)):
                if "deletionTimestamp" not in entry.object["metadata"]:
                    try:
                        cluster.delete(kind, entry.object, "Background")
                    except ApiFailure:
                        left = True
            left = left or bool(list(cluster.store.entries(kind, name)))
        if left:
            return
        found = cluster.find("Namespace", "", name)
        if found is not None:
            kept = [each for each in found["spec"].get("finalizers") or () if each != "kubernetes"]
            cluster.resources.replace(
                cluster.kind("Namespace"),
                "",
                name,
                {**found, "spec": {**found["spec"], "finalizers": kept}},
                Options(subresource="finalize"),
            )
