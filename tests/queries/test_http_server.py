"""The worker's HTTP thread: its routes, coroutines and end."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import socket
import threading

import pytest
from aiohttp import web

from millpond.errors import ConfigError
from millpond.runtime.http.server import HttpServer
from tests.support.broker import free_port


def get(server, path):
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    connection.request("GET", path)
    answer = connection.getresponse()
    try:
        return answer.status, answer.read().decode()
    finally:
        connection.close()


async def hello(request):
    return web.Response(text=f"hello {request.match_info['name']}")


def test_routes_are_served_and_unknown_paths_list_them():
    """Port 0 uses a free port; the answer to an unknown path lists the paths."""
    server = HttpServer("127.0.0.1", 0)
    server.route("GET", "/hello/{name}", hello)
    with server:
        assert server.url == f"http://127.0.0.1:{server.port}"
        assert get(server, "/hello/you") == (200, "hello you")
        assert get(server, "/elsewhere") == (404, "paths: /hello/{name}\n")
    assert server.port == 0
    assert server.url is None


def test_nothing_is_served_on_a_negative_port_but_coroutines_run():
    """A worker without HTTP still sends heartbeats."""
    with HttpServer("127.0.0.1", -1) as server:
        assert server.port == 0

        async def where():
            return threading.current_thread().name

        assert server.spawn(where()).result(60) == "millpond-http"


def test_a_port_in_use_is_reported_in_one_sentence():
    """The error names the address and the settings, and no thread remains."""
    port = free_port()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", port))
        taken.listen()
        server = HttpServer("127.0.0.1", port)
        threads = set(threading.enumerate())
        with pytest.raises(ConfigError, match=rf"127\.0\.0\.1:{port}.*'http\.port'") as raised:
            server.start()
        assert len(str(raised.value).splitlines()) == 1
        assert set(threading.enumerate()) <= threads
    with server:  # it is free now
        assert server.port == port


def test_close_cancels_coroutines_and_exits_contexts():
    """Coroutines are cancelled, contexts are exited after the last request, and the thread ends."""
    told = []

    @contextlib.asynccontextmanager
    async def resource():
        told.append("opened")
        yield
        told.append("closed")

    async def forever():
        try:
            await asyncio.Event().wait()
        finally:
            told.append("cancelled")

    server = HttpServer("127.0.0.1", 0)
    server.resource(resource)
    with server:
        running = server.spawn(forever())
        cancelled_by_hand = server.spawn(forever())
        server.spawn(asyncio.sleep(0)).result(60)
        cancelled_by_hand.cancel()
        assert told[0] == "opened"
    assert running.cancelled()
    assert told == ["opened", "cancelled", "cancelled", "closed"]
    assert not [each for each in threading.enumerate() if each.name == "millpond-http"]
    unused = asyncio.sleep(0)
    with pytest.raises(RuntimeError, match="is not running"):
        server.spawn(unused)


def test_routes_cannot_be_added_while_it_runs():
    """They would be ignored."""
    with HttpServer("127.0.0.1", -1) as server, pytest.raises(RuntimeError, match="before its start"):
        server.route("GET", "/late", hello)


def test_a_resource_that_cannot_be_opened_stops_the_start():
    """start() raises the error."""

    @contextlib.asynccontextmanager
    async def broken():
        raise ConfigError("no such certificate: give another.")
        yield

    server = HttpServer("127.0.0.1", 0)
    server.resource(broken)
    with pytest.raises(ConfigError, match="no such certificate"):
        server.start()


def test_an_answer_under_way_ends_with_the_server(monkeypatch):
    """A stream that no client reads does not delay the end."""
    monkeypatch.setattr("millpond.runtime.http.server._GRACE_S", 0.2)
    begun = threading.Event()

    async def endless(request):
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b"x")
        begun.set()
        await asyncio.Event().wait()

    server = HttpServer("127.0.0.1", 0)
    server.route("GET", "/endless", endless)
    with server:
        client = socket.create_connection(("127.0.0.1", server.port))
        client.sendall(b"GET /endless HTTP/1.1\r\nHost: here\r\n\r\n")
        assert begun.wait(60)
    client.close()


async def _stubborn(begun, over):
    """A coroutine that no cancellation ends; it does when `over` is set."""
    begun.set()
    while not over.is_set():
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(0.01)


def test_a_coroutine_that_does_not_end_holds_nothing_up(monkeypatch, caplog):
    """The server says so after its grace period, and the worker ends."""
    monkeypatch.setattr("millpond.runtime.http.server._GRACE_S", 0.1)
    monkeypatch.setattr("millpond.runtime.http.server._END_S", 0.5)
    begun, over = threading.Event(), threading.Event()
    server = HttpServer("127.0.0.1", -1)
    server.start()
    server.spawn(_stubborn(begun, over))
    assert begun.wait(60)
    try:
        server.stop()
        assert "a request or a coroutine does not end" in caplog.text
    finally:
        over.set()


def test_a_thread_that_ends_late_takes_nothing_from_the_next_one(monkeypatch):
    """The server was started again meanwhile: coroutines run on, and those of the former thread are not waited for."""
    monkeypatch.setattr("millpond.runtime.http.server._GRACE_S", 0.05)
    monkeypatch.setattr("millpond.runtime.http.server._END_S", 0.2)
    begun, over = threading.Event(), threading.Event()

    async def answer():
        return 42

    server = HttpServer("127.0.0.1", -1)
    server.start()
    former = server._thread
    server.spawn(_stubborn(begun, over))
    assert begun.wait(60)
    try:
        server.stop()
        server.start()
        server.stop()
        server.start()
        over.set()
        former.join(60)
        assert not former.is_alive()
        assert server.spawn(answer()).result(60) == 42
    finally:
        over.set()
        server.stop()
