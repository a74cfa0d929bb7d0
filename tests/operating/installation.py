"""An operator with two tenants on a real API server, installed for the cluster or for some namespaces only."""

from __future__ import annotations

import contextlib
import http.client
import ssl
from collections.abc import Iterator
from pathlib import Path

from millpond.protocol import Heartbeat
from millpond.protocol.messages import encode
from tests.cluster.api import Object
from tests.cluster.nodes.images import Image, topology
from tests.cluster.nodes.kubelets import Kubelets
from tests.cluster.waiting import wait_for
from tests.operating.operators import Operator, grant_namespaced_rights, grant_rights
from tests.operating.world import World

__all__ = ("APP", "NAMES", "Installation", "install")

APP = "pay"
TASKS = 2
#: Who has no valid token may connect four times a second in the long run.
_POLL_S = 0.3
_RESTRICTED = {"pod-security.kubernetes.io/enforce": "restricted"}
#: As a chart's release may call them.
NAMES = {
    "millpond-operator": "blue",
    "millpond-coordinator": "blue-coordinator",
    "millpond-coordinator-tls": "blue-tls",
}
_NAMESPACED = {
    "TOKEN_VERIFICATION": "keys",
    "SNAPSHOT_DRIVER_ROLE": "Role/millpond-snapshot-driver",
    "LEASE_NAME": NAMES["millpond-operator"],
    "COORDINATOR_SERVICE": NAMES["millpond-coordinator"],
    "CERTIFICATE_SECRET": NAMES["millpond-coordinator-tls"],
}


class Installation:
    """The operator, and a StreamApp with two workers in each of two namespaces."""

    def __init__(self, world: World, system: str, tenants: tuple[str, str], operator: Operator) -> None:
        self.world = world
        self.api = world.api
        self.system = system
        self.shop, self.bank = tenants
        self.operator = operator

    def create_app(self, namespace: str, name: str = APP, **spec: object) -> None:
        """Create a StreamApp with two workers."""
        given = {
            "image": "delays:1",
            "topology": "app:delays",
            "applicationId": f"{namespace}-{name}",
            "replicas": 2,
            "kafka": {"bootstrapServers": "kafka:9092"},
            "rollout": {"minReady": "0s"},
        }
        metadata = {"name": name, "namespace": namespace}
        kind = {"apiVersion": "millpond.dev/v1alpha1", "kind": "StreamApp"}
        self.api.apply({**kind, "metadata": metadata, "spec": given | spec})

    def await_ready(self, namespace: str, name: str = APP) -> None:
        """Wait until a StreamApp is ready."""

        def status() -> Object:
            found: Object = (self.api.find("StreamApp", namespace, name) or {}).get("status", {})
            return found

        def ready() -> bool:
            conditions = {each["type"]: each["status"] for each in status().get("conditions", ())}
            return conditions.get("Ready") == "True" and status().get("tasks") == f"{TASKS}/{TASKS}"

        wait_for(ready, f"{namespace}/{name} is ready", otherwise=lambda: f"{status()}\n{self.operator.tail(30)}")

    def token(self, namespace: str, worker: str, audience: str | None = "millpond-coordinator") -> str:
        """Return a token as the kubelet gets it for a worker's pod."""
        return self.api.token(namespace, APP, audience, self.api.get("Pod", namespace, worker))

    def heartbeat(self, token: str | None, namespace: str, worker: str, app: str = APP) -> int:
        """Post a heartbeat as a worker, without effect: its body is that of another application.

        Returns:
            The HTTP status: 400 if the token is that worker's, 401 or 403 if it is not.
        """
        application = f"{namespace}-{app}"
        path = f"/namespaces/{namespace}/{app}/v1/applications/{application}/workers/{worker}/heartbeat"
        body = encode(Heartbeat("none", worker, "i", 1, "h"))
        return self._post(path, body, {} if token is None else {"Authorization": f"Bearer {token}"}, namespace, app)

    def _post(self, path: str, body: bytes, headers: dict[str, str], namespace: str, app: str) -> int:
        """Post as soon as the coordinator has a connection for this address."""
        trusted = self.api.get("ConfigMap", namespace, f"{app}-coordinator")["data"]["ca.crt"]
        context = ssl.create_default_context(cadata=trusted)
        context.check_hostname = False
        answers: list[int] = []

        def answered() -> bool:
            connection = http.client.HTTPSConnection(
                "127.0.0.1", self.operator.coordinator_port, timeout=30, context=context
            )
            try:
                connection.request("POST", path, body, {"Content-Type": "application/json"} | headers)
                answers.append(connection.getresponse().status)
            except OSError:
                return False
            finally:
                connection.close()
            return answers[-1] != http.HTTPStatus.SERVICE_UNAVAILABLE

        wait_for(answered, "the coordinator answers", poll_s=_POLL_S)
        return answers[-1]


@contextlib.contextmanager
def install(world: World, directory: Path, *, namespaced: bool, **settings: str) -> Iterator[Installation]:
    """Install an operator for two namespaces, with rights in the cluster or in these namespaces only."""
    system, shop, bank = (world.namespace(name) for name in ("system", "shop", "bank"))
    watch = f"{shop},{bank}"
    try:
        with contextlib.ExitStack() as stack:
            for each in (system, shop, bank):
                world.api.patch("Namespace", None, each, {"metadata": {"labels": _RESTRICTED}})
            if namespaced:
                grant_namespaced_rights(world.api, system, (shop, bank), NAMES)
            else:
                grant_rights(world.api, system)
            first = None
            for tenant in (shop, bank):
                access = world.server.admin
                kubelets = Kubelets(world.background, access, tenant, operator_namespace=system, beside=first)
                first = first or kubelets
                stack.enter_context(kubelets)
            assert first is not None
            first.images |= {"delays:1": Image(topology(TASKS)), "spark:1": Image(snapshot_after=1)}
            given = (_NAMESPACED if namespaced else {}) | settings
            operator = world.operator(world.api, world.server.admin, system, directory, given, watch=watch)
            stack.enter_context(operator)
            operator.await_leading()
            yield Installation(world, system, (shop, bank), operator)
            log = operator.tail(1_000_000)
            assert operator.alive and "Traceback" not in log, log[-8000:]
    finally:
        for each in (system, shop, bank):
            world.api.delete("Namespace", None, each)
