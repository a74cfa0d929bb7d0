"""The operator as a process of its own, on a real API server, with the rights that its manifests give it."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import urllib.request
from pathlib import Path
from typing import Self

import yaml

from tests.cluster.api import Api
from tests.cluster.certificates import Access
from tests.cluster.installing import manifests
from tests.support.kafka import eventually

__all__ = ("Operator", "grant_rights")

_ROOT = Path(__file__).parents[2]
#: Machines may be busy, sessions of workers that are gone have to end, and the garbage collector may look every half minute.
PATIENCE_S = 90.0
_ANSWER_S = 30.0
#: Not the lease: a leader that has a short one loses it when the machine is busy.
FAST = {
    "RESYNC_INTERVAL": "3s",
    "WATCH_PATIENCE": "3s",
    "REQUEST_TIMEOUT": "5s",
}


def free_port() -> int:
    """One that stays free until it is bound, however often: none that the system gives to a connection meanwhile."""
    while True:
        port = random.randrange(20_000, 32_000)
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port


def grant_rights(api: Api, namespace: str) -> None:
    """Give the operator's service account in a namespace what its manifests say."""
    for manifest in manifests(_ROOT / "deploy"):
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


class Operator:
    """One operator, started and ended as often as a test likes.

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
    """

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
        self.http_port = free_port()
        self.coordinator_port = free_port()
        self.log = directory / f"{name}.log"
        self.process: subprocess.Popen[bytes] | None = None
        self.name = name
        token = api.token(namespace, "millpond-operator")
        config = Access(access.url, access.ca_file, token=token).kubeconfig()
        self._kubeconfig = directory / f"{name}.kubeconfig"
        self._kubeconfig.write_text(yaml.safe_dump(config))
        self._settings = FAST | {"WATCH_NAMESPACES": namespace if watch is None else watch} | (settings or {})
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def start(self) -> None:
        """Start it; it may not lead yet."""
        settings = {
            "KUBECONFIG": str(self._kubeconfig),
            "NAMESPACE": self.namespace,
            "POD_NAME": self.name,
            "POD_IP": "192.0.2.1",
            "HTTP_HOST": "127.0.0.1",
            "HTTP_PORT": str(self.http_port),
            "COORDINATOR_PORT": str(self.coordinator_port),
        } | self._settings
        environment = {
            **os.environ,
            **{f"MILLPOND_OPERATOR_{key}": value for key, value in settings.items()},
            "PYTHONPATH": os.pathsep.join(str(_ROOT / each) for each in ("worker", "operator")),
        }
        with self._lock, self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "millpond_operator"], env=environment, stdout=log, stderr=log, cwd=_ROOT
            )

    def kill(self) -> None:
        """SIGKILL, and wait for its end."""
        with self._lock:
            if self.process is not None:
                self.process.kill()
                self.process.wait(PATIENCE_S)
                self.process = None

    def stop(self) -> int:
        """SIGTERM, and wait for its end.

        Returns:
            Its status.
        """
        assert self.process is not None
        self.process.terminate()
        status = self.process.wait(PATIENCE_S)
        self.process = None
        return status

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal."""
        assert self.process is not None
        self.process.send_signal(number)

    @property
    def alive(self) -> bool:
        """Whether the process runs."""
        return self.process is not None and self.process.poll() is None

    def metrics(self) -> dict[str, float]:
        """Its figures by name and labels."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.http_port}/metrics", timeout=_ANSWER_S) as answer:
            lines = answer.read().decode().splitlines()
        pairs = (line.rsplit(" ", 1) for line in lines if line and not line.startswith("#"))
        return {name: float(value) for name, value in pairs}

    def leads(self) -> bool:
        """Whether it leads."""
        try:
            return any(
                name.startswith("leader_election_master_status") and value == 1
                for name, value in self.metrics().items()
            )
        except OSError:
            return False

    def await_leading(self) -> None:
        """Wait until it leads."""
        eventually(self.leads, f"the operator leads, see {self.log}", PATIENCE_S)

    def await_reconciling(self) -> None:
        """Wait until it leads, has seen everything, and has worked through it."""

        def through() -> bool:
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{self.http_port}/readyz", timeout=_ANSWER_S):
                    figures = self.metrics()
            except OSError:
                return False
            busy = ("workqueue_depth", "workqueue_unfinished_work_seconds")
            return not any(value for name, value in figures.items() if name.startswith(busy))

        self.await_leading()
        eventually(through, f"the operator reconciles, see {self.log}", PATIENCE_S)

    def tail(self, lines: int = 40) -> str:
        """The end of its log."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:]) if self.log.exists() else ""
