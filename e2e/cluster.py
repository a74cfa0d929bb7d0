"""A cluster as its user sees it: `kubectl` for actions, and the API through `kubectl proxy` for observations."""

from __future__ import annotations

import http.client
import json
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Self, TypeVar

from e2e.commands import WORK, background, end, run
from tests.support.patience import PATIENCE

__all__ = ("Cluster", "NoAnswer", "Object", "eventually", "path_of")

Object = dict[str, Any]
"""A Kubernetes object as JSON."""

_PATHS = {
    "namespaces": "/api/v1",
    "nodes": "/api/v1",
    "pods": "/api/v1",
    "services": "/api/v1",
    "events": "/api/v1",
    "persistentvolumeclaims": "/api/v1",
    "persistentvolumes": "/api/v1",
    "leases": "/apis/coordination.k8s.io/v1",
    "deployments": "/apis/apps/v1",
    "statefulsets": "/apis/apps/v1",
    "poddisruptionbudgets": "/apis/policy/v1",
    "streamapps": "/apis/millpond.dev/v1alpha1",
    "statebootstraps": "/apis/millpond.dev/v1alpha1",
    "streamassignments": "/apis/millpond.dev/v1alpha1",
}
T = TypeVar("T")

_LOOK_EVERY_S = 0.3
_ANSWER_S = 30.0


class NoAnswer(urllib.error.URLError):
    """The API server did not answer a read, or is busy: nothing is known now."""


def eventually(look: Callable[[], T | None], what: str, timeout_s: float, every_s: float = _LOOK_EVERY_S) -> T:
    """Poll until a result is true, and return it. A look without an answer of the API server is repeated.

    Args:
        look: returns the result.
        what: its description.
        timeout_s: how long that may take on a quiet machine; the wait is `PATIENCE` times as long.
        every_s: how often to look.

    Raises:
        AssertionError: it was never true; `what` says what was waited for.
    """
    timeout_s *= PATIENCE
    deadline = time.monotonic() + timeout_s
    while True:
        trouble = ""
        try:
            if seen := look():
                return seen
        except NoAnswer as error:
            trouble = f"; {error}"
        assert time.monotonic() < deadline, f"waited {timeout_s:g} s in vain: {what}{trouble}"
        time.sleep(every_s)


def path_of(plural: str, namespace: str | None = None, name: str | None = None) -> str:
    """Return the path of objects of a kind, or of one of them."""
    parts = [_PATHS[plural], *(["namespaces", namespace] if namespace else []), plural, *([name] if name else [])]
    return "/".join(parts)


class Cluster:
    """A running cluster.

    Args:
        kubectl: the program.
        kubeconfig: the file that names the cluster; kubectl's own choice without.
    """

    def __init__(self, kubectl: str, kubeconfig: Path | None) -> None:
        self._kubeconfig = kubeconfig
        self._kubectl = [kubectl, *([f"--kubeconfig={kubeconfig}"] if kubeconfig else [])]
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        self._address = ""

    @property
    def command(self) -> Sequence[str]:
        """`kubectl` with the arguments that name this cluster."""
        return self._kubectl

    @property
    def environment(self) -> dict[str, str]:
        """The variables that name this cluster for other programs."""
        return {"KUBECONFIG": str(self._kubeconfig)} if self._kubeconfig else {}

    def __enter__(self) -> Self:
        log = WORK / "kubectl-proxy.log"
        log.unlink(missing_ok=True)
        self._proxy = background(*self._kubectl, "proxy", "--port=0", log=log)

        def address() -> str | None:
            words = log.read_text().split()
            return words[-1] if words[:2] == ["Starting", "to"] else None

        try:
            self._address = f"http://{eventually(address, 'kubectl proxy', 60, 0.05)}"
        except BaseException:
            end(self._proxy)
            raise
        return self

    def __exit__(self, *_: object) -> None:
        end(self._proxy)

    def kubectl(self, *arguments: str, text: str | None = None, timeout_s: float = 120) -> str:
        """Run kubectl and return its output.

        Raises:
            CommandFailed: it failed.
        """
        return run(*self._kubectl, *arguments, text=text, timeout_s=timeout_s)

    def apply(self, *objects: Object) -> None:
        """`kubectl apply` of objects."""
        bundle = {"apiVersion": "v1", "kind": "List", "items": list(objects)}
        self.kubectl("apply", "-f", "-", text=json.dumps(bundle))

    def get(self, plural: str, namespace: str | None, name: str) -> Object | None:
        """Return an object; None when it does not exist."""
        return self.read(path_of(plural, namespace, name))

    def objects(self, plural: str, namespace: str | None = None, labels: str = "") -> list[Object]:
        """Return the objects of a kind, all or those with some labels."""
        answer = self.read(path_of(plural, namespace) + (f"?labelSelector={labels}" if labels else ""))
        return [] if answer is None else answer["items"]

    def recreate_namespace(self, name: str) -> None:
        """Create a namespace for tests, after one of an earlier run has been deleted."""
        self.kubectl("delete", "namespace", name, "--ignore-not-found", "--wait=true", timeout_s=180)
        labels = {"pod-security.kubernetes.io/enforce": "restricted"}
        self.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}})

    def read(self, path: str) -> Object | None:
        """Return what the API server answers for a path; None when there is nothing.

        Raises:
            NoAnswer: it does not answer, or answers in part, or is busy.
        """
        try:
            with self._opener.open(self._address + path, timeout=_ANSWER_S) as answer:
                return json.load(answer)  # type: ignore[no-any-return]
        except urllib.error.HTTPError as error:
            if error.code == 404:
                return None
            if error.code == 429 or error.code >= 500:
                raise NoAnswer(f"{path}: {error}") from error
            raise
        except (OSError, http.client.HTTPException, json.JSONDecodeError) as error:
            raise NoAnswer(f"{path}: {error!r}") from error
