"""Limits of the operator's HTTP port: nobody keeps a probe from its answer by connections of his own."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

from millpond.protocol import clock
from millpond_operator.controllers.process.health import HealthServer
from millpond_operator.controllers.process.http_connections import HttpConnections, HttpLimits
from millpond_operator.controllers.process.metrics import OperatorMetrics
from tests.kubernetes.support import fetched
from tests.simulation.running import simulate

LIMITS = HttpLimits(connections=8)
_HEAD = b"GET /healthz HTTP/1.1\r\nHost: x\r\n"
Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@asynccontextmanager
async def limited(limits: HttpLimits = LIMITS) -> AsyncIterator[tuple[HealthServer, OperatorMetrics]]:
    metrics = OperatorMetrics()
    server = HealthServer(metrics.collected, limits=limits, closed=metrics.closed_connection)
    await server.start("127.0.0.1", 0)
    try:
        yield server, metrics
    finally:
        await server.stop()


async def connect(server: HealthServer, address: str | None = None) -> Stream:
    local = None if address is None else (address, 0)
    return await asyncio.open_connection("127.0.0.1", server.port, local_addr=local)


async def ended(stream: Stream) -> None:
    """Wait until the server has closed a connection."""
    try:
        while await stream[0].read(4096):
            pass
    except ConnectionResetError:
        pass
    stream[1].close()


def closed(metrics: OperatorMetrics) -> dict[str, int]:
    name = "millpond_operator_http_closed_connections"
    (family,) = (each for each in metrics.registry.collect() if each.name == name)
    values = {each.labels["reason"]: int(each.value) for each in family.samples if each.name.endswith("_total")}
    return {reason: value for reason, value in values.items() if value}


def test_headers_that_arrive_too_slowly_end_the_connection() -> None:
    """Silent connections and those that send a header now and then, without end."""

    async def scenario() -> None:
        async with limited() as (server, metrics):
            began = clock.monotonic()
            silent, slow = await connect(server), await connect(server)
            slow[1].write(_HEAD)

            async def drip() -> None:
                while True:
                    slow[1].write(b"X: y\r\n")
                    await asyncio.sleep(1)

            dripping = asyncio.create_task(drip())
            await asyncio.gather(ended(silent), ended(slow))
            dripping.cancel()
            assert 9 < clock.monotonic() - began < 13
            assert closed(metrics) == {"header_timeout": 2}

    simulate(scenario())


def test_a_connection_carries_one_request() -> None:
    """So no idle connection is kept, whatever its client asks for and whatever the answer is."""

    async def scenario() -> None:
        async with limited() as (server, metrics):
            for path, status in ((b"/healthz", b"200"), (b"/nothing", b"404")):
                reader, writer = await connect(server)
                writer.write(b"GET " + path + b" HTTP/1.1\r\nHost: x\r\nConnection: keep-alive\r\n\r\n")
                answer = await reader.read()  # until the connection ends
                assert answer.startswith(b"HTTP/1.1 " + status)
                assert b"Connection: close" in answer
                writer.close()
            assert closed(metrics) == {}

    simulate(scenario())


def test_a_client_that_does_not_read_its_response_is_cut_off() -> None:
    transports = [_Transport("10.0.0.1")]
    reasons: list[str] = []

    async def scenario() -> None:
        connections = HttpConnections(HttpLimits(answer_timeout=timedelta(seconds=60)), reasons.append)
        protocol = connections.accept(transports[0], asyncio.Protocol)
        assert protocol is not None
        connections.requested(protocol, document=True)
        await asyncio.sleep(55)
        assert len(connections) == 1
        await asyncio.sleep(10)
        assert (len(connections), reasons) == (0, ["answer_timeout"])

    simulate(scenario())


class _Transport(asyncio.Transport):
    """A connection of an address."""

    def __init__(self, peer: str) -> None:
        super().__init__({"peername": (peer, 1)})
        self.aborted = False

    def is_closing(self) -> bool:
        return self.aborted

    def abort(self) -> None:
        self.aborted = True


def test_address_with_most_connections_loses_its_oldest() -> None:
    """A newcomer is accepted, and addresses with few connections keep them."""
    reasons: list[str] = []

    async def scenario() -> None:
        connections = HttpConnections(LIMITS, reasons.append)
        kubelet = _Transport("10.0.0.1")
        tenants = [_Transport("10.0.0.2") for _ in range(20)]
        assert connections.accept(kubelet, asyncio.Protocol) is not None
        for each in tenants:
            assert connections.accept(each, asyncio.Protocol) is not None
        assert not kubelet.aborted
        assert [each.aborted for each in tenants] == [True] * 13 + [False] * 7
        assert reasons == ["connections"] * 13
        connections.stop()

    simulate(scenario())


def test_clients_that_do_not_read_large_responses_hold_few_of_them_in_memory() -> None:
    """A response of megabytes stays in memory until it is read, so the number of them is limited, on real sockets."""

    class Large:
        def encoded(self) -> bytes:
            return b"x" * 10_000_000

    limits = HttpLimits(documents=3, answer_timeout=timedelta(hours=1))

    async def scenario() -> None:
        metrics = OperatorMetrics()
        server = HealthServer(Large, limits=limits, closed=metrics.closed_connection)  # type: ignore[arg-type]
        await server.start("127.0.0.1", 0)
        try:
            slow = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(10)]
            for each in slow:
                each.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
            status, text = await fetched(f"http://127.0.0.1:{server.port}/metrics")
            assert (status, len(text)) == (200, 10_000_000)
            assert await fetched(f"http://127.0.0.1:{server.port}/healthz") == (200, "ok\n")
            assert server.connections <= limits.documents + 2
            assert closed(metrics)["documents"] >= 10 - limits.documents
            for each in slow:
                each.close()
        finally:
            await server.stop()

    asyncio.run(scenario())


def test_probes_get_through_while_a_client_holds_all_connections() -> None:
    """On real sockets: thousands of connections from another address and from the probe's own."""
    limits = HttpLimits(connections=16, header_timeout=timedelta(hours=1))

    async def scenario() -> None:
        async with limited(limits) as (server, metrics):
            old = await connect(server, "127.0.0.2")
            flood = []
            for number in range(400):
                address = "127.0.0.3" if number % 2 else "127.0.0.1"
                flood.append(socket.create_connection(("127.0.0.1", server.port), source_address=(address, 0)))
                if number % 40 == 0:
                    assert await fetched(f"http://127.0.0.1:{server.port}/healthz") == (200, "ok\n")
            assert await fetched(f"http://127.0.0.1:{server.port}/readyz") == (200, "ok\n")
            assert server.connections <= limits.connections
            assert closed(metrics)["connections"] >= 400 - limits.connections
            old[1].write(_HEAD + b"\r\n")
            assert (await old[0].readline()).startswith(b"HTTP/1.1 200"), "an address with one connection keeps it"
            old[1].close()
            for each in flood:
                each.close()

    asyncio.run(scenario())
