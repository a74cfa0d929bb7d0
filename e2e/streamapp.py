"""A StreamApp as its user sees it: its specification, and what `kubectl get` shows."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from typing import Any

from e2e.cluster import Cluster, Object, eventually
from e2e.commands import run
from tests.support.measuring.status_accuracy import is_ready

__all__ = ("StreamApp", "condition", "image_of")

_LABEL = "millpond.dev/app"
_EVENTS_S = 60.0


def condition(app: Object, kind: str) -> Object:
    """Return a condition of an object; an empty one when it has none."""
    conditions = app.get("status", {}).get("conditions", [])
    return next((each for each in conditions if each["type"] == kind), {})


def image_of(pod: Object) -> str:
    """Return the image of a pod."""
    return str(pod["spec"]["containers"][0]["image"])


class StreamApp:
    """One application in the cluster.

    Args:
        cluster: where it is.
        namespace: its namespace.
        name: its name.
    """

    def __init__(self, cluster: Cluster, namespace: str, name: str) -> None:
        self._cluster = cluster
        self.namespace = namespace
        self.name = name

    def apply(self, spec: Mapping[str, Any]) -> None:
        """`kubectl apply` of a manifest."""
        metadata = {"name": self.name, "namespace": self.namespace}
        self._cluster.apply(
            {"apiVersion": "millpond.dev/v1alpha1", "kind": "StreamApp", "metadata": metadata, "spec": dict(spec)}
        )

    def patch(self, **spec: Any) -> None:
        """Change fields of the spec, as `kubectl edit` does."""
        self.kubectl("patch", "sapp", self.name, "--type=merge", "-p", json.dumps({"spec": spec}))

    def scale(self, replicas: int) -> None:
        """`kubectl scale`."""
        self.kubectl("scale", "sapp", self.name, f"--replicas={replicas}")

    def kubectl(self, *arguments: str, timeout_s: float = 120) -> str:
        """Run kubectl in the application's namespace."""
        return self._cluster.kubectl("-n", self.namespace, *arguments, timeout_s=timeout_s)

    def millpond(self, *arguments: str) -> str:
        """Run the command `millpond` with the credentials of the cluster, and return its output."""
        return run(sys.executable, "-m", "millpond.cli", *arguments, environment=self._cluster.environment)

    def object(self) -> Object:
        """Return the current object.

        Raises:
            AssertionError: there is none.
        """
        found = self._cluster.get("streamapps", self.namespace, self.name)
        assert found is not None, f"there is no StreamApp {self.name}"
        return found

    def exists(self) -> bool:
        """Return whether the object exists."""
        return self._cluster.get("streamapps", self.namespace, self.name) is not None

    def pods(self) -> list[Object]:
        """Return the pods of its workers, by name."""
        labels = f"{_LABEL}={self.name},app.kubernetes.io/component=worker"
        pods = self._cluster.objects("pods", self.namespace, labels)
        return sorted(pods, key=lambda pod: str(pod["metadata"]["name"]))

    def left(self) -> list[Object]:
        """Return all its pods: those of workers and of snapshots."""
        return self._cluster.objects("pods", self.namespace, f"{_LABEL}={self.name}")

    def owned(self) -> dict[str, int]:
        """Return the number of tasks that each of its live workers owns, by the worker's name."""
        assignment = self._cluster.get("streamassignments", self.namespace, self.name) or {}
        workers = assignment.get("spec", {}).get("workers", [])
        return {each["name"]: len(each.get("owns", ())) for each in workers if each.get("alive")}

    def logged(self, text: str, since_s: int) -> bool:
        """Return whether each of its workers logged a text within a number of seconds."""
        names = [str(pod["metadata"]["name"]) for pod in self.pods()]
        return all(text in self.kubectl("logs", name, f"--since={since_s}s") for name in names)

    def images(self) -> list[str]:
        """Return the image of each of its pods."""
        return [image_of(pod) for pod in self.pods()]

    def events(self) -> list[Object]:
        """Return the events about it."""
        found = self._cluster.objects("events", self.namespace)
        about = {"kind": "StreamApp", "name": self.name}
        return [each for each in found if about.items() <= each["involvedObject"].items()]

    def reasons(self) -> set[str]:
        """Return the reasons of the events about it."""
        return {str(each["reason"]) for each in self.events()}

    def await_events(self, *reasons: str) -> None:
        """Wait for events about it, which are written after its status."""
        wanted = set(reasons)
        eventually(lambda: wanted <= self.reasons(), f"events {', '.join(reasons)}", _EVENTS_S)

    def until(self, holds: Callable[[Object], bool], what: str, timeout_s: float) -> Object:
        """Wait until a condition holds for the object, and return it.

        Raises:
            AssertionError: it does not in time; the message has the status.
        """
        try:
            return eventually(lambda: app if holds(app := self.object()) else None, what, timeout_s)
        except AssertionError as error:
            status = json.dumps(self.object().get("status", {}), indent=1)
            raise AssertionError(f"{error}; the status of {self.name} is {status}") from None

    def settled(self, replicas: int, timeout_s: float, image: str | None = None) -> Object:
        """Wait until this number of workers, with this image, run all tasks and no change is in progress."""

        def holds(app: Object) -> bool:
            status, pods = app.get("status", {}), self.pods()
            return (
                status.get("observedGeneration") == app["metadata"]["generation"]
                and status.get("phase") == "Running"
                and condition(app, "Ready").get("status") == "True"
                and condition(app, "StandbysCaughtUp").get("status") != "False"
                and status.get("replicas") == status.get("readyReplicas") == replicas
                and _complete(status.get("workers"))
                and _complete(status.get("tasks"))
                and (image is None or {image_of(pod) for pod in pods} == {image})
                # The status may be from before a pod was deleted.
                and len(pods) == replicas
                and all(is_ready(pod) for pod in pods)
            )

        return self.until(
            holds, f"{self.name} runs with {replicas} workers{f' of {image}' if image else ''}", timeout_s
        )


def _complete(share: str | None) -> bool:
    """Return whether a count such as `12/12` is complete."""
    have, _, want = (share or "").partition("/")
    return bool(want) and have == want
