"""A StreamApp on a real API server, made by hand, and what its operator and its nodes would answer."""

from __future__ import annotations

import json
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import psutil
import pytest

from tests.cli.cluster.samples import APP, ASSIGNMENT, Object, pod, pod_status
from tests.cluster.api import Api
from tests.cluster.apiserver import SharedApiServer
from tests.cluster.certificates import Access
from tests.cluster.installing import await_rights
from tests.cluster.waiting import wait_for


@pytest.fixture(scope="session")
def host_address() -> str:
    """An address of this machine that the API server connects to: it rejects those of the loopback interface."""
    for addresses in psutil.net_if_addrs().values():
        for each in addresses:
            if each.family is socket.AF_INET and not each.address.startswith(("127.", "169.254.")):
                return each.address
    pytest.skip("this machine has no address but loopback")


@dataclass(frozen=True)
class ByHand:
    """A namespace with the StreamApp `delays`, whose objects are made by hand."""

    api: Api
    server: SharedApiServer
    namespace: str
    directory: Path

    def make(self) -> None:
        """Create the objects of the sample."""
        self.api.create(self._here(APP) | {"status": None})
        self.api.patch("StreamApp", self.namespace, "delays", {"status": APP["status"]}, subresource="status")
        self.api.create(self._here(ASSIGNMENT))
        self.pod("delays-0", ready=True)
        self.pod("delays-1", ready=True)
        self.pod("delays-2", ready=False, restarts=2, waiting="CrashLoopBackOff")
        for number, (reason, type) in enumerate((("RollingOut", "Normal"), ("WorkerLost", "Warning"))):
            self.api.create(
                {
                    "apiVersion": "v1",
                    "kind": "Event",
                    "metadata": {"name": f"delays.{number}", "namespace": self.namespace},
                    "involvedObject": {"kind": "StreamApp", "name": "delays", "namespace": self.namespace},
                    "type": type,
                    "reason": reason,
                    "message": f"The sample's event {number}.",
                    "lastTimestamp": f"2026-02-02T02:3{number}:00Z",
                    "count": 1 + number,
                }
            )

    def pod(self, name: str, node: str = "", address: str = "", **status: Any) -> None:
        """Create a pod with a status as its node would report it."""
        # The account comes a moment after the namespace.
        wait_for(lambda: self.api.find("ServiceAccount", self.namespace, "default"), "the namespace has its account")
        app = name.rpartition("-")[0]
        self.api.create(pod(name, self.namespace, app=app, node=node or f"node-{self.namespace}"))
        reported = pod_status(**status) | ({"podIP": address, "podIPs": [{"ip": address}]} if address else {})
        self.api.patch("Pod", self.namespace, name, {"status": reported}, subresource="status")

    def kubeconfig(self, access: Access | None = None, name: str = "admin", **context: str) -> Path:
        """Write the kubeconfig of a user, by default one with all rights, with the namespace in its context."""
        config = (access or self.server.admin).kubeconfig()
        config["contexts"][0]["context"] |= {"namespace": self.namespace} | context
        path = self.directory / f"{name}.kubeconfig"
        path.write_text(json.dumps(config))
        return path

    def user(self, name: str, *rules: Object) -> Path:
        """Return the kubeconfig of a user with these rights in the namespace, and no others, once the user has them."""
        metadata = {"name": name, "namespace": self.namespace}
        group = "rbac.authorization.k8s.io"
        self.api.apply({"apiVersion": f"{group}/v1", "kind": "Role", "metadata": metadata, "rules": list(rules)})
        self.api.apply(
            {
                "apiVersion": f"{group}/v1",
                "kind": "RoleBinding",
                "metadata": metadata,
                "roleRef": {"apiGroup": group, "kind": "Role", "name": name},
                "subjects": [{"apiGroup": group, "kind": "User", "name": f"{name}-{self.namespace}"}],
            }
        )
        await_rights(self.api, f"{name}-{self.namespace}", self.namespace, rules)
        return self.kubeconfig(self.server.user(f"{name}-{self.namespace}"), name)

    def service(self, address: str, port: int, *, endpoints: bool = True) -> str:
        """Create the Service of the operator's console; return its namespace and name."""
        self.api.apply(
            {
                "apiVersion": "v1",
                "kind": "Service",
                "metadata": {"name": "millpond-console", "namespace": self.namespace},
                "spec": {"ports": [{"name": "http", "port": 8081, "targetPort": port}]},
            }
        )
        if endpoints:
            # The API server wants the address to be that of a pod.
            self.pod("millpond-operator-0", ready=True, address=address)
            target = {"kind": "Pod", "namespace": self.namespace, "name": "millpond-operator-0"}
            subset = {
                "addresses": [{"ip": address, "targetRef": target}],
                "ports": [{"name": "http", "port": port}],
            }
            metadata = {"name": "millpond-console", "namespace": self.namespace}
            body = {"apiVersion": "v1", "kind": "Endpoints", "metadata": metadata, "subsets": [subset]}
            self.api.request("POST", f"/api/v1/namespaces/{self.namespace}/endpoints", body)
        return f"{self.namespace}/millpond-console"

    def node(self, address: str, port: int) -> None:
        """Create the node of the pods, with a kubelet at an address."""
        name = f"node-{self.namespace}"
        self.api.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})
        status = {
            "addresses": [{"type": "InternalIP", "address": address}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": port}},
        }
        self.api.patch("Node", None, name, {"status": status}, subresource="status")

    def _here(self, given: Object) -> Object:
        return {**given, "metadata": {**given["metadata"], "namespace": self.namespace}}


@pytest.fixture
def by_hand(api: Api, api_server: SharedApiServer, crds: None, namespace: str, tmp_path: Path) -> Iterator[ByHand]:
    made = ByHand(api, api_server, namespace, tmp_path)
    made.make()
    yield made
    api.delete("Node", None, f"node-{namespace}")
    for each in api.list("Pod", namespace):
        api.delete("Pod", namespace, each["metadata"]["name"], gracePeriodSeconds=0)


Answer = Callable[[str, dict[str, str]], tuple[int, Any]]
"""Returns status and body for a path and the query: JSON, bytes, or an iterator of bytes that stays open."""


@dataclass
class Stub:
    """An HTTP server with the answers of a test, and the requests that it got."""

    address: str
    port: int
    requests: list[tuple[str, dict[str, str], dict[str, str]]] = field(default_factory=list)
    """Path, query and headers."""

    @property
    def paths(self) -> list[str]:
        return [path for path, _, _ in self.requests]


@contextmanager
def served(answer: Answer, address: str = "127.0.0.1", certificate: Path | None = None) -> Iterator[Stub]:
    """Serve answers on a port of an address, with TLS if a certificate is given."""
    stub: list[Stub] = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            url = urlsplit(self.path)
            query = {key: values[-1] for key, values in parse_qs(url.query).items()}
            stub[0].requests.append((url.path, query, dict(self.headers)))
            status, body = answer(url.path, query)
            self.send_response(status)
            if hasattr(body, "__next__"):
                self.send_header("Transfer-Encoding", "chunked")
                self.end_headers()
                for each in body:
                    self.wfile.write(b"%x\r\n%s\r\n" % (len(each), each))
                self.wfile.write(b"0\r\n\r\n")
                return
            raw = body if isinstance(body, bytes) else json.dumps(body).encode()
            self.send_header("Content-Length", str(len(raw)))
            self.end_headers()
            self.wfile.write(raw)

        def log_message(self, *_: object) -> None: ...

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        block_on_close = False

        def handle_error(self, *_: object) -> None: ...

    server = Server((address, 0), Handler)
    if certificate is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        server.socket = context.wrap_socket(server.socket, server_side=True)
    stub.append(Stub(address, server.server_address[1]))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield stub[0]
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def eventually(holds: Callable[[], bool], what: str, seconds: float = 30.0) -> None:
    """Wait for a condition."""
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, f"waited in vain: {what}"
        time.sleep(0.02)
