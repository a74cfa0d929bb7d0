"""Heartbeats, long polls, commands, tables and metrics over HTTP."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import msgspec
from prometheus_client import CollectorRegistry

from millpond.protocol import (
    Answer,
    Member,
    Refusal,
    RefusalCode,
    Role,
)
from millpond_operator.coordinator import (
    EngineOptions,
)
from millpond_operator.coordinator.server.application import Application
from tests.coordinator.server.service import QUICK, Service, all_owned, run, serving, worker, working
from tests.coordinator.support import APP, eventually, heartbeat, topology


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
    """Whether all workers have reported that they follow their orders, and wait for news."""
    members = application.engine.members.values()
    told = all(report.role is Role.ACTIVE for member in members for report in member.tasks.values())
    return told and application.waiting == len(members)


def test_broken_connection_reveals_a_killed_worker() -> None:
    """Its death is not reported and its session is long: the broken connection of its long poll is enough."""

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
    """A worker that leaves in order is replaced without any timeout."""

    async def scenario() -> None:
        minute = timedelta(minutes=1)
        slow = EngineOptions(session_timeout=minute, reconnect_timeout=minute, gathering=timedelta(milliseconds=1))
        async with serving(slow) as service:
            url = service.coordinator.url
            leaver = worker(url, "w1")
            async with working(worker(url, "w0")):
                async with working(leaver):
                    await all_owned(service, {"w0", "w1"})
                await leaver.leave()
                began = asyncio.get_running_loop().time()
                await all_owned(service, {"w0"})
                assert asyncio.get_running_loop().time() - began < 20  # far less than either

    run(scenario())


def test_drain_moves_everything_until_it_is_undone() -> None:
    """POST drains, DELETE undrains; both respond with the member."""

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
    """Without news the answer is late; a newer heartbeat of the worker releases it."""

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
            async with asyncio.timeout(10):
                answer = await waits
            assert answer.sequence == 5  # it acknowledges the later one, too

            new = asyncio.create_task(service.beat(heartbeat(sequence=6, wait_ms=20_000, **told)))
            await eventually(lambda: application.waiting, "the long poll")
            refused = await service.beat(heartbeat(sequence=1, incarnation="w0-2"))
            assert isinstance(refused, Answer)
            async with asyncio.timeout(10):
                replaced = await new
            assert isinstance(replaced, Refusal)
            assert replaced.code is RefusalCode.REPLACED

    run(scenario())


def test_text_views_are_tables() -> None:
    """`?format=text` or `Accept: text/plain` returns tables and sentences; the default is JSON."""

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


def metric(name: str, labels: str) -> str:
    """A metric of the application `delays` in the exposition."""
    application = 'application_id="delays",application_name="",application_namespace=""'
    return f"millpond_coordinator_{name}{{{','.join(filter(None, (application, labels)))}}}"


def test_metrics_tell_members_tasks_epochs_and_heartbeats() -> None:
    """A scrape has metrics per application."""

    async def scenario() -> None:
        async with serving() as service:
            async with working(worker(service.coordinator.url, "w0")):
                await all_owned(service, {"w0"})
                _, raw = await service.ask("GET", "/metrics")
            text = raw.decode()
            for line in (
                metric("members", 'state="alive"') + " 1.0",
                metric("tasks", 'state="all"') + " 4.0",
                metric("tasks", 'state="unowned"') + " 0.0",
                metric("term", "") + " 1.0",
                metric("leading", "") + " 1.0",
                metric("heartbeats_total", 'outcome="ok"'),
                metric("assignment_seconds_total", ""),
            ):
                assert line in text, text

    run(scenario())


def test_one_coordinator_serves_several_applications() -> None:
    """Their workers and tasks are independent; one can be removed alone."""

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


def test_metrics_can_be_served_elsewhere() -> None:
    """They are in the registry of the embedding process; senders of heartbeats cannot read them."""

    async def scenario() -> None:
        registry = CollectorRegistry()
        async with serving(shows_metrics=False) as service:
            registry.register(service.coordinator.metrics)
            await service.beat(heartbeat())
            assert (await service.ask("GET", "/metrics"))[0] == 404
            labels = {"application_namespace": "", "application_name": "", "application_id": APP, "state": "alive"}
            assert registry.get_sample_value("millpond_coordinator_members", labels) == 1

    run(scenario())


async def _redirect(service: Service, path: str) -> str:
    status, _, location = await service.ask_location(path)
    assert status == 307, path
    return location


def test_queries_are_redirected_to_the_workers_in_turn() -> None:
    """With their path and parameters as they were; only live workers that have an address get one."""

    async def scenario() -> None:
        async with serving() as service:
            for name, address in (("w0", "http://w0:8080/"), ("w1", "http://w1:8080"), ("w2", None)):
                answer = await service.beat(heartbeat(name, address=address))
                assert isinstance(answer, Answer)
            query = "stores/counts/keys/a%2Fb?key_format=json&timeout=5s"
            found = {await _redirect(service, f"/v1/applications/{APP}/{query}") for _ in range(4)}
            assert found == {f"http://w0:8080/v1/{query}", f"http://w1:8080/v1/{query}"}
            assert await _redirect(service, "/v1/metadata/counts") in (
                "http://w0:8080/v1/metadata/counts", "http://w1:8080/v1/metadata/counts",
            )  # fmt: skip
            line_break = "/v1/stores/counts/keys/a%0Ab"
            assert (await _redirect(service, line_break)).endswith(line_break)
            await service.ask("POST", f"/v1/applications/{APP}/workers/w0/gone")
            found = {await _redirect(service, "/v1/stores") for _ in range(4)}
            assert found == {"http://w1:8080/v1/stores"}

    run(scenario())


def test_a_query_without_a_worker_says_so_in_the_form_of_queries() -> None:
    """A client asks again, as it does when a worker answers NOT_PRESENT."""

    async def scenario() -> None:
        async with serving() as service:
            status, body = await service.ask("GET", "/v1/stores/counts/all")
            assert status == 503
            assert msgspec.json.decode(body)["error"]["reason"] == "NOT_PRESENT"

    run(scenario())


def test_a_query_names_its_application_where_several_are_served() -> None:
    """The short path is refused, and the refusal has the long one."""

    async def scenario() -> None:
        async with serving() as service:
            await service.coordinator.add("another")
            assert isinstance(await service.beat(heartbeat("w0", address="http://w0:8080")), Answer)
            status, body = await service.ask("GET", "/v1/stores")
            assert status == 404
            assert "/v1/applications/NAME/stores" in msgspec.json.decode(body, type=Refusal).message
            assert await _redirect(service, f"/v1/applications/{APP}/stores") == "http://w0:8080/v1/stores"

    run(scenario())
