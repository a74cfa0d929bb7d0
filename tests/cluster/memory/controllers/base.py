"""What controllers share: objects by the names of their kinds, and a queue of objects to process."""

from __future__ import annotations

import asyncio
import logging
from datetime import datetime
from typing import Any

from tests.cluster.memory.failures import ApiFailure
from tests.cluster.memory.kinds import BUILT_IN, Kind
from tests.cluster.memory.resources import Options, Resources, stamp
from tests.cluster.memory.store import Change
from tests.cluster.memory.validation.custom import whole

__all__ = ("MANAGER", "Cluster", "Controller", "Key", "Object", "controller_of", "owner_reference")

log = logging.getLogger(__name__)

Object = dict[str, Any]
Key = tuple[str, str]
"""Namespace and name."""
MANAGER = "kube-controller-manager"
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.005, 30.0
_KINDS = {kind.kind: kind for kind in BUILT_IN}


class Cluster:
    """The objects, for controllers."""

    def __init__(self, resources: Resources, loop: asyncio.AbstractEventLoop) -> None:
        self.resources = resources
        self.store = resources.store
        self.loop = loop

    def now(self) -> datetime:
        return self.resources.now()

    def stamp(self) -> str:
        return stamp(self.now())

    @staticmethod
    def kind(name: str) -> Kind:
        return _KINDS[name]

    def find(self, kind: str, namespace: str, name: str) -> Object | None:
        """An object, which must not be changed; None if there is none."""
        entry = self.store.get(_KINDS[kind], namespace, name)
        return entry.object if entry is not None else None

    def list(self, kind: str, namespace: str | None = None) -> list[Object]:
        """Objects, which must not be changed."""
        return [entry.object for entry in self.store.entries(_KINDS[kind], namespace)]

    def create(self, kind: str, item: Object) -> Object:
        """Create an object."""
        namespace = item["metadata"].get("namespace", "")
        return self.resources.create(_KINDS[kind], namespace, item, Options(MANAGER)).object

    def update(self, kind: str, item: Object, subresource: str = "") -> Object:
        """Replace an object."""
        metadata = item["metadata"]
        options = Options(MANAGER, subresource=subresource)
        found, _ = self.resources.replace(_KINDS[kind], metadata.get("namespace", ""), metadata["name"], item, options)
        return found.object

    def delete(self, kind: Kind, item: Object, policy: str | None = None, **options: Any) -> None:
        """Delete an object, if it is still the same."""
        metadata = item["metadata"]
        given: Object = {"preconditions": {"uid": metadata["uid"]}, **options}
        if policy is not None:
            given["propagationPolicy"] = policy
        try:
            self.resources.delete(kind, metadata.get("namespace", ""), metadata["name"], given)
        except ApiFailure as failure:
            if failure.code not in {404, 409}:
                raise

    def rewrite(self, kind: Kind, item: Object, **metadata: Any) -> Object:
        """Change an object's metadata; None removes a field."""
        made = {**item, "metadata": {**item["metadata"], **metadata}}
        made["metadata"] = {key: value for key, value in made["metadata"].items() if value is not None}
        namespace, name = item["metadata"].get("namespace", ""), item["metadata"]["name"]
        found, _ = self.resources.replace(kind, namespace, name, made, Options(MANAGER))
        return found.object

    def event(self, about: Object, reason: str, message: str, *, type: str = "Normal", component: str) -> None:
        """Create an event about an object."""
        metadata, now = about["metadata"], self.stamp()
        involved = {"kind": about["kind"], "apiVersion": about["apiVersion"]}
        involved |= {key: metadata[key] for key in ("namespace", "name", "uid", "resourceVersion")}
        item = {
            "metadata": {"generateName": f"{metadata['name']}.", "namespace": metadata["namespace"]},
            "involvedObject": involved,
            "reason": reason,
            "message": message,
            "type": type,
            "source": {"component": component},
            "reportingComponent": component,
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        }
        try:
            self.create("Event", item)
        except ApiFailure as failure:
            log.debug("event not recorded: %s", failure.message)


class Controller:
    """Processes objects one by one, with retries."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self._queue: dict[Key, None] = {}
        self._tries: dict[Key, int] = {}
        self._later: set[asyncio.TimerHandle] = set()
        self._due = False
        cluster.store.listen(self.heard)

    def heard(self, change: Change) -> None:
        """Process a write: `add` the objects that are affected."""
        raise NotImplementedError

    def look(self, namespace: str, name: str) -> None:
        """Reconcile an object."""
        raise NotImplementedError

    def add(self, namespace: str, name: str) -> None:
        """Queue an object."""
        self._queue[namespace, name] = None
        if not self._due:
            self._due = True
            self.cluster.loop.call_soon(self._next)

    def add_later(self, seconds: float, namespace: str, name: str) -> None:
        """Queue an object after some time."""
        handle = self.cluster.loop.call_later(seconds, self.add, namespace, name)
        self._later = {each for each in self._later if not each.cancelled() and each.when() > self.cluster.loop.time()}
        self._later.add(handle)

    def close(self) -> None:
        """Stop."""
        self._queue.clear()
        for handle in self._later:
            handle.cancel()

    def _next(self) -> None:
        self._due = False
        if not self._queue:
            return
        key = next(iter(self._queue))
        del self._queue[key]
        try:
            self.look(*key)
        except ApiFailure as failure:
            tries = self._tries[key] = self._tries.get(key, 0) + 1
            log.debug("%s: %s: %s", type(self).__name__, key, failure.message)
            self.add_later(min(_FIRST_PAUSE_S * 2**tries, _LONGEST_PAUSE_S), *key)
        else:
            self._tries.pop(key, None)
        if self._queue and not self._due:
            self._due = True
            self.cluster.loop.call_soon(self._next)


def controller_of(item: Object) -> Object | None:
    """The owner that controls an object."""
    for each in item["metadata"].get("ownerReferences") or ():
        if each.get("controller"):
            return each  # type: ignore[no-any-return]
    return None


def owner_reference(item: Object, *, block: bool = True) -> Object:
    """The reference to an owner that controls."""
    made = {
        "apiVersion": item["apiVersion"],
        "kind": item["kind"],
        "name": item["metadata"]["name"],
        "uid": item["metadata"]["uid"],
        "controller": True,
    }
    return made | ({"blockOwnerDeletion": True} if block else {})


def changed(item: Object) -> Object:
    """A mutable copy."""
    return whole(item)  # type: ignore[no-any-return]
