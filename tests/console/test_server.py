"""The console's server: what it answers to whom, and with which headers."""

from __future__ import annotations

import asyncio
import http.client
import json

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from millpond.console import add_console
from tests.console.pond import Server, Source, overview


def answer(server: Server, path: str, method: str = "GET", **headers: str):
    """The status, headers and body of an answer; the path is sent as it is."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    try:
        connection.request(method, path, headers=headers)
        response = connection.getresponse()
        return response.status, response.headers, response.read().decode()
    finally:
        connection.close()


PATHS = ("/console/", "/console/main.js", "/console/nothing", "/api/applications", "/api/applications/a/b",
         "/api/applications/flights/pond/topology.svg")  # fmt: skip


@pytest.mark.parametrize("path", PATHS)
def test_every_answer_is_protected(server: Server, path: str) -> None:
    """No script but the console's own runs, no other page may frame it, and nothing is kept or set."""
    _, headers, _ = answer(server, path)
    policy = dict(part.strip().split(" ", 1) for part in headers["Content-Security-Policy"].split(";"))
    assert policy["default-src"] == policy["frame-ancestors"] == policy["base-uri"] == "'none'"
    assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["X-Frame-Options"] == "DENY"
    assert headers["Cache-Control"] == "no-store"
    assert headers["Set-Cookie"] is None
    assert headers["Access-Control-Allow-Origin"] is None


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "OPTIONS"])
@pytest.mark.parametrize("path", PATHS)
def test_only_reading_is_possible(server: Server, path: str, method: str) -> None:
    """Nothing can be changed."""
    assert answer(server, path, method)[0] == 405


def test_documents_are_json(server: Server) -> None:
    """The list, and one application."""
    _, headers, body = answer(server, "/api/applications")
    assert headers["Content-Type"] == "application/json"
    assert [each["name"] for each in json.loads(body)["applications"]] == ["pond"]
    one = json.loads(answer(server, "/api/applications/flights/pond")[2])
    assert (one["summary"]["records_per_second"], one["moves"][0]["task"]) == (4957.5, "0_2")


def test_unknown_names_get_a_sentence(server: Server) -> None:
    """As text, whatever the name."""
    status, headers, body = answer(server, "/api/applications/flights/%3Cscript%3E")
    assert (status, headers["Content-Type"]) == (404, "text/plain; charset=utf-8")
    assert body == "There is no application flights/<script>, or nothing is known of it yet.\n"


@pytest.mark.parametrize("path", ["/console/../server.py", "/console/..%2fserver.py", "/console/%2e%2e/server.py"])
def test_only_files_of_the_page_are_served(server: Server, path: str) -> None:
    """There is no way out of their folder."""
    assert answer(server, path)[0] == 404


def test_source_without_data_answers_with_its_sentence(server: Server, source: Source) -> None:
    """The page, too: a replica that stands by must not look like one that leads."""
    source.unavailable = "This replica stands by."
    for path in ("/console/", "/api/applications", "/api/applications/flights/pond"):
        status, _, body = answer(server, path)
        assert (status, body) == (503, "This replica stands by.\n")


def test_foreign_host_names_are_rejected() -> None:
    """A web page whose name leads to this machine reads nothing (DNS rebinding)."""

    async def ask(host: str) -> int:
        app = web.Application()
        add_console(app, Source(overview()), lambda: {"127.0.0.1:4040", "localhost:4040"})
        async with TestClient(TestServer(app)) as client:
            statuses = {(await client.get(path, headers={"Host": host})).status for path in PATHS[:2] + PATHS[3:4]}
            assert len(statuses) == 1
            return statuses.pop()

    assert asyncio.run(ask("localhost:4040")) == 200
    assert asyncio.run(ask("evil.example:4040")) == 403
    assert asyncio.run(ask("127.0.0.1")) == 403
