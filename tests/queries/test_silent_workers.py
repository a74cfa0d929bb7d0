"""Workers that accept connections and do not answer, as one that was stopped by SIGSTOP."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from datetime import timedelta

from aiohttp import web

from millpond.queries import Client
from millpond.runtime.http.server import HttpServer

CATALOG = b'{"application":"a","worker":"w1","stores":[]}'


def test_the_next_worker_is_asked_when_one_is_silent() -> None:
    """Its probe is silent, too, and it is asked last from then on."""
    asked = 0

    async def answer(_request: web.Request) -> web.Response:
        nonlocal asked
        asked += 1
        return web.Response(body=CATALOG, content_type="application/json")

    server = HttpServer("127.0.0.1", 0)
    server.route("GET", "/v1/stores", answer)
    with socket.create_server(("127.0.0.1", 0)) as silent, server:
        silent.settimeout(0)
        address = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with Client(address, server.url, timeout=timedelta(seconds=60)) as client:
            for _ in range(3):
                assert client.stores() == []
        connections = 0
        with contextlib.suppress(BlockingIOError):
            while True:
                silent.accept()[0].close()
                connections += 1
    assert (asked, connections) == (3, 2)  # the first query and its probe


def test_a_worker_that_waits_is_not_abandoned() -> None:
    """One that has not begun to answer, but lives, is waited for: it may wait for the next owner of a task."""
    asked: list[str] = []
    probed = asyncio.Event()

    async def slow(_request: web.Request) -> web.Response:
        asked.append("slow")
        await probed.wait()
        return web.Response(body=CATALOG, content_type="application/json")

    async def probe(_request: web.Request) -> web.Response:
        probed.set()
        return web.Response()

    async def other(_request: web.Request) -> web.Response:
        asked.append("other")
        return web.Response(body=CATALOG, content_type="application/json")

    first, second = HttpServer("127.0.0.1", 0), HttpServer("127.0.0.1", 0)
    first.route("GET", "/v1/stores", slow)
    first.route("GET", "/healthz", probe)
    second.route("GET", "/v1/stores", other)
    with first, second, Client(first.url, second.url, timeout=timedelta(seconds=60)) as client:
        assert client.stores() == []
        assert client.stores() == []
    assert asked == ["slow", "slow"]
