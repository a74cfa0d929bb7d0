"""Serves custom resources by their definitions."""

from __future__ import annotations

from tests.cluster.memory.controllers.base import Cluster, Controller, Object
from tests.cluster.memory.kinds import Kind
from tests.cluster.memory.store import Change
from tests.cluster.memory.validation.custom import kind_of

__all__ = ("Definitions",)


class Definitions(Controller):
    """Part of the API server itself: custom resources are served once their definition is established."""

    def __init__(self, cluster: Cluster) -> None:
        self._served: dict[str, list[Kind]] = {}
        super().__init__(cluster)

    def heard(self, change: Change) -> None:
        if change.kind.kind == "CustomResourceDefinition":
            self.add("", change.entry.object["metadata"]["name"])

    def look(self, namespace: str, name: str) -> None:
        cluster = self.cluster
        found = cluster.find("CustomResourceDefinition", "", name)
        kinds = cluster.resources.kinds
        if found is None:
            for kind in self._served.pop(name, []):
                for entry in list(cluster.store.entries(kind)):
                    cluster.store.remove(kind, entry)
                kinds.remove(kind)
            return
        self._serve(name, found)
        status = {
            "conditions": [
                {
                    "type": "NamesAccepted",
                    "status": "True",
                    "lastTransitionTime": cluster.stamp(),
                    "reason": "NoConflicts",
                    "message": "no conflicts found",
                },
                {
                    "type": "Established",
                    "status": "True",
                    "lastTransitionTime": cluster.stamp(),
                    "reason": "InitialNamesAccepted",
                    "message": "the initial names have been accepted",
                },
            ],
            "acceptedNames": found["spec"]["names"],
            "storedVersions": [each["name"] for each in found["spec"]["versions"] if each.get("storage")],
        }
        before = found.get("status") or {}
        if not before.get("conditions") or before.get("acceptedNames") != status["acceptedNames"]:
            cluster.store.put(cluster.kind("CustomResourceDefinition"), {**found, "status": status})

    def _serve(self, name: str, definition: Object) -> None:
        before = {each.version: each for each in self._served.get(name, [])}
        now: list[Kind] = []
        for kind in kind_of(definition):
            old = before.pop(kind.version, None)
            if old is not None and _same(old, kind):
                object.__setattr__(old, "schema", kind.schema)  # its objects are found by it
                now.append(old)
                continue
            self.cluster.resources.kinds.add(kind)
            now.append(kind)
        for old in before.values():
            self.cluster.resources.kinds.remove(old)
        self._served[name] = now


def _same(old: Kind, new: Kind) -> bool:
    return (old.kind, old.plural, old.namespaced, old.subresources, old.short) == (
        new.kind,
        new.plural,
        new.namespaced,
        new.subresources,
        new.short,
    )
