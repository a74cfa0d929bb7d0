"""Deletes objects without owners, and dependents before or after their owners as requested."""

from __future__ import annotations

from tests.cluster.memory.controllers.base import Cluster, Controller, Object
from tests.cluster.memory.kinds import Kind
from tests.cluster.memory.store import Change

__all__ = ("GarbageCollector",)

_ORPHAN, _FOREGROUND = "orphan", "foregroundDeletion"


class GarbageCollector(Controller):
    """Processes objects by their uids."""

    def __init__(self, cluster: Cluster) -> None:
        self._there: dict[str, tuple[Kind, str, str]] = {}
        self._dependents: dict[str, dict[str, None]] = {}
        super().__init__(cluster)

    def heard(self, change: Change) -> None:
        item = change.entry.object
        metadata = item["metadata"]
        uid = metadata["uid"]
        owners = _owners(item)
        before: dict[str, None] = {}
        if change.before is not None:
            before = _owners(change.before.object)
        if change.type == "DELETED":
            self._there.pop(uid, None)
            for owner in before | owners:
                self._forget(owner, uid)
                if owner in self._there:
                    self.add("", owner)  # it may have waited
            for dependent in self._dependents.get(uid, ()):
                self.add("", dependent)
            return
        self._there[uid] = (change.kind, metadata.get("namespace", ""), metadata["name"])
        for owner in [each for each in before if each not in owners]:
            self._forget(owner, uid)
            if owner in self._there:
                self.add("", owner)
        for owner in owners:
            self._dependents.setdefault(owner, {})[uid] = None
        if (owners and owners.keys() != before.keys()) or "deletionTimestamp" in metadata:
            self.add("", uid)

    def _forget(self, owner: str, uid: str) -> None:
        dependents = self._dependents.get(owner)
        if dependents is not None:
            dependents.pop(uid, None)
            if not dependents:
                del self._dependents[owner]

    def _item(self, uid: str) -> tuple[Kind, Object] | None:
        found = self._there.get(uid)
        if found is None:
            return None
        entry = self.cluster.store.get(*found)
        return (found[0], entry.object) if entry is not None else None

    def look(self, namespace: str, name: str) -> None:
        found = self._item(name)
        if found is None:
            return
        kind, item = found
        finalizers = item["metadata"].get("finalizers") or ()
        if "deletionTimestamp" in item["metadata"]:
            if _ORPHAN in finalizers:
                self._orphan(kind, item)
            elif _FOREGROUND in finalizers:
                self._dependents_first(kind, item)
            return
        self._collect(kind, item)

    def _orphan(self, kind: Kind, item: Object) -> None:
        uid = item["metadata"]["uid"]
        for dependent in list(self._dependents.get(uid, ())):
            if (found := self._item(dependent)) is not None:
                self._release(*found, {uid})
        self._unfinalize(kind, item, _ORPHAN)

    def _dependents_first(self, kind: Kind, item: Object) -> None:
        uid = item["metadata"]["uid"]
        blocked = False
        for dependent in list(self._dependents.get(uid, ())):
            found = self._item(dependent)
            if found is None:
                continue
            references = found[1]["metadata"].get("ownerReferences") or ()
            if any(each["uid"] == uid and each.get("blockOwnerDeletion") for each in references):
                blocked = True
                if "deletionTimestamp" not in found[1]["metadata"]:
                    self._collect(*found)
        if not blocked or not any(
            self._item(dependent) is not None
            and any(
                each["uid"] == uid and each.get("blockOwnerDeletion")
                for each in self._item(dependent)[1]["metadata"].get("ownerReferences") or ()  # type: ignore[index]
            )
            for dependent in self._dependents.get(uid, ())
        ):
            self._unfinalize(kind, item, _FOREGROUND)

    def _unfinalize(self, kind: Kind, item: Object, finalizer: str) -> None:
        found = self._item(item["metadata"]["uid"])
        if found is None:
            return
        there = found[1]["metadata"].get("finalizers") or []
        if finalizer in there:
            self.cluster.rewrite(kind, found[1], finalizers=[each for each in there if each != finalizer] or None)

    def _release(self, kind: Kind, item: Object, owners: set[str]) -> None:
        references = item["metadata"].get("ownerReferences") or []
        kept = [each for each in references if each["uid"] not in owners]
        if kept != references:
            self.cluster.rewrite(kind, item, ownerReferences=kept or None)

    def _collect(self, kind: Kind, item: Object) -> None:
        metadata = item["metadata"]
        references = metadata.get("ownerReferences") or []
        if not references:
            return
        solid, dangling, waiting = [], [], []
        for each in references:
            owner = self._owner(each, metadata.get("namespace", ""))
            if owner is None:
                dangling.append(each)
            elif "deletionTimestamp" in owner["metadata"] and _FOREGROUND in (
                owner["metadata"].get("finalizers") or ()
            ):
                waiting.append(each)
            else:
                solid.append(each)
        if solid:
            if dangling or waiting:
                self._release(kind, item, {each["uid"] for each in (*dangling, *waiting)})
            return
        finalizers = metadata.get("finalizers") or ()
        policy = "Background"
        if waiting and self._dependents.get(metadata["uid"]):
            policy = "Foreground"
        elif _ORPHAN in finalizers:
            policy = "Orphan"
        elif _FOREGROUND in finalizers:
            policy = "Foreground"
        self.cluster.delete(kind, item, policy)

    def _owner(self, reference: Object, namespace: str) -> Object | None:
        found = self._there.get(reference["uid"])
        if found is None:
            return None
        kind, space, name = found
        if kind.kind != reference["kind"] or name != reference["name"] or (space and space != namespace):
            return None
        entry = self.cluster.store.get(*found)
        return entry.object if entry is not None else None


def _owners(item: Object) -> dict[str, None]:
    """The uids of an object's owners, in their order."""
    return {each["uid"]: None for each in item["metadata"].get("ownerReferences") or ()}
