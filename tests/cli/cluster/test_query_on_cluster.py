"""`millpond query --kubernetes`: queries through the API server to a port of a pod, with token and TLS end to end."""

from __future__ import annotations

import asyncio
import gc
import json
import threading
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import trustme
from aiohttp import WSMsgType, web

import millpond as mp
from tests.cli.cluster.conftest import eventually, served
from tests.cli.cluster.samples import APP, pod, pod_status
from tests.cli.conftest import Millpond
from tests.queries.application import Application

# The official client leaves its connection open if both ends close theirs at once; the process ends soon after.
pytestmark = [
    pytest.mark.filterwarnings("ignore:unclosed <(socket|ssl):ResourceWarning"),
    pytest.mark.filterwarnings("ignore:Exception ignored in. <socket:pytest.PytestUnraisableExceptionWarning"),
]


class StubCluster:
    """An API server with one StreamApp, which forwards port 8081 of its pods to a worker of this machine."""

    def __init__(self) -> None:
        self.target = ("127.0.0.1", 0)
        self.app = APP
        self.pods = [pod("delays-0", "shop"), pod("delays-1", "shop")]
        self.refuses: set[str] = set()
        """Pods to which the user has no right."""
        self.gone: set[str] = set()
        self.forwarded: list[str] = []
        self.port = 0
        self._runner: web.AppRunner | None = None

    async def start(self) -> None:
        application = web.Application()
        apps = "/apis/millpond.dev/v1alpha1/namespaces/shop/streamapps/delays"
        application.router.add_get(apps, self._app)
        application.router.add_get("/api/v1/namespaces/shop/pods", self._pods)
        application.router.add_get("/api/v1/namespaces/shop/pods/{pod}/portforward", self._forward)
        self._runner = web.AppRunner(application)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        assert self._runner is not None
        await self._runner.cleanup()

    async def _app(self, _request: web.Request) -> web.Response:
        return web.json_response(self.app)

    async def _pods(self, _request: web.Request) -> web.Response:
        return web.json_response({"items": [each | {"status": pod_status(ready=True)} for each in self.pods]})

    async def _forward(self, request: web.Request) -> web.StreamResponse:
        name, port = request.match_info["pod"], int(request.query["ports"])
        assert port == 8081
        if name in self.refuses:
            message = (
                f'pods "{name}" is forbidden: User "jo" cannot create resource "pods/portforward" in API group "" '
                'in the namespace "shop"'
            )
            return web.json_response({"kind": "Status", "message": message}, status=403)
        if name in self.gone:
            return web.json_response({"kind": "Status", "message": f'pods "{name}" not found'}, status=404)
        self.forwarded.append(name)
        socket = web.WebSocketResponse(protocols=["v4.channel.k8s.io"])
        await socket.prepare(request)
        for channel in (0, 1):
            await socket.send_bytes(bytes([channel]) + port.to_bytes(2, "little"))
        reader, writer = await asyncio.open_connection(*self.target)

        async def answers() -> None:
            while data := await reader.read(65_536):
                await socket.send_bytes(b"\x00" + data)
            await socket.close()

        answering = asyncio.create_task(answers())
        async for message in socket:
            if message.type is WSMsgType.BINARY and message.data[0] == 0:
                writer.write(message.data[1:])
        writer.close()
        answering.cancel()
        return socket


@pytest.fixture
def cluster(background):
    made = StubCluster()
    background.call(made.start())
    yield made
    eventually(lambda: not _forwarding(), "all forwarded connections end")
    background.call(made.stop())
    gc.collect()  # what the official client left open is closed here, under this module's filters


def _forwarding() -> list[str]:
    names = (each.name for each in threading.enumerate())
    return [name for name in names if name.startswith(("Kubernetes port forward", "port 8081 of"))]


@pytest.fixture
def kubeconfig(cluster: StubCluster, tmp_path: Path) -> Path:
    config = {
        "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{cluster.port}"}}],
        "users": [{"name": "u", "user": {"token": "cluster-token"}}],
        "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u", "namespace": "shop"}}],
        "current-context": "here",
    }
    path = tmp_path / "kubeconfig"
    path.write_text(json.dumps(config))
    return path


def _application(**options) -> Application:
    made = Application(1, 1, **options)
    for each in range(3):
        made.put("counts", f"k{each}", mp.ValueAndTimestamp(each, 1_700_000_000_000))
    return made


@pytest.fixture
def application(cluster: StubCluster):
    made = _application()
    url = urlsplit(made.urls()[0])
    cluster.target = (url.hostname, url.port)
    yield made
    made.close()


def test_query_is_forwarded_to_a_pod(application, cluster, kubeconfig, millpond: Millpond) -> None:
    """The output is that of the command with --url."""
    given = ["--kubernetes", "delays", "--kubeconfig", kubeconfig]
    through = millpond("query", *given, "counts", "k1")
    direct = millpond("query", "--url", application.urls()[0], "counts", "k1")
    assert through.status == 0, through.err
    assert through.out == direct.out
    assert millpond("query", *given, "counts", "-o", "json").out.count("\n") == 3
    assert set(cluster.forwarded) == {"delays-0"}


def test_next_pod_is_asked_when_one_is_gone(application, cluster, kubeconfig, millpond: Millpond) -> None:
    """A pod that ended since the list was read does not fail the query."""
    cluster.gone = {"delays-0"}
    shown = millpond("query", "--kubernetes", "shop/delays", "--kubeconfig", kubeconfig, "counts", "k1")
    assert shown.status == 0, shown.err
    assert set(cluster.forwarded) == {"delays-1"}


def test_failures_are_one_sentence(application, cluster, kubeconfig, millpond: Millpond) -> None:
    """A missing right, no ready worker, two ways to name workers, no name."""
    given = ["--kubernetes", "delays", "--kubeconfig", kubeconfig]
    cluster.refuses = {"delays-0", "delays-1"}
    refused = millpond("query", *given, "counts", "k1")
    assert refused.status == 1
    assert "user 'jo' lacks the right to create pods/portforward in namespace 'shop'" in refused.err
    assert "cluster-token" not in refused.err
    cluster.pods = []
    none = millpond("query", *given, "counts", "k1")
    assert none.status == 1 and "no worker of 'delays' is ready to answer" in none.err
    both = millpond("query", *given, "--url", "http://a:1", "counts")
    assert both.status == 2 and "--kubernetes finds the workers itself" in both.err
    nameless = millpond("query", "--namespace", "shop", "counts")
    assert nameless.status == 2 and "name the StreamApp by --kubernetes NAME" in nameless.err


def test_token_and_tls_reach_from_here_to_the_worker(cluster, kubeconfig, tmp_path: Path, millpond: Millpond) -> None:
    """The certificate is for the worker's name in the cluster; the API server sees neither token nor rows."""
    authority = trustme.CA()
    certificate = authority.issue_cert("*.delays.shop.svc")
    pem, ca, token = tmp_path / "tls.pem", tmp_path / "ca.crt", tmp_path / "token"
    certificate.private_key_and_cert_chain_pem.write_to_path(str(pem))
    authority.cert_pem.write_to_path(str(ca))
    token.write_text("worker-token\n")
    cluster.app = APP | {"spec": APP["spec"] | {"config": {"query.ssl.certificate.location": "/etc/tls.crt"}}}
    stores = [
        {"name": "counts", "kind": "key_value", "key": "String", "value": "Long", "partitions": 1, "global": False}
    ]
    with served(lambda *_: (200, {"stores": stores}), certificate=pem) as worker:
        cluster.target = (worker.address, worker.port)
        given = ["--kubernetes", "delays", "--kubeconfig", kubeconfig, "--token-file", token]
        shown = millpond("query", *given, "--ca-file", ca, "-o", "json")
        assert shown.status == 0, shown.err
        assert json.loads(shown.out)["name"] == "counts"
        (request,) = worker.requests
        assert request[2]["Authorization"] == "Bearer worker-token"
        untrusted = millpond("query", *given, "--timeout", "100ms", "-o", "json")
        assert untrusted.status == 1 and "certificate verify failed" in untrusted.err
        assert "worker-token" not in untrusted.err
