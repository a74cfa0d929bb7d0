"""One coordinator for many namespaces, and its change notifications."""

from __future__ import annotations

from datetime import timedelta

import aiohttp
import msgspec

from millpond.errors import MillpondError
from millpond.protocol import Answer, Member, Refusal, RefusalCode, Trouble, encode
from millpond_operator.assignment import AssignmentOptions
from millpond_operator.coordinator import CoordinatorServer, EngineOptions, Identity
from millpond_operator.coordinator.engine.engine import Engine
from tests.coordinator.server.service import QUICK, Service, all_owned, run, serving, worker, working
from tests.coordinator.support import APP, connected, eventually, heartbeat, topology


def path(namespace: str, worker: str = "w0", application: str = APP) -> str:
    return f"/namespaces/{namespace}/v1/applications/{application}/workers/{worker}/heartbeat"


def test_namespaces_may_share_an_application_id() -> None:
    """Neither is served below the plain paths, and each has its own workers."""

    async def scenario() -> None:
        async with serving() as service:
            await service.coordinator.add(APP, QUICK, namespace="shop")
            await service.coordinator.add(APP, QUICK, namespace="bank")
            assert isinstance(await service.beat(heartbeat("w0"), path=path("shop")), Answer)
            assert isinstance(await service.beat(heartbeat("w1"), path=path("bank", "w1")), Answer)
            assert list(service.coordinator.application(APP, "shop").engine.members) == ["w0"]
            assert list(service.coordinator.application(APP, "bank").engine.members) == ["w1"]
            assert not service.coordinator.application(APP).engine.members
            refusal = await service.beat(heartbeat("w0"), path=path("none"))
            assert refusal.code is RefusalCode.UNKNOWN_APPLICATION
            _, listed = await service.ask("GET", "/namespaces/shop/v1/applications")
            assert msgspec.json.decode(listed) == [APP]
            await service.coordinator.remove(APP, "shop")
            assert service.coordinator.application(APP, "shop") is None
            assert service.coordinator.application(APP, "bank") is not None
            _, metrics = await service.ask("GET", "/metrics")
            assert (
                b'members{application_id="delays",application_name="",application_namespace="bank",state="alive"} 1.0'
                in metrics
            )

    run(scenario())


def test_a_worker_whose_url_has_a_namespace_is_served_there() -> None:
    """The client does not know about namespaces."""

    async def scenario() -> None:
        async with serving() as service:
            await service.coordinator.add(APP, QUICK, namespace="shop")
            client = worker(f"{service.coordinator.url}/namespaces/shop", "w0")
            async with working(client):
                engine = service.coordinator.application(APP, "shop").engine
                await eventually(lambda: len(engine.owners) == 4, "tasks")

    run(scenario())


def test_token_of_one_namespace_is_refused_in_another() -> None:
    """For heartbeats, for reading, and for admin requests."""

    async def identify(token: str | None, _peer: str = "") -> Identity | None:
        return {"w": Identity("w0", namespace="shop"), "a": Identity(namespace="shop", admin=True)}.get(token or "")

    async def scenario() -> None:
        async with serving(authenticator=identify) as service:
            for namespace in ("shop", "bank"):
                await service.coordinator.add(APP, QUICK, namespace=namespace)
            assert isinstance(await service.beat(heartbeat(), "w", path("shop")), Answer)
            refusal = await service.beat(heartbeat(), "w", path("bank"))
            assert isinstance(refusal, Refusal)
            assert refusal.code is RefusalCode.FORBIDDEN
            for namespace, allowed in (("shop", 200), ("bank", 403)):
                base = f"/namespaces/{namespace}/v1/applications/{APP}"
                for what in ("assignment", "members"):
                    status, _ = await service.ask("GET", f"{base}/{what}", headers={"Authorization": "Bearer w"})
                    assert status == allowed
            drain = f"/namespaces/bank/v1/applications/{APP}/workers/w0/drain"
            status, _ = await service.ask("POST", drain, headers={"Authorization": "Bearer a"})
            assert status == 403

    run(scenario())


def test_failed_token_review_is_retried_not_refused() -> None:
    """The worker retries; its token is not called invalid."""

    async def identify(token: str | None, _peer: str = "") -> Identity | None:
        raise MillpondError("the API server does not answer.")

    async def scenario() -> None:
        async with serving(authenticator=identify) as service:
            status, body = await service.ask("POST", path("shop"), data=encode(heartbeat()))
            assert status == 503
            assert b"does not answer" in body
            client = worker(service.coordinator.url, "w0")
            async with connected(client):
                await eventually(lambda: client.failures, "a failure")
            assert client.refusal is None

    run(scenario())


async def all_heard(engine: Engine, times: int = 1) -> None:
    """Wait until each worker has sent so many more heartbeats."""
    before = {member.id: member.sequence for member in engine.members.values()}
    await eventually(
        lambda: all(each.sequence >= before[each.id] + times for each in engine.members.values()), "heartbeats"
    )


def test_watchers_hear_of_changes_but_not_of_progress() -> None:
    """Members, owners, rejections and starts are notified; an idle fleet causes no calls."""

    async def scenario() -> None:
        told: list[tuple[str, str]] = []
        coordinator = CoordinatorServer(on_change=lambda *which: told.append(which))
        await coordinator.add(APP, QUICK, namespace="shop")
        await coordinator.start()
        try:
            async with aiohttp.ClientSession() as http:
                service = Service(coordinator, http)
                application = coordinator.application(APP, "shop")
                engine = application.engine
                clients = [worker(f"{coordinator.url}/namespaces/shop", f"w{number}") for number in range(3)]
                async with working(*clients):
                    await eventually(lambda: len(engine.members) == 3 and len(engine.owners) == 4 and told, "tasks")
                    changes = -1
                    while not changes == engine.changes == application._reported_changes:
                        changes = engine.changes
                        await all_heard(engine, times=2)  # by then they have done what they had still to do
                    assert set(told) == {("shop", APP)}
                    told.clear()
                    await all_heard(engine)
                    assert not told
                    other = heartbeat("w7", summary=topology(hash="h2"))
                    assert (await service.beat(other, path=path("shop", "w7"))).code is RefusalCode.TOPOLOGY_MISMATCH
                    await eventually(lambda: told, "the refusal")
                    told.clear()
                    trouble = Trouble("BrokerError", "no answer from Kafka.")
                    beat = heartbeat("w8", topology=None, topology_hash="", trouble=trouble, wait_ms=1_000)
                    assert not (await service.beat(beat, path=path("shop", "w8"))).tasks
                    await eventually(lambda: told, "the start")
                    _, listed = await service.ask("GET", f"/namespaces/shop/v1/applications/{APP}/members")
                    members = {each.worker: each for each in msgspec.json.decode(listed, type=list[Member])}
                    assert members["w8"].trouble == trouble
        finally:
            await coordinator.stop()

    run(scenario())


def test_workers_learn_of_another_session_timeout_at_once() -> None:
    """Waiting heartbeats are answered with it."""

    async def scenario() -> None:
        slow = EngineOptions(session_timeout=timedelta(minutes=1), gathering=timedelta(milliseconds=1))
        async with serving(slow) as service:
            client = worker(service.coordinator.url, "w0")
            async with working(client):
                await all_owned(service, {"w0"})
                application = service.coordinator.application(APP)
                await eventually(lambda: application.waiting, "a heartbeat that waits")
                application.reconfigure(
                    EngineOptions(
                        assignment=AssignmentOptions(standby_replicas=1), session_timeout=timedelta(seconds=1)
                    )
                )
                await eventually(lambda: client._state._session_ms == 1_000, "the new session timeout", timeout_s=10)

    run(scenario())


def test_unreadable_heartbeat_of_another_version_is_remembered() -> None:
    """The status of a rollout shows that the new image uses another protocol version."""

    async def scenario() -> None:
        async with serving() as service:
            raw = b'{"version": 7, "incarnation": "i", "revision": "r2", "worker": {"id": "w0"}}'
            refusal = await service.post(f"/v1/applications/{APP}/workers/w0/heartbeat", raw)
            assert refusal.code is RefusalCode.UNSUPPORTED_VERSION
            refused = service.coordinator.application(APP).engine.rejected["w0"]
            assert (refused.code, refused.incarnation, refused.revision) == (refusal.code, "i", "r2")
            assert refused.message == refusal.message

    run(scenario())


def test_failing_application_does_not_stop_other_sessions() -> None:
    """Their sessions still time out."""

    async def scenario() -> None:
        short = EngineOptions(session_timeout=timedelta(milliseconds=300), gathering=timedelta(milliseconds=1))
        async with serving(short) as service:
            await service.coordinator.add("a", short)

            def fail() -> None:
                raise RuntimeError("broken")

            service.coordinator.application("a").tick = fail
            await service.beat(heartbeat())
            engine = service.coordinator.application(APP).engine
            await eventually(lambda: not engine.members["w0"].alive, "its end")

    run(scenario())
