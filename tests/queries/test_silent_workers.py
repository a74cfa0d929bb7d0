"""Workers that accept connections and do not answer, as one that was stopped by SIGSTOP."""

from __future__ import annotations

import socket
from datetime import timedelta

from aiohttp import web

from millpond.queries import Client
from millpond.runtime.http.server import HttpServer

CATALOG = b'{"application":"a","worker":"w1","stores":[]}'


def test_the_next_worker_is_asked_when_one_is_silent() -> None:
    """A share of the time is left for it, and the silent one is asked last from then on."""
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
        with Client(address, server.url, timeout=timedelta(seconds=2)) as client:
            for _ in range(3):
                assert client.stores() == []
        accepted, _ = silent.accept()
        accepted.close()
        try:
            silent.accept()
        except BlockingIOError:
            again = False
        else:
            again = True
    assert (asked, again) == (3, False)
