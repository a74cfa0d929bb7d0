"""A stage that several tests share, with a running operator and StreamApps as people write them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.cluster.api import Api, ApiFailure, Object
from tests.cluster.faultproxy import FaultProxy
from tests.cluster.nodes.kubelets import Kubelets
from tests.cluster.waiting import PATIENCE_S, POLL_S, wait_for
from tests.operating.operators import Operator
from tests.operating.stage import Stage
from tests.operating.world import World

__all__ = ("BASE", "TASKS", "Scene", "merged", "scene_of")

TASKS = 4
#: Nothing happens to the operator or its watches here, and machines may be busy.
_CALM = {
    "RESYNC_INTERVAL": "60s",
    "WATCH_PATIENCE": "60s",
    "REQUEST_TIMEOUT": "10s",
}
#: The least that a StreamApp needs, and no wait for what takes no time here.
BASE: Object = {
    "image": "delays:1",
    "topology": "app:delays",
    "kafka": {"bootstrapServers": "kafka:9092"},
    "rollout": {"minReady": "0s"},
}


def merged(spec: Object, changes: Object) -> Object:
    """Return a specification with changes: None removes a field, lists are replaced."""
    made = dict(spec)
    for key, value in changes.items():
        if value is None:
            made.pop(key, None)
        elif isinstance(value, dict) and isinstance(made.get(key), dict):
            made[key] = merged(made[key], value)
        else:
            made[key] = value
    return made


@dataclass(frozen=True)
class Scene:
    """The objects and actions of a test. Thread-safe."""

    api: Api
    namespace: str
    kubelets: Kubelets
    operator: Operator
    proxy: FaultProxy
    """The proxy between the operator and the API server."""

    def apply(self, name: str, spec: Object, **metadata: Any) -> Object:
        """Apply a StreamApp as `kubectl apply --server-side` does."""
        return self.api.apply(
            {
                "apiVersion": "millpond.dev/v1alpha1",
                "kind": "StreamApp",
                "metadata": {"name": name, "namespace": self.namespace, **metadata},
                "spec": spec,
            }
        )

    def refusal(self, name: str, spec: Object) -> str:
        """Return the message with which the API server rejects a StreamApp; "" when it accepts it."""
        try:
            self.apply(name, spec)
        except ApiFailure as failure:
            assert failure.status == 422, failure
            return " ".join(failure.message.split())
        return ""

    def get(self, kind: str, name: str) -> Object:
        """Return an object."""
        return self.api.get(kind, self.namespace, name)

    def find(self, kind: str, name: str) -> Object | None:
        """Return an object; None when it does not exist."""
        return self.api.find(kind, self.namespace, name)

    def delete(self, kind: str, name: str, **options: Any) -> None:
        """Delete an object."""
        self.api.delete(kind, self.namespace, name, **options)

    def patch(self, kind: str, name: str, patch: Any) -> Object:
        """Change an object."""
        return self.api.patch(kind, self.namespace, name, patch)

    def annotate(self, name: str, key: str, value: str | None) -> None:
        """Annotate a StreamApp; None removes it."""
        self.patch("StreamApp", name, {"metadata": {"annotations": {f"millpond.dev/{key}": value}}})

    def of_app(self, kind: str, name: str) -> list[Object]:
        """Return the objects of a kind that belong to a StreamApp."""
        return self.api.list(kind, self.namespace, f"millpond.dev/app={name}")

    def pods(self, name: str) -> dict[str, Object]:
        """Return the pods of a StreamApp's workers, by name."""
        found = self.api.list("Pod", self.namespace, f"millpond.dev/app={name},app.kubernetes.io/component=worker")
        return {pod["metadata"]["name"]: pod for pod in found}

    def uids(self, kind: str, name: str) -> dict[str, str]:
        """Return the uids of a StreamApp's objects by name: a recreated object has another uid."""
        return {each["metadata"]["name"]: each["metadata"]["uid"] for each in self.of_app(kind, name)}

    def status(self, name: str) -> Object:
        """Return the status of a StreamApp."""
        found: Object = (self.find("StreamApp", name) or {}).get("status", {})
        return found

    def condition(self, name: str, type: str) -> Object:
        """Return one of its conditions."""
        return condition_in(self.status(name), type)

    def events(self, name: str) -> list[Object]:
        """Return the events about a StreamApp."""
        found = self.api.list("Event", self.namespace)
        about = {"kind": "StreamApp", "name": name}
        return [each for each in found if about.items() <= each["involvedObject"].items()]

    def settled(self, name: str) -> bool:
        """Return whether the operator has finished the requested change."""
        app = self.get("StreamApp", name)
        status = app.get("status", {})
        if status.get("observedGeneration") != app["metadata"]["generation"] or {"rollout", "scaling"} & status.keys():
            return False
        true = {each["type"] for each in status["conditions"] if each["status"] == "True"}
        if "Degraded" in true:
            return False
        return "Suspended" in true or ("Ready" in true and self.placed(name) == TASKS)

    def placed(self, name: str) -> int:
        """Return how many tasks have a known owner."""
        workers = (self.find("StreamAssignment", name) or {"spec": {}})["spec"].get("workers", ())
        return sum(len({*worker.get("owns", ())} & {*worker.get("active", ())}) for worker in workers)

    def await_settled(self, name: str, seconds: float = PATIENCE_S) -> None:
        """Wait until the operator has finished the requested change."""
        self.eventually(lambda: self.settled(name), lambda: f"{name} settles: {self.status(name)}", seconds)

    def eventually(
        self,
        holds: Callable[[], bool],
        what: Callable[[], object] | str,
        seconds: float = PATIENCE_S,
        poll_s: float = POLL_S,
    ) -> None:
        """Wait for a condition; `what` is called only when it does not become true."""
        try:
            wait_for(holds, "", seconds, poll_s=poll_s)
        except AssertionError:
            words = what if isinstance(what, str) else what()
            raise AssertionError(f"waited {seconds} s in vain: {words}\n{self.operator.tail(25)}") from None

    def await_true(self, name: str, type: str, reason: str | None = None) -> Object:
        """Wait until a condition is True, with this reason; return it."""

        def holds() -> bool:
            found = self.condition(name, type)
            return found.get("status") == "True" and reason in {None, found["reason"]}

        self.eventually(holds, lambda: f"{name} is {type} ({reason}): {self.status(name)}")
        return self.condition(name, type)


def condition_in(status: Object, type: str) -> Object:
    """Return one of the conditions of a status."""
    return next((each for each in status.get("conditions", ()) if each["type"] == type), {})


@contextlib.contextmanager
def scene_of(world: World, directory: Path, name: str, **settings: str) -> Iterator[Scene]:
    """Provide a scene, and check the invariants after it."""
    namespace = world.namespace(name)
    try:
        with Stage(world, namespace, directory, _CALM | settings, TASKS) as stage:
            stage.kubelets.images["delays:3"] = stage.kubelets.images["delays:2"]
            stage.start()
            yield Scene(world.api, namespace, stage.kubelets, stage.operator, stage.proxy)
            log = stage.operator.tail(1_000_000)
            assert stage.operator.starts == 1 and stage.operator.alive, f"the operator ended:\n{log[-8000:]}"
            assert "Traceback" not in log, log[log.index("Traceback") :][:8000]
            assert not stage.violations()
    finally:
        world.api.delete("Namespace", None, namespace)
