"""Helpers for tests of the client and the controllers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import aiohttp
from aiohttp import web

from millpond.protocol import clock
from millpond_operator.controllers.process import event_loop
from millpond_operator.kubernetes import APP_LABEL, Connection
from millpond_operator.kubernetes.client import Object
from millpond_operator.kubernetes.kinds import Kind
from tests.cluster.certificates import Access

T = TypeVar("T")
_TIMEOUT_S = 60.0
_POLL_S = 0.01


def run(scenario: Coroutine[Any, Any, T], timeout_s: float = _TIMEOUT_S) -> T:
    """Run a test's scenario, with a time limit."""

    async def bounded() -> T:
        async with asyncio.timeout(timeout_s):
            return await scenario

    return event_loop.run(bounded())


async def until(condition: Callable[[], Any], what: str, timeout_s: float = 30.0) -> None:
    """Wait until a condition holds."""
    deadline = clock.monotonic() + timeout_s
    while not condition():
        assert clock.monotonic() < deadline, f"waited {timeout_s} s in vain: {what}"
        await asyncio.sleep(_POLL_S)


def connection_of(access: Access) -> Connection:
    """The connection of a user's kubeconfig."""
    pem = access.certificate_file.read_bytes() if access.certificate_file is not None else None
    return Connection(access.url, ca=access.ca_file.read_bytes(), certificate=pem, key=pem, token=access.token)


def an_object(
    kind: Kind,
    name: str,
    version: int = 0,
    *,
    namespace: str = "ns",
    app: str | None = None,
    **content: Any,
) -> Object:
    """An object of a kind; with a version, as the API server returns it."""
    meta: Object = {"name": name}
    if kind.namespaced:
        meta["namespace"] = namespace
    if version:
        meta["resourceVersion"] = str(version)
    if app is not None:
        meta["labels"] = {APP_LABEL: app}
    return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": meta, **content}


Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


@asynccontextmanager
async def serving(handler: Handler) -> AsyncIterator[str]:
    """An HTTP server that responds as the test defines; yields its URL."""
    runner = web.ServerRunner(web.Server(handler, access_log=None), shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


async def fetched(url: str) -> tuple[int, str]:
    """Status and text of a page."""
    async with aiohttp.ClientSession() as session, session.get(url) as response:
        return response.status, await response.text()
