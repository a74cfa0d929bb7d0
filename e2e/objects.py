"""An S3 server as a pod, and the Secret with its credentials."""

from __future__ import annotations

from e2e.cluster import Cluster
from e2e.kafka import RESTRICTED

__all__ = ("ObjectStore",)

_NAME = "objects"
_PORT = 9000
_READY_S = 60.0


class ObjectStore:
    """A server with one bucket, which is empty at the start.

    Attributes:
        location: of snapshots.
        secret: the name of the Secret.
    """

    def __init__(self, cluster: Cluster, namespace: str, image: str) -> None:
        self._cluster = cluster
        self._namespace = namespace
        self._image = image
        self.location = "s3://states/e2e"
        self.secret = f"{_NAME}-credentials"

    def start(self) -> None:
        """Start it, and wait until it listens."""
        labels = {"app": _NAME}
        metadata = {"name": _NAME, "namespace": self._namespace, "labels": labels}
        key, secret = "AKIDEXAMPLE", "s3cr3t-of-the-test"
        credentials = {
            "AWS_ACCESS_KEY_ID": key,
            "AWS_SECRET_ACCESS_KEY": secret,
            "AWS_REGION": "us-east-1",
            "AWS_ENDPOINT_URL": f"http://{_NAME}.{self._namespace}.svc:{_PORT}",
        }
        given = {"ROOT_ACCESS_KEY": key, "ROOT_SECRET_KEY": secret, "BUCKET": "states"}
        container = {
            "name": _NAME,
            "image": self._image,
            "env": [{"name": name, "value": value} for name, value in given.items()],
            "securityContext": RESTRICTED,
            "ports": [{"containerPort": _PORT}],
            "readinessProbe": {"tcpSocket": {"port": _PORT}, "periodSeconds": 1, "failureThreshold": 60},
            "volumeMounts": [{"name": "data", "mountPath": "/data"}],
        }
        pod = {
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "securityContext": {"runAsUser": 65532, "runAsGroup": 65532, "fsGroup": 65532},
            "containers": [container],
            "volumes": [{"name": "data", "emptyDir": {}}],
        }
        self._cluster.apply(
            {
                "apiVersion": "v1",
                "kind": "Secret",
                "metadata": {"name": self.secret, "namespace": self._namespace},
                "stringData": credentials,
            },
            {
                "apiVersion": "v1",
                "kind": "Service",
                "metadata": metadata,
                "spec": {"selector": labels, "ports": [{"name": "s3", "port": _PORT}]},
            },
            {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": pod},
        )
        self._cluster.kubectl(
            "-n", self._namespace, "wait", f"pod/{_NAME}", "--for=condition=Ready", f"--timeout={_READY_S:g}s",
            timeout_s=_READY_S + 10,
        )  # fmt: skip

    def stop(self) -> None:
        """Remove the server and its data."""
        self._cluster.kubectl(
            "-n", self._namespace, "delete", f"pod/{_NAME}", f"service/{_NAME}", f"secret/{self.secret}", "--now"
        )
