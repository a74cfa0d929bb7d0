"""Helpers: a listening coordinator, clients that follow their orders, tokens and certificates."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Coroutine
from datetime import timedelta
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest
from yarl import URL

from millpond.protocol import (
    Answer,
    Heartbeat,
    Refusal,
    TaskReport,
    TaskState,
    View,
    encode,
)
from millpond.protocol.client import CoordinatorClient
from millpond_operator.coordinator import (
    AssignmentStore,
    CoordinatorServer,
    EngineOptions,
)
from tests.coordinator.support import APP, connected, heartbeat, topology
from tests.simulation.running import simulate

QUICK = EngineOptions(session_timeout=timedelta(seconds=3), gathering=timedelta(milliseconds=1))


def run(scenario: Coroutine[Any, Any, None]) -> None:
    simulate(scenario)


class Service:
    """A listening coordinator, and a client for it."""

    def __init__(self, coordinator: CoordinatorServer, http: aiohttp.ClientSession) -> None:
        self.coordinator = coordinator
        self._http = http

    async def ask(self, method: str, path: str, **options: Any) -> tuple[int, bytes]:
        async with self._http.request(method, self.coordinator.url + path, **options) as response:
            return response.status, await response.read()

    async def ask_location(self, path: str, **options: Any) -> tuple[int, bytes, str]:
        """Return status, body and the header Location of a request that follows no redirect."""
        options["allow_redirects"] = False
        async with self._http.get(URL(self.coordinator.url + path, encoded=True), **options) as response:
            return response.status, await response.read(), response.headers.get("Location", "")

    async def beat(self, beat: Heartbeat, token: str | None = None, path: str | None = None) -> Answer | Refusal:
        path = path or f"/v1/applications/{beat.application}/workers/{beat.worker}/heartbeat"
        return await self.post(path, encode(beat), token)

    async def post(self, path: str, raw: bytes, token: str | None = None) -> Answer | Refusal:
        headers = {"Authorization": f"Bearer {token}"} if token is not None else {}
        status, body = await self.ask("POST", path, data=raw, headers=headers)
        return msgspec.json.decode(body, type=Answer if status == 200 else Refusal)

    async def view(self) -> View:
        _, body = await self.ask("GET", f"/v1/applications/{APP}/assignment")
        return msgspec.json.decode(body, type=View)


@contextlib.asynccontextmanager
async def serving(
    options: EngineOptions = QUICK, store: AssignmentStore | None = None, term: int | None = None, **rest: Any
) -> AsyncIterator[Service]:
    coordinator = CoordinatorServer(**rest)
    await coordinator.add(APP, options, store, term)
    await coordinator.start()
    try:
        async with aiohttp.ClientSession() as http:
            yield Service(coordinator, http)
    finally:
        await coordinator.stop()


@contextlib.asynccontextmanager
async def working(*clients: CoordinatorClient) -> AsyncIterator[None]:
    """Run workers that follow their orders at once."""

    async def work(client: CoordinatorClient) -> None:
        held: dict[str, TaskReport] = {}
        while True:
            answer = client.news()
            if answer is not None:
                found = {task: owner for order in answer.take_over for task, owner in order.owners.items()}
                tasks = {
                    task: TaskReport(role, TaskState.RUNNING, 0, 1)
                    for task, role in answer.tasks.items()
                    if task not in answer.release
                }
                if found or answer.release or tasks != held:
                    held = tasks
                    client.report(tasks, {}, found | answer.release, answer.epoch, urgent=True)
            await asyncio.sleep(0.002)

    async with contextlib.AsyncExitStack() as stack:
        for client in clients:
            await stack.enter_async_context(connected(client))
        tasks = [asyncio.create_task(work(client)) for client in clients]
        try:
            yield
            assert not any(task.done() for task in tasks)
        finally:
            for task in tasks:
                task.cancel()


def worker(url: str, id: str, summary: Any = None, **options: Any) -> CoordinatorClient:
    summary = summary or topology()
    return CoordinatorClient(url, heartbeat(id, summary=summary, topology=None), summary, **options)


async def all_owned(service: Service, by: set[str]) -> View:
    async def owned() -> View | None:
        view = await service.view()
        return (
            view if len(view.owners) == 4 and set(view.owners.values()) == by and view.active == view.owners else None
        )

    for _ in range(1_000):
        view = await owned()
        if view is not None:
            return view
        await asyncio.sleep(0.01)
    raise AssertionError(f"not owned by {by}: {await service.view()}")


def tokens(tmp_path: Path) -> Path:
    path = tmp_path / "tokens"
    path.write_text(
        "# who is who\n"
        "secret-of-w0 worker=w0\n"
        f"secret-of-w1 worker=w1 application={APP}\n"
        "secret-of-w2 worker=w2 application=other\n"
        "\n"
        "secret-of-ops admin\n"
    )
    return path


def certificate(tmp_path: Path) -> tuple[ssl.SSLContext, Path]:
    trustme = pytest.importorskip("trustme")
    authority = trustme.CA()
    ca = tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(str(ca))
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1", "localhost").configure_cert(context)
    return context, ca
