"""A schema registry that does not answer while records wait: no fault of a record, and asked once."""

from __future__ import annotations

import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import Message

import millpond as mp
from millpond.errors import BrokerError
from millpond.protocol import Trouble
from millpond.runtime.processing.record_queue import Decoder
from millpond.serdes.registry import Avro, SchemaRegistry
from tests.runtime.running import GUARANTEES, Running, failure_of, run_until
from tests.serdes.registry_server import RegistryServer, serve
from tests.support import kafka

pytest.importorskip("authlib", reason="needs the extra avro")

_RECORDS = 40
_FORGIVING = {
    "deserialization.exception.handler": "continue",
    "processing.exception.handler": "continue",
    "production.exception.handler": "continue",
}


@pytest.fixture
def server() -> Iterator[RegistryServer]:
    with serve() as running:
        yield running


@pytest.fixture
def connect(server: RegistryServer) -> Iterator[Callable[[], SchemaRegistry]]:
    """Return a function that makes clients of the registry, without retries; they are closed after the test."""
    made: list[SchemaRegistry] = []

    def new() -> SchemaRegistry:
        made.append(SchemaRegistry(server.url, {"max.retries": 0}))
        return made[-1]

    yield new
    for each in made:
        each.close()


class _Away:
    """A deserializer whose registry does not answer, and which counts its calls."""

    calls = 0

    def __call__(self, _data: Any) -> Any:
        self.calls += 1
        raise BrokerError("the schema registry does not answer")


@pytest.mark.parametrize("null", [False, True], ids=["all in one pass", "one by one"])
@pytest.mark.parametrize("part", ["key", "value"])
def test_first_record_that_a_registry_fails_ends_the_batch(part: str, *, null: bool) -> None:
    """The other records would each wait for the same registry."""
    away = _Away()

    def never(*_given: Any) -> Any:
        raise AssertionError("no handler is called, and no record is dropped")

    decoder = Decoder(
        away if part == "key" else bytes, away if part == "value" else bytes, never,
        trust_timestamps=True, on_bad_record=never, dropped=never, in_seconds=never,
    )  # fmt: skip

    def message(offset: int, key: bytes | None = b"k", value: bytes | None = b"v") -> Message:
        return Message(topic="in", partition=0, offset=offset, key=key, value=value, timestamp=(1, 10_000))

    messages = [message(each) for each in range(_RECORDS)]
    if null:
        messages.append(message(_RECORDS, value=None) if part == "key" else message(_RECORDS, key=None))
    with pytest.raises(BrokerError, match="does not answer"):
        decoder.decode(messages, -1)
    assert away.calls == 1


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_worker_asks_a_registry_once_and_loses_no_record(
    broker: Any,
    create_topic: Any,
    app_id: str,
    tmp_path: Any,
    server: RegistryServer,
    connect: Callable[[], SchemaRegistry],
    guarantee: str,
) -> None:
    """It ends at the first record, without dead letters. After a restart it processes each record."""
    source, target, letters = create_topic("in"), create_topic("out"), create_topic("dead")
    written = Avro(registry=connect(), schema='"string"').for_topic(source, is_key=False)
    sent = [(b"k", written.serialize(f"v{each}"), 1_000 + each) for each in range(_RECORDS)]
    kafka.produce(broker.bootstrap_servers, source, sent)

    def topology() -> mp.Topology:
        builder = mp.StreamsBuilder()
        avro = Avro(registry=connect())
        builder.stream(source, key=mp.String, value=avro).to(target, key=mp.String, value=mp.String)
        return builder.build()

    settings = {**_FORGIVING, "processing.guarantee": guarantee, "errors.dead.letter.queue.topic.name": letters}
    server.failing, before = 503, len(server.requests)
    error = failure_of(topology(), broker.bootstrap_servers, app_id, tmp_path, settings)
    assert isinstance(error, BrokerError)
    assert server.url in str(error)
    assert len(server.requests) == before + 1
    assert kafka.committed_offsets(broker.bootstrap_servers, app_id, source)[0][0] <= 0
    server.failing = None
    rows = run_until(topology(), broker.bootstrap_servers, app_id, tmp_path, target, _RECORDS, settings)
    assert [row.value for row in rows] == [b"v%d" % each for each in range(_RECORDS)]
    assert kafka.read(broker.bootstrap_servers, letters) == []


def test_worker_that_asks_again_is_not_ready_and_says_why(
    broker: Any,
    create_topic: Any,
    app_id: str,
    tmp_path: Any,
    server: RegistryServer,
    connect: Callable[..., SchemaRegistry],
) -> None:
    """The coordinator gets the reason, too. When the registry answers, the worker goes on."""
    source, target = create_topic("in"), create_topic("out")
    written = Avro(registry=connect(), schema='"string"').for_topic(source, is_key=False)
    kafka.produce(broker.bootstrap_servers, source, [(b"k", written.serialize("v"), 1_000)])
    registry = SchemaRegistry(server.url, {"max.retries": 2})
    builder = mp.StreamsBuilder()
    avro = Avro(registry=registry)
    builder.stream(source, key=mp.String, value=avro).to(target, key=mp.String, value=mp.String)
    running = Running(builder.build(), broker.bootstrap_servers, app_id, tmp_path, {"http.port": 0})
    seen: list[tuple[int, str]] = []
    reported: list[Trouble | None] = []

    def meanwhile(_seconds: float) -> None:
        port = running.worker.metrics.port
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=60) as answer:
                seen.append((answer.status, answer.read().decode()))
        except urllib.error.HTTPError as error:
            with error:
                seen.append((error.code, error.read().decode()))
        reported.append(running.worker.waiting.trouble())
        if len(seen) == 2:
            server.failing = None

    registry._asking._sleep = meanwhile
    server.failing = 503
    with running:
        running.wait(lambda: kafka.read(broker.bootstrap_servers, target), "the record is processed")
        assert running.worker.waiting.trouble() is None
        assert running.worker.metrics.ready()
    registry.close()
    assert [status for status, _ in seen] == [503, 503]
    assert all(f"SchemaRegistry({server.url}) cannot be used now" in text for _, text in seen)
    assert all(each is not None and server.url in each.message for each in reported)
