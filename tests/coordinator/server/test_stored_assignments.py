"""The stored assignment: written before workers get it, read after a restart; one leader at a time."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from millpond.protocol import (
    RefusalCode,
    View,
)
from millpond_operator.coordinator import (
    CoordinatorServer,
    EngineOptions,
    FileStore,
    StoreError,
)
from millpond_operator.coordinator.engine import planning
from tests.coordinator.server.service import QUICK, Service, all_owned, run, serving, worker, working
from tests.coordinator.support import APP, eventually


class Stuck:
    """A store that saves only when the test lets it."""

    def __init__(self) -> None:
        self.saved: list[View] = []
        self.open = asyncio.Event()
        self.open.set()
        self.broken = False
        self.asked = 0

    async def load(self) -> View | None:
        return None

    async def save(self, view: View) -> None:
        self.asked += 1
        await self.open.wait()
        if self.broken:
            raise StoreError("The disk is full.")
        self.saved.append(view)


def test_assignment_is_stored_before_it_is_sent() -> None:
    """While the store is slow or fails, workers keep their orders, until it works again."""

    async def scenario() -> None:
        store = Stuck()
        async with serving(store=store) as service:
            url = service.coordinator.url
            first = worker(url, "w0")
            async with working(first, worker(url, "w1")):
                await all_owned(service, {"w0", "w1"})
                store.open.clear()
                asked = store.asked
                await service.ask("POST", f"/v1/applications/{APP}/workers/w1/drain")
                await eventually(lambda: store.asked > asked, "the new assignment to be offered")
                epoch = (await service.view()).epoch
                store.broken = True
                store.open.set()
                failures = service.coordinator.application(APP)
                await eventually(lambda: failures.save_failures >= 2, "the store to fail, and to be tried again")
                assert (await service.view()).epoch == epoch
                assert set((await service.view()).active.values()) == {"w0", "w1"}
                store.broken = False
                await all_owned(service, {"w0"})
                assert set(store.saved[-1].active.values()) == {"w0"}

    run(scenario())


def test_failed_assignment_is_retried(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """An error in the assignment only costs time: heartbeats are answered, workers keep their tasks, the log has the
    error.
    """

    async def scenario() -> None:
        async with serving() as service:
            url = service.coordinator.url
            async with working(worker(url, "w0"), worker(url, "w1")):
                await all_owned(service, {"w0", "w1"})
                real, failed = planning.refine, 0

                def failing(*arguments: Any) -> Any:
                    nonlocal failed
                    failed += 1
                    if failed < 3:
                        raise RuntimeError("a bug")
                    return real(*arguments)

                monkeypatch.setattr(planning, "refine", failing)
                await service.ask("POST", f"/v1/applications/{APP}/workers/w1/drain")
                await all_owned(service, {"w0"})
                assert failed >= 3

    run(scenario())
    assert "workers keep theirs" in caplog.text


def test_restart_over_http_moves_nothing(tmp_path: Path) -> None:
    """The same port and store, like a new process: workers reconnect by themselves and keep their tasks."""

    async def scenario() -> None:
        store = FileStore(tmp_path / "assignment.json")
        async with serving(store=store) as service:
            url = service.coordinator.url
            clients = [worker(url, f"w{number}") for number in range(2)]
            async with working(*clients):
                before = await all_owned(service, {"w0", "w1"})
                await service.coordinator.stop()
                again = CoordinatorServer()
                await again.add(APP, QUICK, store)
                await again.start(port=int(url.rpartition(":")[2]))
                try:
                    await eventually(
                        lambda: all(
                            (at := client._state.answer) is not None and at.coordinator == again.id
                            for client in clients
                        ),
                        "answers of the new one",
                    )
                    async with aiohttp.ClientSession() as http:
                        after = await all_owned(Service(again, http), {"w0", "w1"})
                    assert after.owners == before.owners
                    assert after.epoch.term == before.epoch.term + 1
                finally:
                    await again.stop()

    run(scenario())


def test_later_of_two_coordinators_wins() -> None:
    """Workers that reach both in turn follow the higher term; the other one learns of it from them."""

    async def scenario() -> None:
        superseded: list[tuple[str, str]] = []
        options = EngineOptions(session_timeout=timedelta(seconds=1), gathering=timedelta(milliseconds=1))
        async with (
            serving(options, term=3, on_superseded=lambda *which: superseded.append(which)) as old,
            serving(options, term=4) as new,
        ):
            client = worker(old.coordinator.url, "w0")
            async with working(client):
                await all_owned(old, {"w0"})
                client._url = client._url.replace(old.coordinator.url, new.coordinator.url)
                await all_owned(new, {"w0"})
                client._url = client._url.replace(new.coordinator.url, old.coordinator.url)
                refusal = await eventually(lambda: client.refusal, "a refusal")
                assert refusal.code is RefusalCode.NOT_LEADING
                assert superseded == [("", APP)]
                client._url = client._url.replace(old.coordinator.url, new.coordinator.url)
                await eventually(lambda: client.refusal is None, "the new one's answers")

    run(scenario())
