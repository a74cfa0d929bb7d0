"""Queries of values with a schema registry that does not answer: they fail at once, and hold up nobody."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest

import millpond as mp
from millpond.errors import BrokerError
from millpond.queries import FailureReason, QueryFailed
from millpond.queries.catalog import StoreCatalog
from millpond.serdes.registry import Avro, SchemaRegistry
from tests.queries.application import APPLICATION, Application, Worker
from tests.serdes.registry_server import RegistryServer, serve

pytest.importorskip("authlib", reason="needs the extra avro")

SCHEMA = {"type": "record", "name": "Sum", "fields": [{"name": each, "type": "int"} for each in "abc"]}
#: The bytes of this Long are the Avro of the registry's schema 1.
ROW, VALUE = 0x01_02_04_06, {"a": 1, "b": 2, "c": 3}
KEY = "/v1/stores/counts/keys/key"
QUERIES = [KEY, "/v1/stores/counts/all", "/v1/stores/counts/range?low=a"]


@pytest.fixture
def server() -> Iterator[RegistryServer]:
    with serve() as running:
        yield running


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def connect(server: RegistryServer) -> Iterator[Callable[..., SchemaRegistry]]:
    """Return a function that makes clients of the registry; they are closed after the test."""
    made: list[SchemaRegistry] = []

    def new(clock: Clock | None = None) -> SchemaRegistry:
        made.append(SchemaRegistry(server.url))
        made[-1]._asking._monotonic = clock or Clock()
        made[-1]._asking._sleep = _no_wait
        return made[-1]

    yield new
    for each in made:
        each.close()


def _no_wait(_seconds: float) -> None:
    raise AssertionError("a query does not wait for a registry")


def serves(worker: Worker, **serdes: mp.Serde[Any]) -> None:
    """Let a worker read the store `counts` with other serdes."""
    catalog = worker.application.catalog
    stores = [replace(info, **(serdes if info.name == "counts" else {})) for info in catalog.values()]
    worker.service.open(worker, StoreCatalog(APPLICATION, stores))


def ask(worker: Worker, path: str) -> tuple[int, Any]:
    connection = http.client.HTTPConnection("127.0.0.1", worker.http.port, timeout=60)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        body = answer.read()
        return answer.status, json.loads(body.splitlines()[0])
    finally:
        connection.close()


def avro(registry: SchemaRegistry) -> mp.Serde[Any]:
    return Avro(registry=registry).for_topic("counts", is_key=False)


def register(connect: Callable[..., SchemaRegistry]) -> None:
    assert connect().register("counts-value", "AVRO", json.dumps(SCHEMA)).id == 1


def test_queries_fail_at_once_until_the_registry_answers(
    start: Callable[..., Application], server: RegistryServer, connect: Callable[..., SchemaRegistry]
) -> None:
    """The answer is 503 with the registry's address, and one request is sent for all of them."""
    register(connect)
    application, clock = start(1, 1, alone=True), Clock()
    (worker,) = application.workers
    application.put("counts", "key", mp.ValueAndTimestamp(ROW, 1))
    serves(worker, value=avro(connect(clock)))
    server.failing, before = 503, len(server.requests)
    with ThreadPoolExecutor(8) as clients:
        answers = list(clients.map(lambda path: ask(worker, path), QUERIES * 4))
    for status, body in answers:
        assert (status, body["error"]["reason"]) == (503, "REGISTRY_UNAVAILABLE")
        assert server.url in body["error"]["message"]
        assert "format=base64" in body["error"]["message"]
    assert len(server.requests) == before + 1
    assert ask(worker, KEY + "?format=base64")[0] == 200
    with pytest.raises(QueryFailed) as raised:
        application.client(worker).store("counts").get("key")
    assert (raised.value.reason, raised.value.passing) == (FailureReason.REGISTRY_UNAVAILABLE, True)
    server.failing = None
    clock.now += 1.0
    assert [ask(worker, path)[1]["value"] for path in QUERIES] == [VALUE] * 3


@pytest.mark.parametrize("form", ["text", "json"])
def test_key_that_needs_the_registry_is_no_bad_request(
    start: Callable[..., Application], server: RegistryServer, connect: Callable[..., SchemaRegistry], form: str
) -> None:
    """The key may be right."""
    (worker,) = start(1, 1, alone=True).workers
    serves(worker, key=Avro(registry=connect()).for_topic("counts", is_key=True))
    server.failing = 503
    for path in ('/v1/stores/counts/keys/"key"', '/v1/metadata/counts/"key"'):
        status, body = ask(worker, f"{path}?key_format={form}")
        assert (status, body["error"]["reason"]) == (503, "REGISTRY_UNAVAILABLE")


def test_registry_that_hangs_holds_up_no_heartbeat_and_no_other_query(start: Callable[..., Application]) -> None:
    """Heartbeats are sent by the event loop that answers queries, so it never waits for a serde."""
    application = start(1, 1, alone=True)
    (worker,) = application.workers
    application.put("counts", "key", mp.ValueAndTimestamp(ROW, 1))
    application.put("windows", "key", mp.ValueAndTimestamp(7.5, 1), 20_000)
    waiting, ended = threading.Semaphore(0), threading.Event()

    def hangs(_data: bytes) -> Any:
        waiting.release()
        assert ended.wait(60)
        raise BrokerError("the registry does not answer.")

    def of_topic(_topic: str, _is_key: bool) -> mp.Serde[Any]:
        return hanging

    hanging: mp.Serde[Any] = mp.Serde("Avro", mp.Long.serialize, hangs, specialize=of_topic)
    serves(worker, value=hanging)
    count = 8
    with ThreadPoolExecutor(count) as clients:
        answers = [clients.submit(ask, worker, QUERIES[each % 2]) for each in range(count)]
        try:
            for _ in range(count):
                assert waiting.acquire(timeout=60)
            assert worker.http.spawn(_heartbeat()).result(60) == "sent"
            assert ask(worker, "/v1/stores/windows/windows/key")[1]["value"] == 7.5
            assert ask(worker, "/v1/stores/windows/all")[1]["value"] == 7.5
        finally:
            ended.set()
        assert {answer.result(60)[0] for answer in answers} == {503}


async def _heartbeat() -> str:
    return "sent"


def test_client_asks_another_worker_that_may_know_the_schema(
    start: Callable[..., Application], server: RegistryServer, connect: Callable[..., SchemaRegistry]
) -> None:
    """A worker that has run for longer keeps its schemas."""
    register(connect)
    application = start(2, 2)
    new, old = application.workers
    application.put("counts", "key", mp.ValueAndTimestamp(ROW, 1))
    serves(old, value=avro(connect()))
    assert ask(old, KEY)[1]["value"] == VALUE
    serves(new, value=avro(connect()))
    server.failing = 503
    assert ask(new, KEY)[0] == 503
    store = application.client(new, old).store("counts")
    assert store.get("key") == VALUE
    assert [row.value for row in store.all()] == [VALUE]
