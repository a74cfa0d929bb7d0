"""Pods, claims and revisions of StatefulSets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.cluster.memory.controllers import claims
from tests.cluster.memory.controllers.base import Controller, Object, changed, controller_of, owner_reference
from tests.cluster.memory.controllers.hashes import short_hash
from tests.cluster.memory.failures import ApiFailure
from tests.cluster.memory.selectors import by_selector
from tests.cluster.memory.store import Change, encode

__all__ = ("StatefulSets",)

_REVISION = "controller-revision-hash"
_POD_NAME, _INDEX = "statefulset.kubernetes.io/pod-name", "apps.kubernetes.io/pod-index"
_COMPONENT = "statefulset-controller"


class StatefulSets(Controller):
    """The controller of StatefulSets."""

    def heard(self, change: Change) -> None:
        metadata = change.entry.object["metadata"]
        namespace = metadata.get("namespace", "")
        match change.kind.kind:
            case "StatefulSet":
                self.add(namespace, metadata["name"])
            case "Pod":
                for item in (change.entry.object, change.before.object if change.before is not None else None):
                    if item is not None:
                        self._pod_seen(namespace, item)

    def _pod_seen(self, namespace: str, pod: Object) -> None:
        owner = controller_of(pod)
        if owner is not None:
            if owner["kind"] == "StatefulSet":
                self.add(namespace, owner["name"])
            return
        labels = pod["metadata"].get("labels") or {}
        if labels:
            for item in self.cluster.list("StatefulSet", namespace):
                if by_selector(item["spec"].get("selector"))(labels):
                    self.add(namespace, item["metadata"]["name"])

    def look(self, namespace: str, name: str) -> None:
        item = self.cluster.find("StatefulSet", namespace, name)
        if item is None:
            return
        revisions = self._revisions(item)
        pods = self._pods(item)
        current, update, revisions = self._current_and_update(item, revisions)
        failure: ApiFailure | None = None
        status = _Status(item, current, update)
        try:
            pods = self._update(item, current, update, pods, status)
        except ApiFailure as error:
            failure = error
            pods = self._pods(item)
        self._write_status(namespace, name, status, pods)
        self._truncate(item, pods, revisions, current, update)
        if failure is not None:
            raise failure

    # What belongs to it.

    def _pods(self, item: Object) -> list[Object]:
        """Its pods; adopts those without an owner, releases those that do not match any more."""
        cluster, uid = self.cluster, item["metadata"]["uid"]
        fits = by_selector(item["spec"].get("selector"))
        leaving = "deletionTimestamp" in item["metadata"]
        found: list[Object] = []
        for pod in cluster.list("Pod", item["metadata"]["namespace"]):
            if _ordinal(item, pod) < 0:
                continue
            owner = controller_of(pod)
            matches = fits(pod["metadata"].get("labels") or {})
            if owner is not None:
                if owner["uid"] != uid:
                    continue
                if matches:
                    found.append(pod)
                elif not leaving and "deletionTimestamp" not in pod["metadata"]:
                    kept = [each for each in pod["metadata"]["ownerReferences"] if each["uid"] != uid]
                    cluster.rewrite(cluster.kind("Pod"), pod, ownerReferences=kept or None)
            elif matches and not leaving and "deletionTimestamp" not in pod["metadata"]:
                references = [*(pod["metadata"].get("ownerReferences") or ()), owner_reference(item)]
                found.append(cluster.rewrite(cluster.kind("Pod"), pod, ownerReferences=references))
        return found

    def _revisions(self, item: Object) -> list[Object]:
        """Its revisions, oldest first; adopts those without an owner."""
        cluster, uid = self.cluster, item["metadata"]["uid"]
        fits = by_selector(item["spec"].get("selector"))
        found: list[Object] = []
        for each in cluster.list("ControllerRevision", item["metadata"]["namespace"]):
            if not fits(each["metadata"].get("labels") or {}):
                continue
            owner = controller_of(each)
            if owner is None and "deletionTimestamp" not in item["metadata"]:
                references = [*(each["metadata"].get("ownerReferences") or ()), owner_reference(item)]
                each = cluster.rewrite(cluster.kind("ControllerRevision"), each, ownerReferences=references)
            elif owner is None or owner["uid"] != uid:
                continue
            found.append(each)
        return sorted(found, key=_age)

    def _current_and_update(self, item: Object, revisions: list[Object]) -> tuple[Object, Object, list[Object]]:
        cluster = self.cluster
        template = changed(item["spec"]["template"])
        data = {"spec": {"template": {**template, "$patch": "replace"}}}
        number = max((each["revision"] for each in revisions), default=0) + 1
        equal = [each for each in revisions if each.get("data") == data]
        if equal and equal[-1] is revisions[-1]:
            update = equal[-1]
        elif equal:
            update = cluster.update("ControllerRevision", {**equal[-1], "revision": number})
            revisions = [*(each for each in revisions if each is not equal[-1]), update]
        else:
            collisions = (item.get("status") or {}).get("collisionCount", 0)
            hashed = short_hash(encode(data) + str(collisions).encode() * bool(collisions))
            metadata = item["metadata"]
            labels = {**(template.get("metadata", {}).get("labels") or {}), "controller.kubernetes.io/hash": hashed}
            made: Object = {
                "metadata": {
                    "name": f"{metadata['name'][:223]}-{hashed}",
                    "namespace": metadata["namespace"],
                    "labels": labels,
                    "annotations": dict(metadata.get("annotations") or {}),
                    "ownerReferences": [owner_reference(item)],
                },
                "data": data,
                "revision": number,
            }
            update = cluster.create("ControllerRevision", made)
            revisions = [*revisions, update]
        wanted = (item.get("status") or {}).get("currentRevision")
        current = next((each for each in revisions if each["metadata"]["name"] == wanted), update)
        return current, update, revisions

    def _truncate(
        self, item: Object, pods: list[Object], revisions: list[Object], current: Object, update: Object
    ) -> None:
        live = {current["metadata"]["name"], update["metadata"]["name"], *map(_revision, pods)}
        history = [each for each in revisions if each["metadata"]["name"] not in live]
        limit = item["spec"].get("revisionHistoryLimit", 10)
        for each in history[: max(0, len(history) - limit)]:
            self.cluster.delete(self.cluster.kind("ControllerRevision"), each)

    # What it does.

    def _update(
        self, item: Object, current: Object, update: Object, pods: list[Object], status: _Status
    ) -> list[Object]:
        """Create and delete pods; return the remaining ones."""
        start = (item["spec"].get("ordinals") or {}).get("start", 0)
        count = item["spec"]["replicas"]
        there = {_ordinal(item, pod): pod for pod in pods}
        if "deletionTimestamp" in item["metadata"]:
            return pods
        monotonic = item["spec"].get("podManagementPolicy") != "Parallel"
        condemned = [there[number] for number in sorted(there, reverse=True) if not start <= number < start + count]
        waits = False
        problem: ApiFailure | None = None
        for number in range(start, start + count):
            try:
                stop = self._replica(item, current, update, number, there, monotonic=monotonic)
            except ApiFailure as error:
                problem, stop = problem or error, True
            waits = waits or stop
            if stop and monotonic:
                break
        if problem is not None:
            raise problem
        if waits:
            return list(there.values())
        for pod in condemned:
            claims.fix(self.cluster, item, pod, scaled_down=True)
        self._condemn(item, condemned, monotonic=monotonic)
        strategy = item["spec"]["updateStrategy"]
        if strategy["type"] != "OnDelete":
            first = start + (strategy.get("rollingUpdate") or {}).get("partition", 0)
            self._roll(item, update, [there[number] for number in range(first, start + count)], status)
        return self._pods(item)

    def _replica(
        self,
        item: Object,
        current: Object,
        update: Object,
        number: int,
        there: dict[int, Object],
        *,
        monotonic: bool,
    ) -> bool:
        """Reconcile one pod; return whether it is done for now."""
        pod = there.get(number)
        if pod is None:
            strategy = item["spec"]["updateStrategy"]
            partition = (strategy.get("rollingUpdate") or {}).get("partition", 0)
            start = (item["spec"].get("ordinals") or {}).get("start", 0)
            old = "rollingUpdate" in strategy and number < start + partition
            of = current if old else update
            there[number] = self._create(item, of, number)
            return monotonic
        if pod.get("status", {}).get("phase") in {"Failed", "Succeeded"}:
            if "deletionTimestamp" not in pod["metadata"]:
                self._delete(item, pod)
            return True
        if pod.get("status", {}).get("phase") == "Pending":
            claims.create(self.cluster, item, number)
            claims.fix(self.cluster, item, pod, scaled_down=False)
        if monotonic and ("deletionTimestamp" in pod["metadata"] or not _ready(pod)):
            return True
        claims.fix(self.cluster, item, pod, scaled_down=False)
        return False

    def _create(self, item: Object, revision: Object, number: int) -> Object:
        cluster = self.cluster
        if claims.stale(cluster, item, number):
            raise ApiFailure(409, "Conflict", "a claim of a former pod is still there")
        name = f"{item['metadata']['name']}-{number}"
        try:
            claims.create(cluster, item, number)
            template = changed(revision["data"]["spec"]["template"])
            template.pop("$patch", None)
            metadata = {
                key: value
                for key, value in template.get("metadata", {}).items()
                if key in {"annotations", "finalizers"}
            }
            labels = dict(template.get("metadata", {}).get("labels") or {})
            labels |= {_POD_NAME: name, _INDEX: str(number), _REVISION: revision["metadata"]["name"]}
            spec = template["spec"]
            volumes = claims.volumes(item, number)
            mine = {each["name"] for each in volumes}
            spec["volumes"] = [*volumes, *(each for each in spec.get("volumes") or () if each["name"] not in mine)]
            spec |= {"hostname": name, "subdomain": item["spec"].get("serviceName", "")}
            if not spec["volumes"]:
                del spec["volumes"]
            pod = cluster.create(
                "Pod",
                {
                    "metadata": {
                        **metadata,
                        "name": name,
                        "generateName": f"{item['metadata']['name']}-",
                        "namespace": item["metadata"]["namespace"],
                        "labels": labels,
                        "ownerReferences": [owner_reference(item)],
                    },
                    "spec": spec,
                },
            )
            claims.fix(cluster, item, pod, scaled_down=False)
        except ApiFailure as error:
            if error.reason == "AlreadyExists":
                raise  # that is no event
            self._tell(
                item,
                "FailedCreate",
                f"create Pod {name} in StatefulSet {item['metadata']['name']} failed error: {error.message}",
                "Warning",
            )
            raise
        self._tell(item, "SuccessfulCreate", f"create Pod {name} in StatefulSet {item['metadata']['name']} successful")
        return pod

    def _delete(self, item: Object, pod: Object) -> None:
        self.cluster.delete(self.cluster.kind("Pod"), pod)
        told = f"delete Pod {pod['metadata']['name']} in StatefulSet {item['metadata']['name']} successful"
        self._tell(item, "SuccessfulDelete", told)

    def _condemn(self, item: Object, condemned: list[Object], *, monotonic: bool) -> None:
        for pod in condemned:
            if "deletionTimestamp" in pod["metadata"]:
                if monotonic:
                    return
                continue
            if monotonic and not _ready(pod) and pod is not condemned[-1]:
                return
            self._delete(item, pod)
            if monotonic:
                return

    def _roll(self, item: Object, update: Object, pods: list[Object], status: _Status) -> None:
        for pod in reversed(pods):
            if _revision(pod) != update["metadata"]["name"] and "deletionTimestamp" not in pod["metadata"]:
                self._delete(item, pod)
                return
            if not _ready(pod):
                return

    def _tell(self, item: Object, reason: str, message: str, type: str = "Normal") -> None:
        self.cluster.event(item, reason, message, type=type, component=_COMPONENT)

    # Status.

    def _write_status(self, namespace: str, name: str, status: _Status, pods: list[Object]) -> None:
        item = self.cluster.find("StatefulSet", namespace, name)
        if item is None or item["metadata"]["uid"] != status.uid:
            return
        wanted = status.counted(item, pods, self._available)
        before = item.get("status") or {}
        if any(before.get(key, 0) != value for key, value in wanted.items()):
            made = {**item, "status": {**before, **wanted, "collisionCount": before.get("collisionCount", 0)}}
            self.cluster.update("StatefulSet", made, "status")

    def _available(self, item: Object, pod: Object) -> bool:
        seconds = item["spec"].get("minReadySeconds", 0)
        if not seconds:
            return True
        from datetime import datetime

        since = next(
            (each.get("lastTransitionTime") for each in pod["status"].get("conditions", ()) if each["type"] == "Ready"),
            None,
        )
        if since is None:
            return False
        age = self.cluster.now().timestamp() - datetime.fromisoformat(since).timestamp()
        if age < seconds:
            self.add_later(seconds - age, item["metadata"]["namespace"], item["metadata"]["name"])
            return False
        return True


class _Status:
    """The inputs of the status."""

    def __init__(self, item: Object, current: Object, update: Object) -> None:
        self.uid = item["metadata"]["uid"]
        self._generation = item["metadata"]["generation"]
        self._current = current["metadata"]["name"]
        self._update = update["metadata"]["name"]

    def counted(self, item: Object, pods: list[Object], available: Callable[[Object, Object], bool]) -> Object:
        living = [pod for pod in pods if "deletionTimestamp" not in pod["metadata"]]
        ready = [pod for pod in pods if _ready(pod)]
        made: dict[str, Any] = {
            "observedGeneration": self._generation,
            "replicas": len(pods),
            "readyReplicas": len(ready),
            "availableReplicas": sum(available(item, pod) for pod in ready),
            "currentReplicas": sum(_revision(pod) == self._current for pod in living),
            "updatedReplicas": sum(_revision(pod) == self._update for pod in living),
            "currentRevision": self._current,
            "updateRevision": self._update,
        }
        replicas = item["spec"]["replicas"]
        rolls = item["spec"]["updateStrategy"]["type"] == "RollingUpdate"
        if rolls and made["updatedReplicas"] == made["readyReplicas"] == made["replicas"] == replicas:
            made |= {"currentReplicas": made["updatedReplicas"], "currentRevision": self._update}
        return made


def _age(revision: Object) -> tuple[int, str, str]:
    return revision["revision"], revision["metadata"]["creationTimestamp"], revision["metadata"]["name"]


def _revision(pod: Object) -> str:
    return str((pod["metadata"].get("labels") or {}).get(_REVISION, ""))


def _ordinal(item: Object, pod: Object) -> int:
    """Its ordinal, or -1 if its name is not of this set."""
    stem, _, number = pod["metadata"]["name"].rpartition("-")
    return int(number) if stem == item["metadata"]["name"] and number.isdecimal() else -1


def _ready(pod: Object) -> bool:
    status = pod.get("status") or {}
    return status.get("phase") == "Running" and any(
        each["type"] == "Ready" and each["status"] == "True" for each in status.get("conditions") or ()
    )
