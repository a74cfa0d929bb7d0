"""The HTTP service: what goes over the wire, who may do what, and what is written down before it is told."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import logging
import ssl
from collections.abc import AsyncIterator, Coroutine
from datetime import timedelta
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest
from prometheus_client import CollectorRegistry

from millpond.protocol import (
    Answer,
    Epoch,
    Heartbeat,
    Member,
    Refusal,
    RefusalCode,
    Role,
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
    FileStore,
    Identity,
    StoreError,
    TokenFile,
    planning,
)
from millpond_operator.coordinator.application import Application
from tests.coordinator.support import APP, connected, eventually, heartbeat, running, topology
from tests.simulation.running import simulate

QUICK = EngineOptions(session_timeout=timedelta(seconds=3), gathering=timedelta(milliseconds=1))


def run(scenario: Coroutine[Any, Any, None]) -> None:
    simulate(scenario)


class Service:
    """A coordinator that listens, and a way to ask it."""

    def __init__(self, coordinator: CoordinatorServer, http: aiohttp.ClientSession) -> None:
        self.coordinator = coordinator
        self._http = http

    async def ask(self, method: str, path: str, **options: Any) -> tuple[int, bytes]:
        async with self._http.request(method, self.coordinator.url + path, **options) as response:
            return response.status, await response.read()

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
    """Workers that do at once what they are told, as if Kafka took no time."""

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


def test_workers_take_over_from_one_reported_dead_over_http() -> None:
    """End to end over HTTP: three workers, one dies, the others own everything a moment later."""

    async def scenario() -> None:
        async with serving() as service:
            url = service.coordinator.url
            third = worker(url, "w2")
            async with working(worker(url, "w0"), worker(url, "w1")):
                async with working(third):
                    await all_owned(service, {"w0", "w1", "w2"})
                status, body = await service.ask("POST", f"/v1/applications/{APP}/workers/w2/gone")
                assert (status, msgspec.json.decode(body, type=Member).alive) == (200, False)
                await all_owned(service, {"w0", "w1"})

    run(scenario())


def at_rest(application: Application) -> bool:
    """Whether all workers have said that they do what they were told, and wait for news."""
    members = application.engine.members.values()
    told = all(report.role is Role.ACTIVE for member in members for report in member.tasks.values())
    return told and application.waiting == len(members)


def test_broken_connection_reveals_a_killed_worker() -> None:
    """Nobody reports it and its session is long: the broken connection of its long poll is enough."""

    async def scenario() -> None:
        long = EngineOptions(session_timeout=timedelta(minutes=1), gathering=timedelta(milliseconds=1))
        async with serving(long) as service:
            url = service.coordinator.url
            async with working(worker(url, "w0")):
                async with working(worker(url, "w1")):
                    await all_owned(service, {"w0", "w1"})
                    await eventually(lambda: at_rest(service.coordinator.application(APP)), "long polls")
                began = asyncio.get_running_loop().time()
                await all_owned(service, {"w0"})
                assert asyncio.get_running_loop().time() - began < 20  # far less than the session

    run(scenario())


def test_final_heartbeat_is_believed() -> None:
    """A worker that ends in order is replaced without any timeout."""

    async def scenario() -> None:
        minute = timedelta(minutes=1)
        slow = EngineOptions(session_timeout=minute, reconnect_timeout=minute, gathering=timedelta(milliseconds=1))
        async with serving(slow) as service:
            url = service.coordinator.url
            leaver = worker(url, "w1")
            async with working(worker(url, "w0")):
                async with working(leaver):
                    await all_owned(service, {"w0", "w1"})
                await leaver.goodbye()
                began = asyncio.get_running_loop().time()
                await all_owned(service, {"w0"})
                assert asyncio.get_running_loop().time() - began < 20  # far less than either

    run(scenario())


def test_drain_moves_everything_until_it_is_undone() -> None:
    """POST drains, DELETE undrains; both answer with the member."""

    async def scenario() -> None:
        async with serving() as service:
            url = service.coordinator.url
            async with working(worker(url, "w0"), worker(url, "w1")):
                await all_owned(service, {"w0", "w1"})
                path = f"/v1/applications/{APP}/workers/w1/drain"
                status, body = await service.ask("POST", path)
                assert (status, msgspec.json.decode(body, type=Member).draining) == (200, True)
                await all_owned(service, {"w0"})
                await service.ask("DELETE", path)
                await all_owned(service, {"w0", "w1"})

    run(scenario())


def test_long_poll_ends_by_timeout_or_a_newer_heartbeat() -> None:
    """What has no news is answered late, and at once when the worker itself has news."""

    async def scenario() -> None:
        async with serving() as service:
            loop = asyncio.get_running_loop()
            first = await service.beat(heartbeat(sequence=1))
            assert isinstance(first, Answer)
            application = service.coordinator.application(APP)
            await eventually(lambda: application.engine.epoch.number, "an assignment")
            known = await service.beat(heartbeat(sequence=2, coordinator=first.coordinator))
            told = {"coordinator": known.coordinator, "known_revision": known.revision}

            began = loop.time()
            answer = await service.beat(heartbeat(sequence=3, wait_ms=150, **told))
            assert loop.time() - began >= 0.15
            assert answer.sequence == 3

            waits = asyncio.create_task(service.beat(heartbeat(sequence=4, wait_ms=20_000, **told)))
            await eventually(lambda: application.waiting, "the long poll")
            await service.beat(heartbeat(sequence=5, **told))
            answer = await asyncio.wait_for(waits, 10)
            assert answer.sequence == 5  # it acknowledges the later one, too

            new = asyncio.create_task(service.beat(heartbeat(sequence=6, wait_ms=20_000, **told)))
            await eventually(lambda: application.waiting, "the long poll")
            refused = await service.beat(heartbeat(sequence=1, incarnation="w0-2"))
            assert isinstance(refused, Answer)
            replaced = await asyncio.wait_for(new, 10)
            assert isinstance(replaced, Refusal)
            assert replaced.code is RefusalCode.REPLACED

    run(scenario())


BAD_BODIES = {
    "nothing": b"",
    "text": b"hello",
    "no utf-8": b"\xff\xfe\x00",
    "a list": b"[]",
    "fields missing": b'{"application": "delays"}',
    "a wrong type": b'{"application": "delays", "worker": "w0", "incarnation": 7, "sequence": 1, "topology_hash": "h"}',
    "an unknown role": encode(heartbeat(tasks=running("0_0"))).replace(b'"active"', b'"boss"'),
    "deep nesting": b"[" * 100_000,
}


@pytest.mark.parametrize("raw", BAD_BODIES.values(), ids=BAD_BODIES.keys())
def test_undecodable_requests_are_refused(raw: bytes) -> None:
    """It gets a sentence and status 400, it does no harm, and it is counted."""

    async def scenario() -> None:
        async with serving() as service:
            path = f"/v1/applications/{APP}/workers/w0/heartbeat"
            status, body = await service.ask("POST", path, data=raw)
            assert status == 400
            refusal = msgspec.json.decode(body, type=Refusal)
            assert refusal.code is RefusalCode.BAD_REQUEST
            assert "w0" in refusal.message
            assert (await service.view()).members == ()
            _, metrics = await service.ask("GET", "/metrics")
            assert (
                b'heartbeats_total{application_id="delays",application_name="",application_namespace="",outcome="bad_request"} 1.0'
                in metrics
            )

    run(scenario())


def test_later_protocol_version_is_refused_even_if_unreadable() -> None:
    """Whatever a later protocol looks like, it has its version, and the sentence names both."""

    async def scenario() -> None:
        async with serving() as service:
            raw = b'{"version": 9, "application": {"id": "delays"}, "worker": ["w0"]}'
            refusal = await service.post(f"/v1/applications/{APP}/workers/w0/heartbeat", raw)
            assert refusal.code is RefusalCode.UNSUPPORTED_VERSION
            assert "version 9" in refusal.message
            assert "newer" in refusal.message

    run(scenario())


def test_addresses_that_lead_nowhere_are_refused_with_a_hint() -> None:
    """An application that is not served, a worker nobody knows, a heartbeat under another's name, too large a body."""

    async def scenario() -> None:
        async with serving() as service:
            refusal = await service.beat(heartbeat(application="other"))
            assert refusal.code is RefusalCode.UNKNOWN_APPLICATION
            assert "'other'" in refusal.message
            assert APP in refusal.message
            refusal = await service.beat(heartbeat("w0"), path=f"/v1/applications/{APP}/workers/w1/heartbeat")
            assert refusal.code is RefusalCode.BAD_REQUEST
            for action in ("gone", "drain"):
                status, body = await service.ask("POST", f"/v1/applications/{APP}/workers/w9/{action}")
                assert status == 404
                assert b"w9" in body
            big = io.BytesIO(b" " * (17 * 1024 * 1024))
            status, _ = await service.ask("POST", f"/v1/applications/{APP}/workers/w0/heartbeat", data=big)
            assert status == 413
            assert (await service.ask("GET", "/nothing"))[0] == 404
            assert await service.ask("GET", "/healthz") == (200, b"ok\n")
            assert json.loads((await service.ask("GET", "/v1/applications"))[1]) == [APP]

    run(scenario())


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


def test_a_token_speaks_for_its_own_worker_only(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """No token, an unknown one, another worker's, another application's: refused; and no log has any of them."""

    async def scenario() -> None:
        async with serving(authenticator=TokenFile(tokens(tmp_path))) as service:
            codes = {
                token: outcome.code if isinstance(outcome, Refusal) else None
                for token in (None, "", "wrong", "secret-of-w1", "secret-of-ops", "secret-of-w0")
                for outcome in [await service.beat(heartbeat("w0"), token)]
            }
            assert codes == {
                None: RefusalCode.UNAUTHORIZED,
                "": RefusalCode.UNAUTHORIZED,
                "wrong": RefusalCode.UNAUTHORIZED,
                "secret-of-w1": RefusalCode.FORBIDDEN,
                "secret-of-ops": RefusalCode.FORBIDDEN,
                "secret-of-w0": None,
            }
            outcome = await service.beat(heartbeat("w2"), "secret-of-w2")
            assert outcome.code is RefusalCode.FORBIDDEN
            # Who may not speak for a worker learns nothing of applications either.
            outcome = await service.beat(heartbeat("w9", application="guess"), "wrong")
            assert outcome.code is RefusalCode.UNAUTHORIZED

    with caplog.at_level(logging.DEBUG):
        run(scenario())
    assert "secret-of" not in caplog.text
    assert "wrong" not in caplog.text


def test_only_admins_drain_and_report_deaths(tmp_path: Path) -> None:
    """Workers' tokens read views, since they forward queries; orders are for people and the operator."""

    async def scenario() -> None:
        async with serving(authenticator=TokenFile(tokens(tmp_path))) as service:
            await service.beat(heartbeat("w0"), "secret-of-w0")
            base = f"/v1/applications/{APP}"

            async def status(method: str, path: str, token: str | None) -> int:
                headers = {"Authorization": f"Bearer {token}"} if token else {}
                return (await service.ask(method, base + path, headers=headers))[0]

            for method, path in (
                ("POST", "/workers/w0/gone"),
                ("POST", "/workers/w0/drain"),
                ("DELETE", "/workers/w0/drain"),
            ):
                assert await status(method, path, None) == 401
                assert await status(method, path, "secret-of-w0") == 403
                assert await status(method, path, "secret-of-ops") == 200
            for path in ("/assignment", "/members"):
                assert await status("GET", path, None) == 401
                assert await status("GET", path, "secret-of-w0") == 200

    run(scenario())


def test_text_views_are_tables() -> None:
    """`?format=text`, or asking for plain text, gives tables and sentences; tools get JSON."""

    async def scenario() -> None:
        async with serving() as service:
            url = service.coordinator.url
            async with working(worker(url, "w0")):
                await all_owned(service, {"w0"})
                base = f"/v1/applications/{APP}"

                async def table() -> list[str] | None:
                    _, text = await service.ask("GET", f"{base}/assignment?format=text")
                    found = text.decode().splitlines()
                    return found if found[3].split()[:3] == ["0_0", "w0", "running"] else None

                lines = None
                for _ in range(1_000):
                    lines = await table()
                    if lines is not None:
                        break
                    await asyncio.sleep(0.01)
                assert lines is not None, "the first task runs"
                assert lines[0].startswith("delays . epoch 1.")
                assert lines[2].split() == ["TASK", "ACTIVE", "STATE", "LAG", "STANDBYS", "WARMING", "UP", "NOTE"]
                _, text = await service.ask("GET", f"{base}/members", headers={"Accept": "text/plain"})
                assert text.decode().splitlines()[1].split()[:3] == ["w0", "alive", "4"]
                status, text = await service.ask("GET", "/v1/applications/other/members?format=text")
                assert status == 404
                assert text.startswith(b"This coordinator does not serve")
                members = msgspec.json.decode((await service.ask("GET", f"{base}/members"))[1], type=list[Member])
                assert [each.worker for each in members] == ["w0"]

    run(scenario())


def test_metrics_tell_members_tasks_epochs_and_heartbeats() -> None:
    """A scrape has figures per application, named for the coordinator."""

    async def scenario() -> None:
        async with serving() as service:
            async with working(worker(service.coordinator.url, "w0")):
                await all_owned(service, {"w0"})
                _, raw = await service.ask("GET", "/metrics")
            text = raw.decode()
            for line in (
                'millpond_coordinator_members{application_id="delays",application_name="",application_namespace="",state="alive"} 1.0',
                'millpond_coordinator_tasks{application_id="delays",application_name="",application_namespace="",state="all"} 4.0',
                'millpond_coordinator_tasks{application_id="delays",application_name="",application_namespace="",state="unowned"} 0.0',
                'millpond_coordinator_term{application_id="delays",application_name="",application_namespace=""} 1.0',
                'millpond_coordinator_leading{application_id="delays",application_name="",application_namespace=""} 1.0',
                'millpond_coordinator_heartbeats_total{application_id="delays",application_name="",application_namespace="",outcome="ok"}',
                'millpond_coordinator_assignment_seconds_total{application_id="delays",application_name="",application_namespace=""}',
            ):
                assert line in text, text

    run(scenario())


class Stuck:
    """A store that keeps what it is given, when the test lets it."""

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
    """While the store takes its time workers keep their orders, and when it fails, too, until it works again."""

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
    """An error in the assignment costs time: heartbeats are answered, workers keep what they have, the log has it."""

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
    """The same port and store, a new process in effect: workers reconnect by themselves and keep their tasks."""

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
    """Workers that reach both in turns follow the higher term; the other learns of it from them."""

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


def certificate(tmp_path: Path) -> tuple[ssl.SSLContext, Path]:
    trustme = pytest.importorskip("trustme")
    authority = trustme.CA()
    ca = tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(str(ca))
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1", "localhost").configure_cert(context)
    return context, ca


def test_tls_works_with_a_private_authority(tmp_path: Path) -> None:
    """With its certificate the client connects; without it, or with another's, it does not, and says why."""

    async def scenario() -> None:
        context, ca = certificate(tmp_path)
        (tmp_path / "other").mkdir()
        _, other = certificate(tmp_path / "other")
        token = tmp_path / "token"
        token.write_text("secret-of-w0")
        coordinator = CoordinatorServer(authenticator=TokenFile(tokens(tmp_path)))
        await coordinator.add(APP, QUICK)
        await coordinator.start(ssl_context=context)
        try:
            assert coordinator.url.startswith("https://")
            good = worker(coordinator.url, "w0", token_file=token, ca_file=ca)
            async with connected(good):
                await eventually(lambda: good.connected_at, "an answer")
            for wrong in (None, other):
                bad = worker(coordinator.url, "w0", token_file=token, ca_file=wrong)
                async with connected(bad):
                    await eventually(lambda bad=bad: bad.failures, "a failure")
                    assert bad.connected_at is None
            # The authority is replaced in place, as a rotation does.
            rotated = worker(coordinator.url, "w0", token_file=token, ca_file=other)
            async with connected(rotated):
                await eventually(lambda: rotated.failures, "a failure")
                other.write_bytes(ca.read_bytes())
                await eventually(lambda: rotated.connected_at, "an answer with the new certificates")
        finally:
            await coordinator.stop()

    run(scenario())


def test_one_coordinator_serves_several_applications() -> None:
    """Their workers and tasks have nothing to do with each other; one may be taken away alone."""

    async def scenario() -> None:
        async with serving() as service:
            await service.coordinator.add("other", QUICK)
            await service.beat(heartbeat("w0"))
            await service.beat(heartbeat("w0", application="other", summary=topology(2, hash="x")))
            assert [member.worker for member in (await service.view()).members] == ["w0"]
            assert (await service.view()).topology.hash == "h1"
            await service.coordinator.remove("other")
            refusal = await service.beat(heartbeat("w0", 2, application="other"))
            assert refusal.code is RefusalCode.UNKNOWN_APPLICATION
            assert isinstance(await service.beat(heartbeat("w0", 2)), Answer)

    run(scenario())


def test_an_authenticator_is_any_awaitable_function() -> None:
    """The operator brings its own; what it decides is what holds."""

    async def scenario() -> None:
        async def everybody_is_w0(token: str | None, peer: str = "") -> Identity | None:
            return Identity(worker="w0")

        async with serving(authenticator=everybody_is_w0) as service:
            assert isinstance(await service.beat(heartbeat("w0")), Answer)
            assert (await service.beat(heartbeat("w1"))).code is RefusalCode.FORBIDDEN
            assert Epoch(1, 0) <= (await service.view()).epoch

    run(scenario())


def test_metrics_can_be_served_elsewhere() -> None:
    """A registry of whoever runs the coordinator has them; who may only send heartbeats reads nothing of others."""

    async def scenario() -> None:
        registry = CollectorRegistry()
        async with serving(shows_metrics=False) as service:
            registry.register(service.coordinator.metrics)
            await service.beat(heartbeat())
            assert (await service.ask("GET", "/metrics"))[0] == 404
            labels = {"application_namespace": "", "application_name": "", "application_id": APP, "state": "alive"}
            assert registry.get_sample_value("millpond_coordinator_members", labels) == 1

    run(scenario())
