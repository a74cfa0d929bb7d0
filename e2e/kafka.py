"""A Kafka broker as a pod: applications reach it through its Service, the tests through a forwarded port.

A forwarded port needs the API server. Tests that stop the API server reach the broker through a port of its node.
"""

from __future__ import annotations

import contextlib
import socket
import subprocess
import threading
from pathlib import Path
from typing import Self

from confluent_kafka import KafkaException

from e2e.cluster import Cluster, Object, eventually
from e2e.commands import WORK, background, end
from millpond.broker.settings import render, server_properties
from tests.support.broker import free_port
from tests.support.kafka import admin

__all__ = ("RESTRICTED", "Kafka")

_NAME = "kafka"
_INSIDE, _CONTROLLER, _OUTSIDE = 9092, 9093, 19092
_START_S = 120.0
RESTRICTED = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "runAsNonRoot": True,
    "seccompProfile": {"type": "RuntimeDefault"},
}
#: The node of the control plane, where it is one of kind's: tests end other nodes.
_TOLERATION = {"key": "node-role.kubernetes.io/control-plane", "operator": "Exists"}
_PREFERENCE = {"weight": 100, "preference": {"matchExpressions": [_TOLERATION]}}


class Kafka:
    """A broker that runs during the `with` block, with an empty disk at the start.

    Args:
        cluster: where it runs.
        namespace: where it is, and where applications may be too.
        image: of the broker.
        through_node: the tests reach it through a port of the control plane's node, without the API server. They need a
            route to the nodes, as on the machine that runs kind on Linux.

    Attributes:
        address: for the tests.
        namespace: where it is, and where applications may be too.
    """

    def __init__(self, cluster: Cluster, namespace: str, image: str, *, through_node: bool = False) -> None:
        self._cluster = cluster
        self.namespace = namespace
        self._image = image
        self.address = _node_port(cluster, namespace) if through_node else f"127.0.0.1:{free_port()}"
        self._through_node = through_node

    @property
    def inside(self) -> str:
        """The address for pods."""
        return f"{_NAME}.{self.namespace}.svc:{_INSIDE}"

    def __enter__(self) -> Self:
        labels = {"app": _NAME}
        metadata = {"name": _NAME, "namespace": self.namespace, "labels": labels}
        properties = server_properties("0.0.0.0", _INSIDE, _CONTROLLER, Path("/var/lib/kafka/data"))  # noqa: S104
        names = ("INSIDE", "OUTSIDE", "CONTROLLER")
        properties |= {
            "listeners": f"INSIDE://:{_INSIDE},OUTSIDE://:{_OUTSIDE},CONTROLLER://127.0.0.1:{_CONTROLLER}",
            "advertised.listeners": f"INSIDE://{self.inside},OUTSIDE://{self.address}",
            "listener.security.protocol.map": ",".join(f"{name}:PLAINTEXT" for name in names),
            "inter.broker.listener.name": "INSIDE",
        }
        settings = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": metadata,
            "data": {"server.properties": render(properties)},
        }
        service = {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": metadata,
            "spec": {"selector": labels, "ports": [{"name": "kafka", "port": _INSIDE}]},
        }
        self._cluster.apply(
            settings, service, {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": self._pod()}
        )
        self._cluster.kubectl(
            "-n", self.namespace, "wait", f"pod/{_NAME}", "--for=condition=Ready", f"--timeout={_START_S:g}s",
            timeout_s=_START_S + 10,
        )  # fmt: skip
        with contextlib.ExitStack() as stack:
            if not self._through_node:
                port = int(self.address.rpartition(":")[2])
                stack.callback(_Forward(self._cluster, self.namespace, port).close)
            eventually(self.answers, f"the broker answers at {self.address}", 60)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()
        # A pod without a controller would keep its node from being drained.
        self._cluster.kubectl(
            "-n", self.namespace, "delete", f"pod/{_NAME}", "--now", "--wait=false", "--ignore-not-found"
        )

    def pod(self) -> Object:
        """Return its pod.

        Raises:
            AssertionError: there is none.
        """
        found = self._cluster.get("pods", self.namespace, _NAME)
        assert found is not None, "there is no broker"
        return found

    def answers(self) -> bool:
        """Return whether it answers a client of the tests."""
        host, _, port = self.address.rpartition(":")
        with contextlib.suppress(OSError, KafkaException):
            socket.create_connection((host, int(port)), timeout=1).close()
            return bool(admin(self.address).list_topics(timeout=2).brokers)
        return False

    def _pod(self) -> Object:
        return {
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "securityContext": {"runAsUser": 65532, "runAsGroup": 65532, "fsGroup": 65532},
            "tolerations": [{**_TOLERATION, "effect": "NoSchedule"}],
            "affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [_PREFERENCE]}},
            "containers": [
                {
                    "name": _NAME,
                    "image": self._image,
                    "securityContext": {**RESTRICTED, "readOnlyRootFilesystem": True},
                    "ports": [{"containerPort": _INSIDE}, {"containerPort": _OUTSIDE}],
                    "resources": {"requests": {"cpu": "200m", "memory": "768Mi"}},
                    "readinessProbe": {"tcpSocket": {"port": _INSIDE}, "periodSeconds": 1, "failureThreshold": 60},
                    "volumeMounts": [
                        {"name": "settings", "mountPath": "/etc/kafka"},
                        {"name": "data", "mountPath": "/var/lib/kafka"},
                        {"name": "tmp", "mountPath": "/tmp"},  # noqa: S108
                    ],
                }
            ],
            "volumes": [
                {"name": "settings", "configMap": {"name": _NAME}},
                {"name": "data", "emptyDir": {}},
                {"name": "tmp", "emptyDir": {}},
            ],
        }


def _node_port(cluster: Cluster, namespace: str) -> str:
    """Make a Service that opens a port of the broker on every node; return its address on the control plane's node."""
    name = f"{_NAME}-outside"
    ports = [{"name": "kafka", "port": _OUTSIDE}]
    cluster.apply(
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": name, "namespace": namespace},
            "spec": {"type": "NodePort", "selector": {"app": _NAME}, "ports": ports},
        }
    )
    service = cluster.get("services", namespace, name)
    assert service is not None
    nodes = cluster.objects("nodes", labels=str(_TOLERATION["key"])) or cluster.objects("nodes")
    addresses = {each["type"]: each["address"] for each in nodes[0]["status"]["addresses"]}
    return f"{addresses['InternalIP']}:{service['spec']['ports'][0]['nodePort']}"


class _Forward:
    """`kubectl port-forward`, restarted whenever it ends, as it does when a connection is reset."""

    def __init__(self, cluster: Cluster, namespace: str, port: int) -> None:
        self._command = [
            *cluster.command, "-n", namespace, "port-forward", f"pod/{_NAME}", f"{port}:{_OUTSIDE}",
            "--address=127.0.0.1",
        ]  # fmt: skip
        self._over = threading.Event()
        self._process = self._start()
        self._thread = threading.Thread(target=self._keep, name="port-forward", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._over.set()
        self._thread.join()
        end(self._process)

    def _start(self) -> subprocess.Popen[bytes]:
        return background(*self._command, log=WORK / "port-forward.log")

    def _keep(self) -> None:
        while not self._over.wait(0.1):
            if self._process.poll() is not None:
                self._process = self._start()
