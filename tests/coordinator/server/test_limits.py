"""Limits for each tenant: connections, bytes, requests, memory."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from millpond.protocol import Answer, Refusal, Role, TaskReport, TopologySummary, clock, encode, topology_overview
from millpond.protocol.loads import InputLoad, TaskLoad, WorkerLoad
from millpond.protocol.overview import NodeOverview, TopologyOverview
from millpond.runtime.worker import load_meter
from millpond_operator.coordinator import Limits, TokenFile
from millpond_operator.coordinator.server import limits
from millpond_operator.coordinator.server.connections import Connections
from millpond_operator.coordinator.server.token_bucket import TokenBuckets
from tests.coordinator.server.service import QUICK, Service, serving
from tests.coordinator.support import APP, eventually, heartbeat, topology
from tests.simulation.running import simulate

LIMITS = Limits(
    strangers_burst=4, strangers_per_second=0.01, connections_per_worker=3, requests_burst=10, requests_per_second=2
)


@pytest.fixture
def tokens(tmp_path: Path) -> Path:
    path = tmp_path / "tokens"
    path.write_text("".join(f"token-{number} worker=w{number}\n" for number in range(100)))
    return path


@contextlib.asynccontextmanager
async def limited(tokens: Path, limits: Limits = LIMITS) -> AsyncIterator[Service]:
    async with serving(QUICK, authenticator=TokenFile(tokens), limits=limits) as service:
        yield service


def refusals(service: Service) -> dict[str, int]:
    """Rejections, by reason; some reasons are exposed before they occur."""
    for family in service.coordinator.metrics.collect():
        if family.name == "millpond_coordinator_refusals":
            return {sample.labels["reason"]: int(sample.value) for sample in family.samples if sample.value}
    raise LookupError


async def silent(service: Service) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection that sends nothing."""
    return await asyncio.open_connection("127.0.0.1", service.coordinator.port)


async def ended(reader: asyncio.StreamReader) -> bool:
    """Whether the other side has closed a connection."""
    await asyncio.sleep(0.1)
    return reader.at_eof()


def test_silent_connections_are_bounded_and_closed(tokens: Path) -> None:
    """An address may open a few, and each is closed after a while."""

    async def scenario() -> None:
        async with limited(tokens) as service:
            connections = [await silent(service) for _ in range(10)]
            closed = [await ended(reader) for reader, _ in connections]
            assert closed == [False] * 4 + [True] * 6
            began = clock.monotonic()
            await eventually(lambda: all(reader.at_eof() for reader, _ in connections), "all are closed")
            assert 8 < clock.monotonic() - began < 12
            assert refusals(service) == {"peer_connections": 6, "idle_connection": 4}
            for _, writer in connections:
                writer.close()

    simulate(scenario())


def test_many_workers_share_an_address(tokens: Path) -> None:
    """Each valid token returns the credit of the address."""

    async def scenario() -> None:
        async with limited(tokens) as service:
            for number in range(100):
                path = f"/v1/applications/{APP}/workers/w{number}/heartbeat"
                # A connection of its own for each.
                reader, writer = await silent(service)
                body = encode(heartbeat(f"w{number}"))
                head = f"POST {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer token-{number}\r\n"
                writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
                assert (await reader.readline()).startswith(b"HTTP/1.1 200")
            assert len((await service_view(service)).members) == 100
            assert not refusals(service)

    simulate(scenario())


async def service_view(service: Service) -> Any:
    found = service.coordinator.application(APP)
    assert found is not None
    return found.view()


def test_unknown_token_gets_one_answer_per_connection(tokens: Path) -> None:
    """So a flood of tokens is a flood of connections, which are limited."""

    async def scenario() -> None:
        async with limited(tokens) as service:
            answers = 0
            for _ in range(10):
                reader, writer = await silent(service)
                request = f"GET /v1/applications/{APP}/members HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer no\r\n\r\n"
                writer.write(request.encode() * 5)
                with contextlib.suppress(ConnectionError):
                    answers += (await reader.read()).count(b"HTTP/1.1 401")
            assert answers == 4

    simulate(scenario())


def test_worker_has_a_few_connections_only(tokens: Path) -> None:
    """A valid token does not allow any number of them."""

    async def scenario() -> None:
        async with limited(tokens) as service:
            request = f"GET /v1/applications/{APP}/members HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer token-0\r\n\r\n"
            statuses, open_ones = [], []
            for _ in range(6):
                reader, writer = await silent(service)
                open_ones.append(writer)
                writer.write(request.encode())
                statuses.append((await reader.readline()).split()[1])
            assert statuses == [b"200"] * 3 + [b"429"] * 3
            for writer in open_ones:
                writer.close()
            await asyncio.sleep(0.1)
            assert isinstance(await service.beat(heartbeat("w0"), "token-0"), Answer)

    simulate(scenario())


def test_heartbeat_larger_than_its_application_is_refused(tokens: Path) -> None:
    """Four tasks need no 300 KB; ten thousand do."""

    async def scenario() -> None:
        async with limited(tokens) as service:
            await service.beat(heartbeat("w0"), "token-0")
            padded = heartbeat("w0", 2, revision="x" * 300_000)
            path = f"/v1/applications/{APP}/workers/w0/heartbeat"
            headers = {"Authorization": "Bearer token-0"}
            status, body = await service.ask("POST", path, data=encode(padded), headers=headers)
            assert status == 413
            assert b"may have at most" in body
            found = service.coordinator.application(APP)
            assert found is not None
            found.engine._group.use(topology(10_000))
            tasks = {f"0_{number}": TaskReport(Role.STANDBY, lag=10**9, offset=10**12) for number in range(10_000)}
            outcome = await service.beat(heartbeat("w0", 3, topology(10_000), tasks=tasks), "token-0")
            assert isinstance(outcome, Answer)

    simulate(scenario())


def test_body_that_does_not_arrive_is_given_up(tokens: Path) -> None:
    """Its connection is closed too."""

    async def scenario() -> None:
        async with limited(tokens) as service:
            reader, writer = await silent(service)
            path = f"/v1/applications/{APP}/workers/w0/heartbeat"
            head = f"POST {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer token-0\r\nContent-Length: 1000\r\n\r\n"
            writer.write(head.encode() + b"{")
            began = clock.monotonic()
            answer = await reader.read()
            assert answer.startswith(b"HTTP/1.1 408")
            assert 9 < clock.monotonic() - began < 11
            writer.close()

    simulate(scenario())


def test_words_that_no_worker_says_are_refused(tokens: Path) -> None:
    """The coordinator would keep the fields for as long as it knows the worker."""

    async def scenario() -> None:
        async with limited(tokens) as service:
            for fields in (
                {"incarnation": "x" * 10_000},
                {"revision": "x" * 10_000},
                {"rack": "x" * 10_000},
                {"tags": {str(number): "" for number in range(1_000)}},
            ):
                outcome = await service.beat(heartbeat("w0", **fields), "token-0")
                assert isinstance(outcome, Refusal)
                assert next(iter(fields)) in outcome.message
            assert refusals(service) == {"heartbeat_fields": 4}

    simulate(scenario())


def test_limits_leave_room_for_the_largest_figures_of_a_worker() -> None:
    """Load and drawing together, of a worker that has no tasks."""
    assert load_meter._MAX_INPUT_BYTES <= limits._MAX_LOAD_BYTES
    assert topology_overview._MAX_BYTES <= limits._MAX_GRAPH_BYTES
    figures = load_meter._MAX_INPUT_BYTES + topology_overview._MAX_BYTES
    assert figures <= limits.most_bytes(TopologySummary("hash", ())) <= limits.most_bytes(None)


def test_tasks_that_the_topology_lacks_are_not_kept(tokens: Path) -> None:
    """However many a worker invents."""

    async def scenario() -> None:
        async with limited(tokens) as service:
            invented = [f"7_{number}" for number in range(1_000)]
            beat = heartbeat(
                "w0",
                tasks={task: TaskReport(Role.STANDBY) for task in [*invented, "0_1"]},
                on_disk=dict.fromkeys([*invented, "0_2"], 1),
                taken_over=dict.fromkeys(invented, "w1"),
            )
            assert isinstance(await service.beat(beat, "token-0"), Answer)
            found = service.coordinator.application(APP)
            assert found is not None
            member = found.engine.members["w0"]
            assert set(member.tasks) == {"0_1"}
            assert set(member.on_disk) == {"0_2"}
            assert not member._found

    simulate(scenario())


def test_worker_that_posts_too_often_waits_alone(tokens: Path) -> None:
    """Its requests are answered at the allowed rate; another worker's at once."""

    async def scenario() -> None:
        async with limited(tokens) as service:

            async def post(worker: int, count: int) -> float:
                began = clock.monotonic()
                for sequence in range(1, count + 1):
                    outcome = await service.beat(heartbeat(f"w{worker}", sequence), f"token-{worker}")
                    assert isinstance(outcome, Answer)
                return clock.monotonic() - began

            hostile = asyncio.create_task(post(0, 30))
            assert await post(1, 5) < 0.5
            assert 9 < await hostile < 12

    simulate(scenario())


class _Transport(asyncio.Transport):
    """A connection from an address."""

    def __init__(self, peer: str) -> None:
        super().__init__({"peername": (peer, 1)})
        self.closed = False

    def is_closing(self) -> bool:
        return self.closed

    def abort(self) -> None:
        self.closed = True


def test_full_table_makes_room_for_a_newcomer() -> None:
    """The oldest unauthenticated connection of the address with most of them is closed; workers keep theirs."""

    async def scenario() -> None:
        told: list[str] = []
        connections = Connections(Limits(connections=10), told.append)
        worker = connections.accept(_Transport("10.0.0.1"), asyncio.Protocol)
        assert worker is not None
        assert connections.authenticated(worker, "w0")
        hostile = [_Transport("10.0.0.2") for _ in range(9)]
        assert all(connections.accept(each, asyncio.Protocol) for each in hostile)
        newcomer = connections.accept(_Transport("10.0.0.3"), asyncio.Protocol)
        assert newcomer is not None
        assert [each.closed for each in hostile] == [True] + [False] * 8
        assert len(connections) == 10
        assert told == ["connections"]
        connections.stop()

    simulate(scenario())


def test_table_full_of_workers_lets_nobody_in() -> None:
    """Authenticated connections are not closed for new ones."""

    async def scenario() -> None:
        connections = Connections(Limits(connections=3), lambda _why: None)
        for number in range(3):
            worker = connections.accept(_Transport("10.0.0.1"), asyncio.Protocol)
            assert worker is not None
            assert connections.authenticated(worker, f"w{number}")
        assert connections.accept(_Transport("10.0.0.2"), asyncio.Protocol) is None
        connections.stop()

    simulate(scenario())


def test_allowance_comes_back_with_time() -> None:
    """Never beyond the limit, and full buckets take no memory."""
    now = 0.0
    allowance = TokenBuckets(2.0, 5.0, clock=lambda: now)
    assert [allowance.spend("a") for _ in range(7)] == [True] * 5 + [False] * 2
    now = 1.0
    assert [allowance.spend("a") for _ in range(3)] == [True, True, False]
    assert allowance.owe("a", 4.0) == 2.0
    allowance.give_back("a", 100.0)
    assert allowance.owe("a", 5.0) == 0.0
    for number in range(3_000):
        now += 10.0
        allowance.spend(number)
    assert len(allowance) < 1_100


def test_figures_that_no_worker_sends_are_left_out(tokens: Path) -> None:
    """The worker stays a member; its load and its drawing do not stay in the coordinator's memory."""
    large = WorkerLoad(
        1, tasks={"0_0": TaskLoad(inputs={f"topic-{number}": InputLoad(1, 1) for number in range(2_500)})}
    )
    small = WorkerLoad(2, tasks={"0_0": TaskLoad(inputs={"flights": InputLoad(1, 1)})})
    wide = TopologyOverview(nodes=tuple(NodeOverview(name=f"node-{'x' * 90}", kind="store") for _ in range(2_000)))
    graph = TopologyOverview(nodes=(NodeOverview(name="topic flights", kind="topic"),))

    async def scenario() -> None:
        async with limited(tokens) as service:
            for sequence, (load, drawing) in enumerate(((large, wide), (small, graph)), 1):
                beat = heartbeat("w0", sequence, load=load, graph=drawing)
                assert isinstance(await service.beat(beat, "token-0"), Answer)
                view = await service_view(service)
                assert view.members[0].load == (small if load is small else None)
                assert view.graph == (graph if load is small else None)

    simulate(scenario())
