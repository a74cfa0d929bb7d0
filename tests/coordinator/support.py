"""Helpers: topologies, heartbeats, a scripted coordinator, and waiting for conditions."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import msgspec

from millpond.protocol import (
    Answer,
    Epoch,
    Heartbeat,
    Role,
    SubtopologySummary,
    TaskReport,
    TaskState,
    TopologySummary,
    clock,
    decode_heartbeat,
    encode,
)
from millpond.protocol.client import CoordinatorClient

APP = "delays"


def topology(partitions: int = 4, *, stateful: bool = True, hash: str = "h1", store: str = "counts") -> TopologySummary:
    stores = (store,) if stateful else ()
    return TopologySummary(hash, (SubtopologySummary(0, partitions, stateful, stores, {"flights": partitions}),))


def passing(partitions: int, hash: str = "h1") -> TopologySummary:
    """A stateless topology with one task per partition of its input."""
    part = SubtopologySummary(0, partitions, False, (), {"flights": partitions}, follows_inputs=True)
    return TopologySummary(hash, (part,))


def running(*tasks: str, lag: int | None = 0, state: TaskState = TaskState.RUNNING) -> dict[str, TaskReport]:
    return {task: TaskReport(Role.ACTIVE, state, lag) for task in tasks}


def heartbeat(
    worker: str = "w0", sequence: int = 1, summary: TopologySummary | None = None, **fields: Any
) -> Heartbeat:
    """A heartbeat with its topology, unless `topology=None`."""
    summary = summary or topology()
    given = {"application": APP, "incarnation": f"{worker}-1", "topology_hash": summary.hash, "topology": summary}
    return Heartbeat(worker=worker, sequence=sequence, **{**given, **fields})


async def eventually(condition: Callable[[], Any], what: str, timeout_s: float = 20.0) -> Any:
    """Wait until a condition holds."""
    deadline = clock.monotonic() + timeout_s
    while True:
        value = condition()
        if value:
            return value
        assert clock.monotonic() < deadline, f"not within {timeout_s} s: {what}"
        await asyncio.sleep(0.005)


Reply = bytes | None
"""A raw HTTP response; None closes the connection without one."""


def http(body: bytes | msgspec.Struct, status: int = 200) -> bytes:
    raw = body if isinstance(body, bytes) else encode(body)
    return f"HTTP/1.1 {status} X\r\nContent-Type: application/json\r\nContent-Length: {len(raw)}\r\n\r\n".encode() + raw


class Scripted:
    """A coordinator that answers each heartbeat as the test defines, on real sockets.

    Attributes:
        reply: returns the reply to a heartbeat; it may take time.
        heartbeats: all received heartbeats, oldest first.
    """

    def __init__(self, reply: Callable[[Heartbeat], Awaitable[Reply]]) -> None:
        self.reply = reply
        self.heartbeats: list[Heartbeat] = []
        self.headers: list[dict[str, str]] = []
        self.url = ""

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncIterator[Scripted]:
        server = await asyncio.start_server(self._connection, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        try:
            yield self
        finally:
            server.close()
            server.close_clients() if hasattr(server, "close_clients") else None

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                headers = {
                    name.lower(): value.strip()
                    for name, _, value in (line.partition(":") for line in head.splitlines()[1:])
                }
                heartbeat = decode_heartbeat(await reader.readexactly(int(headers["content-length"])))
                self.heartbeats.append(heartbeat)
                self.headers.append(headers)
                reply = await self.reply(heartbeat)
                if reply is None:
                    break
                writer.write(reply)
                await writer.drain()
                if b"Connection: close" in reply:
                    break
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            writer.close()


def answer(heartbeat: Heartbeat, term: int = 1, coordinator: str = "c1", **fields: Any) -> Answer:
    """A valid answer, with a short session so that tests are fast."""
    given = {"epoch": Epoch(term, 1), "sequence": heartbeat.sequence, "revision": 1, "session_timeout_ms": 600}
    return Answer(coordinator=coordinator, **{**given, **fields})


def client(url: str, **options: Any) -> CoordinatorClient:
    return CoordinatorClient(url, heartbeat(topology=None), topology(), **options)


@contextlib.asynccontextmanager
async def connected(client: CoordinatorClient) -> AsyncIterator[CoordinatorClient]:
    """Run the client within the block."""
    task = asyncio.create_task(client.run())
    try:
        yield client
        assert not task.done(), task.exception()
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
