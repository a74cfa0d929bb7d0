"""`millpond consume` while the schema registry does not answer: no record is left out."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator

import pytest

pytest.importorskip("authlib", reason="needs the extra avro")

from millpond.cli.records import registry_formats
from millpond.serdes.registry import Avro, SchemaRegistry
from tests.cli.conftest import Millpond
from tests.conftest import CreateTopic
from tests.serdes.registry_server import RegistryServer, serve
from tests.support import kafka
from tests.support.broker import Broker

_RECORDS = 12


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> Iterator[RegistryServer]:
    """A registry, whose clients do not ask again, and end with the test."""
    made: list[SchemaRegistry] = []

    def connect(url: str | None) -> SchemaRegistry:
        made.append(SchemaRegistry(url, {"max.retries": 0}))
        made[-1]._asking._monotonic = lambda: 0.0
        return made[-1]

    monkeypatch.setattr(registry_formats, "SchemaRegistry", connect)
    with serve() as running:
        yield running
    for each in made:
        each.close()


@pytest.fixture
def sent(registry: RegistryServer, broker: Broker, create_topic: CreateTopic) -> tuple[str, list[bytes]]:
    """A topic and its values, which are Avro, as their keys are."""
    topic = create_topic("orders")
    client = registry_formats.SchemaRegistry(registry.url)
    avro = Avro(registry=client, schema='"string"')
    key, value = avro.for_topic(topic, is_key=True), avro.for_topic(topic, is_key=False)
    values = [value.serialize(f"v{each}") for each in range(_RECORDS)]
    kafka.produce(broker.bootstrap_servers, topic, [(key.serialize("k"), each, 1_000) for each in values])
    return topic, values


def test_records_are_shown_as_base64(
    millpond: Millpond, broker: Broker, registry: RegistryServer, sent: tuple[str, list[bytes]]
) -> None:
    """The registry is asked once, and one sentence says so."""
    topic, values = sent
    command = ("consume", topic, "--key", "bytes", "--value", "avro", "--registry", registry.url)
    registry.failing, before = 503, len(registry.requests)
    ended = millpond(*command, "--bootstrap-servers", broker.bootstrap_servers)
    assert ended.status == 0, ended.err
    lines = [json.loads(line) for line in ended.out.splitlines()]
    assert [base64.b64decode(line["value"]["base64"]) for line in lines] == values
    assert all(registry.url in line["error"] for line in lines)
    assert len(registry.requests) == before + 1
    said = " ".join(ended.err.split())
    assert said.count("Keys and values that need it are shown as base64 until it answers.") == 1
    assert f"{_RECORDS} records of these need a schema registry that did not answer: consume them again" in said
    assert "choose other formats" not in said
    registry.failing = None
    ended = millpond(*command, "--bootstrap-servers", broker.bootstrap_servers)
    assert [json.loads(line)["value"] for line in ended.out.splitlines()] == [f"v{each}" for each in range(_RECORDS)]


@pytest.mark.parametrize("last", [(), ("--last", "3")])
def test_records_of_a_key_cannot_be_told_apart(
    millpond: Millpond, broker: Broker, registry: RegistryServer, sent: tuple[str, list[bytes]], last: tuple[str, ...]
) -> None:
    """Without the keys the command would leave out records that were asked for, so it ends with the cause."""
    registry.failing = 503
    ended = millpond(
        "consume", sent[0], "--key", "avro", "--value", "avro", "--registry", registry.url, "--key-is", "k",
        "--bootstrap-servers", broker.bootstrap_servers, *last,
    )  # fmt: skip
    assert ended.status != 0
    assert ended.out == ""
    assert registry.url in ended.err
