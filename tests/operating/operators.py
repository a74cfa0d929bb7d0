"""An operator under test, with the rights of its manifests: a real process or a simulated one."""

from __future__ import annotations

import abc
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, ClassVar, Self

import yaml
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from tests.cluster.api import Api
from tests.cluster.certificates import Access
from tests.cluster.installing import manifests
from tests.cluster.waiting import PATIENCE_S, wait_for

__all__ = ("Operator", "grant_namespaced_rights", "grant_rights")

ROOT = Path(__file__).parents[2]
_RBAC, _DRIVER = "rbac.authorization.k8s.io/v1", "millpond-snapshot-driver"


def grant_rights(api: Api, namespace: str) -> None:
    """Grant the operator's service account in a namespace the rights of the manifests."""
    for manifest in manifests(ROOT / "deploy"):
        kind, name = manifest["kind"], manifest.get("metadata", {}).get("name", "")
        if kind in {"ServiceAccount", "Role", "RoleBinding"}:
            manifest["metadata"]["namespace"] = namespace
        elif kind == "ClusterRoleBinding":
            manifest["metadata"]["name"] = f"{name}-{namespace}"
        elif kind != "ClusterRole":
            continue
        for subject in manifest.get("subjects", ()):
            subject["namespace"] = namespace
        api.apply(manifest)


def grant_namespaced_rights(api: Api, namespace: str, watched: Iterable[str], names: Mapping[str, str]) -> None:
    """Grant the operator's account in a namespace the rights of the manifests, without a right in the cluster.

    Args:
        api: to grant them with.
        namespace: the operator's.
        watched: the namespaces that it serves.
        names: the names of its objects that differ from those in the manifests.
    """
    found = {(each["kind"], each["metadata"]["name"]): each for each in manifests(ROOT / "deploy") if "rules" in each}
    rules = found["ClusterRole", "millpond-operator"]["rules"]
    driver = found["ClusterRole", _DRIVER]["rules"]
    own = found["Role", "millpond-operator"]["rules"]
    for rule in rules:  # the role of snapshots is one in their namespace, too
        rule["resources"] = [{"clusterroles": "roles"}.get(each, each) for each in rule["resources"]]
    for rule in own:
        if "resourceNames" in rule:
            rule["resourceNames"] = [names.get(each, each) for each in rule["resourceNames"]]
    account = {"kind": "ServiceAccount", "name": "millpond-operator", "namespace": namespace}
    _apply(api, "v1", "ServiceAccount", namespace, "millpond-operator")
    roles = [(namespace, "millpond-operator", own)]
    for each in watched:
        roles += [(each, "millpond-operator-workers", rules), (each, _DRIVER, driver)]
    for where, name, granted in roles:
        _apply(api, _RBAC, "Role", where, name, rules=granted)
        if name != _DRIVER:
            role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name}
            _apply(api, _RBAC, "RoleBinding", where, name, roleRef=role, subjects=[account])


def _apply(api: Api, version: str, kind: str, namespace: str, name: str, **fields: Any) -> None:
    metadata = {"name": name, "namespace": namespace}
    api.apply({"apiVersion": version, "kind": kind, "metadata": metadata, **fields})


class Operator(abc.ABC):
    """One operator, which a test can start and stop repeatedly.

    Args:
        api: to make its token with.
        access: how it reaches the API server: straight, or through a proxy.
        namespace: its own, and the one it watches.
        directory: for its kubeconfig and log.
        settings: environment variables without their prefix.
        name: of its pod.
        watch: the namespaces that it watches, if not its own.

    Attributes:
        name: of its pod.
        log: the file that it logs to.
        starts: how often it was started.
    """

    defaults: ClassVar[dict[str, str]] = {}
    """Settings that other operators override."""

    def __init__(
        self,
        api: Api,
        access: Access,
        namespace: str,
        directory: Path,
        settings: dict[str, str] | None = None,
        name: str = "operator-0",
        watch: str | None = None,
    ) -> None:
        self.namespace = namespace
        self.api = api
        self.http_port = self._free_port()
        self.coordinator_port = self._free_port()
        self.log = directory / f"{name}.log"
        self.name = name
        self.starts = 0
        token = api.token(namespace, "millpond-operator")
        config = Access(access.url, access.ca_file, token=token).kubeconfig()
        self._kubeconfig = directory / f"{name}.kubeconfig"
        self._kubeconfig.write_text(yaml.safe_dump(config))
        self._settings = self.defaults | {"WATCH_NAMESPACES": namespace if watch is None else watch} | (settings or {})

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def environment(self) -> dict[str, str]:
        """Return its environment variables."""
        settings = {
            "KUBECONFIG": str(self._kubeconfig),
            "NAMESPACE": self.namespace,
            "POD_NAME": self.name,
            "POD_IP": "192.0.2.1",
            "HTTP_HOST": "127.0.0.1",
            "HTTP_PORT": str(self.http_port),
            "COORDINATOR_PORT": str(self.coordinator_port),
        } | self._settings
        return {f"MILLPOND_OPERATOR_{key}": value for key, value in settings.items()}

    @abc.abstractmethod
    def start(self) -> None:
        """Start it. It need not lead yet."""

    @abc.abstractmethod
    def kill(self) -> None:
        """Send SIGKILL and wait until it has ended."""

    @abc.abstractmethod
    def stop(self) -> int:
        """Send SIGTERM and wait until it has ended.

        Returns:
            Its status.
        """

    @abc.abstractmethod
    def freeze(self) -> None:
        """Stop it as a hanging machine does."""

    @abc.abstractmethod
    def thaw(self) -> None:
        """Let it go on."""

    @abc.abstractmethod
    def ended(self, seconds: float = PATIENCE_S) -> int:
        """Wait until it has ended without being stopped.

        Returns:
            Its status.
        """

    @property
    @abc.abstractmethod
    def alive(self) -> bool:
        """Whether the process runs."""

    @abc.abstractmethod
    def tail(self, lines: int = 40) -> str:
        """Return the end of its log."""

    @abc.abstractmethod
    def fetch(self, path: str) -> str:
        """Return the response of its HTTP server at a path.

        Raises:
            OSError: it does not answer, or with an error.
        """

    @abc.abstractmethod
    def _free_port(self) -> int: ...

    def metrics(self) -> list[Sample]:
        """Return the samples of its metrics."""
        families = text_string_to_metric_families(self.fetch("/metrics"))
        return [sample for family in families for sample in family.samples]

    def metric(self, name: str, **labels: str) -> float | None:
        """Return the sum of the samples of a metric that have these labels; None if there are none."""
        values = [each.value for each in self.metrics() if each.name == name and labels.items() <= each.labels.items()]
        return sum(values) if values else None

    def leads(self) -> bool:
        """Return whether it leads."""
        try:
            return self.metric("leader_election_master_status") == 1
        except OSError:
            return False

    def await_leading(self) -> None:
        """Wait until it leads."""
        wait_for(self.leads, "the operator leads", otherwise=self.tail)

    def await_reconciling(self) -> None:
        """Wait until it leads and has reconciled all objects."""

        def through() -> bool:
            try:
                self.fetch("/readyz")
                samples = self.metrics()
            except OSError:
                return False
            busy = ("workqueue_depth", "workqueue_unfinished_work_seconds")
            return not any(each.value for each in samples if each.name in busy)

        self.await_leading()
        wait_for(through, "the operator reconciles", otherwise=self.tail)
