"""The client with an API server that is busy, unavailable, silent or wrong."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
from aiohttp import web

from millpond.backoff import Backoff
from millpond_operator.controllers.process.metrics import OperatorMetrics
from millpond_operator.kubernetes import (
    ApiError,
    Client,
    Connection,
    NotFound,
    TooManyRequests,
    Unavailable,
    client,
    connection,
)
from millpond_operator.kubernetes.connection import ServiceAccountToken
from millpond_operator.kubernetes.kinds import CONFIG_MAP
from tests.kubernetes.support import an_object, serving
from tests.simulation.running import simulate

Answer = Callable[[], web.Response]


class Scripted:
    """Gives prepared responses in order; repeats the last one."""

    def __init__(self, *answers: Answer) -> None:
        self.requests: list[web.BaseRequest] = []
        self._answers = list(answers)

    async def __call__(self, request: web.BaseRequest) -> web.Response:
        self.requests.append(request)
        return (self._answers.pop(0) if len(self._answers) > 1 else self._answers[0])()


def status(code: int, message: str = "so it is", reason: str = "", **headers: str) -> Answer:
    body = {"kind": "Status", "message": message, "reason": reason, "code": code}
    return lambda: web.json_response(body, status=code, headers={k.replace("_", "-"): v for k, v in headers.items()})


def found(version: int = 1) -> Answer:
    return lambda: web.json_response(an_object(CONFIG_MAP, "a", version))


def page(*names: str, next_page: str = "", version: int = 7) -> Answer:
    items = [{"metadata": {"name": name, "resourceVersion": "1"}} for name in names]
    return lambda: web.json_response(
        {"metadata": {"resourceVersion": str(version), "continue": next_page}, "items": items}
    )


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Short pauses between retries."""
    monkeypatch.setattr(client, "_BACKOFF", Backoff(timedelta(milliseconds=1), timedelta(milliseconds=10), jitter=0.5))


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Short time limits for reads."""
    monkeypatch.setattr(client, "_READ_TIMEOUT_S", 2.0)


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("code", [429, 500, 503, 504])
def test_reads_are_retried(code: int) -> None:
    """A busy API server is asked again, and the caller does not notice."""

    async def scenario() -> None:
        server = Scripted(status(code), status(code), found())
        async with serving(server) as url, Client(Connection(url)) as client:
            assert (await client.get(CONFIG_MAP, "ns", "a"))["metadata"]["name"] == "a"
        assert len(server.requests) == 3

    simulate(scenario())


@pytest.mark.usefixtures("quick", "impatient")
def test_reads_give_up_after_the_deadline() -> None:
    """The caller gets the last error."""

    async def scenario() -> None:
        server = Scripted(status(503, "not now"))
        async with serving(server) as url, Client(Connection(url)) as client:
            with pytest.raises(Unavailable, match=r"GET /api/v1/namespaces/ns/configmaps/a with 503: not now"):
                await client.get(CONFIG_MAP, "ns", "a")
        assert len(server.requests) > 3

    simulate(scenario())


@pytest.mark.parametrize(("code", "expected"), [(429, TooManyRequests), (500, Unavailable), (418, ApiError)])
def test_writes_are_never_retried(code: int, expected: type[ApiError]) -> None:
    """A failed write is left to the work queue, which gets the time of the retry."""

    async def scenario() -> None:
        server = Scripted(status(code, Retry_After="7"))
        async with serving(server) as url, Client(Connection(url)) as client:
            for write in (
                client.apply(CONFIG_MAP, an_object(CONFIG_MAP, "a")),
                client.create(CONFIG_MAP, an_object(CONFIG_MAP, "a")),
                client.delete(CONFIG_MAP, "ns", "a"),
            ):
                with pytest.raises(expected) as caught:
                    await write
                assert (caught.value.status, caught.value.retry_after) == (code, 7.0)
        assert len(server.requests) == 3

    simulate(scenario())


def test_retry_after_is_respected() -> None:
    """Reads wait as long as the API server asks, and fail at once when that is too long."""

    async def scenario() -> None:
        server = Scripted(status(429, Retry_After="1"), found())
        async with serving(server) as url, Client(Connection(url)) as client:
            began = asyncio.get_running_loop().time()
            await client.get(CONFIG_MAP, "ns", "a")
            assert asyncio.get_running_loop().time() - began >= 1.0
        server = Scripted(status(429, Retry_After="60"))
        async with serving(server) as url, Client(Connection(url)) as client:
            with pytest.raises(TooManyRequests):
                await client.get(CONFIG_MAP, "ns", "a")

    simulate(scenario())


@pytest.mark.usefixtures("quick", "impatient")
def test_silent_request_times_out() -> None:
    """A request without a response ends with an error that says so."""

    async def scenario() -> None:
        async def silent(request: web.BaseRequest) -> web.Response:
            await asyncio.sleep(60)
            return web.Response()

        quick = timedelta(milliseconds=50)
        async with serving(silent) as url, Client(Connection(url), timeout=quick) as client:
            with pytest.raises(Unavailable, match=r"did not answer PATCH /api/v1/.*/a within 0.05 s"):
                await client.apply(CONFIG_MAP, an_object(CONFIG_MAP, "a"))
            with pytest.raises(Unavailable, match="did not answer GET"):
                await client.get(CONFIG_MAP, "ns", "a")

    simulate(scenario())


@pytest.mark.usefixtures("quick")
def test_unreachable_api_server_is_reported() -> None:
    """The message has the address."""

    async def scenario() -> None:
        async with serving(Scripted(found())) as url:
            pass
        metrics = OperatorMetrics()
        async with Client(Connection(url), metrics=metrics) as client:
            with pytest.raises(Unavailable, match=f"Cannot reach the API server at {url}"):
                await client.apply(CONFIG_MAP, an_object(CONFIG_MAP, "a"))
        assert b'rest_client_requests_total{code="<error>",method="PATCH"} 1.0' in metrics.exposed()

    simulate(scenario())


def test_a_list_that_expires_is_read_from_the_start() -> None:
    """When the next page expired, all pages are read again."""

    async def scenario() -> None:
        server = Scripted(
            page("a", "b", next_page="more"), status(410, reason="Expired"), page("c", next_page="more"), page("d")
        )
        async with serving(server) as url, Client(Connection(url)) as client:
            items, version = await client.list(CONFIG_MAP, "ns")
        assert [each["metadata"]["name"] for each in items] == ["c", "d"]
        assert version == "7"
        assert "continue" not in server.requests[2].query
        assert server.requests[3].query["continue"] == "more"

    simulate(scenario())


def test_a_replaced_token_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a rejection, or some time, the file is read again and the request is sent with the new token."""
    file = tmp_path / "token"
    file.write_text("first\n")

    async def checked(request: web.BaseRequest) -> web.Response:
        good = request.headers["Authorization"] == f"Bearer {file.read_text().strip()}"
        return (found() if good else status(401, "Unauthorized"))()

    async def scenario() -> None:
        async with serving(checked) as url, Client(Connection(url, token_file=ServiceAccountToken(file))) as client:
            await client.get(CONFIG_MAP, "ns", "a")
            file.write_text("second\n")
            await client.apply(CONFIG_MAP, an_object(CONFIG_MAP, "a"))
            monkeypatch.setattr(connection, "_TOKEN_AGE_S", 0.0)
            file.write_text("third\n")
            assert client.connection.bearer() == "third"
            file.unlink()
            assert client.connection.bearer() == "third"

    simulate(scenario())


def test_non_status_error_body_is_shown() -> None:
    """The error has the beginning of a proxy's page."""

    async def scenario() -> None:
        server = Scripted(lambda: web.Response(text="no such host", status=404))
        async with serving(server) as url, Client(Connection(url)) as client:
            with pytest.raises(NotFound, match="with 404: no such host"):
                await client.get(CONFIG_MAP, "ns", "a")

    simulate(scenario())


def test_warnings_are_passed_on_once(caplog: pytest.LogCaptureFixture) -> None:
    """The log has each warning of the API server once."""

    async def scenario() -> None:
        def warned() -> web.Response:
            return web.json_response(an_object(CONFIG_MAP, "a", 1), headers={"Warning": '299 - "old version"'})

        async with serving(Scripted(warned)) as url, Client(Connection(url)) as client:
            await client.get(CONFIG_MAP, "ns", "a")
            await client.get(CONFIG_MAP, "ns", "a")

    with caplog.at_level(logging.WARNING):
        simulate(scenario())
    assert len([record for record in caplog.records if "old version" in record.message]) == 1


def test_more_requests_than_allowed_wait() -> None:
    """No more requests than allowed are in flight, and all are answered."""

    async def scenario() -> None:
        under_way = most = 0
        three = asyncio.Event()

        async def counting(request: web.BaseRequest) -> web.Response:
            nonlocal under_way, most
            under_way += 1
            most = max(most, under_way)
            if under_way == 3:
                three.set()
            await three.wait()
            await asyncio.sleep(0.005)
            under_way -= 1
            return found()()

        async with serving(counting) as url, Client(Connection(url), concurrency=3) as client:
            await asyncio.gather(*(client.get(CONFIG_MAP, "ns", "a") for _ in range(20)))
        assert most == 3

    simulate(scenario())
