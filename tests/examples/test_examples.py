"""The examples, as their pages tell to run them: on a real broker, with the records of their feeds."""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import shlex
import struct
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import fastavro
import pytest

from examples.feeding import Sent, send
from examples.registry.app import JOURNEY, LOAD, PARCEL
from tests.demo.commands import ROOT, Shell, blocks, commands
from tests.support import kafka
from tests.support.broker import OwnBroker, free_port

from . import loops

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

PORT = "--port 9092"
REGISTRY = "8081"
AVRO = {"journeys": (PARCEL, JOURNEY), "loads-by-depot": (None, LOAD)}
"""The schemas of keys and values of topics in Avro."""
TABLES = {"shipments", "sales-by-city", "journeys", "loads-by-depot"}
"""Topics of which the last value of each key counts."""


class Example(NamedTuple):
    """An example, its input topics, and what it should send."""

    name: str
    inputs: tuple[str, ...]
    loop: Callable[[Iterable[Sent]], loops.Results]
    application: str = ""
    """The application's id, if it is not the example's name."""

    @property
    def id(self) -> str:
        return self.application or self.name


EXAMPLES = (
    Example("alerts", ("bank.customers", "payments"), loops.alerts),
    Example("clicks", ("views", "impressions", "clicks"), loops.clicks),
    Example("devices", ("readings",), loops.devices),
    Example("orders", ("orders", "customers"), loops.orders),
    Example("registry", ("scans",), loops.registry, "parcels"),
)


@pytest.fixture
def shell(own_broker: OwnBroker, tmp_path: Path) -> Iterator[Shell]:
    """A shell in the repository, whose sessions use one broker of their own.

    The examples have the names of their pages: on a shared broker, other tests would use the same topics.
    """
    theirs = f"--bootstrap-servers {own_broker.bootstrap_servers}"
    replaced = {PORT: theirs, "localhost:9092": own_broker.bootstrap_servers, REGISTRY: str(free_port())}
    opened = Shell(ROOT, replaced, tmp_path / "state-home")
    yield opened
    opened.close()


@pytest.mark.long
@pytest.mark.xdist_group("documentation")  # others use the topics in their texts, too
@pytest.mark.parametrize("example", EXAMPLES, ids=[each.name for each in EXAMPLES])
def test_an_example_runs_as_its_page_says(example: Example, shell: Shell, own_broker: OwnBroker) -> None:
    """Its commands run in order, and what it sends is exactly what a plain loop over the same records finds."""
    servers = own_broker.bootstrap_servers
    feed = importlib.import_module(f"examples.{example.name}.feed")
    records = list(feed.records())
    assert {each.topic for each in records} == set(example.inputs)
    expected = example.loop(records)
    said = ""
    try:
        for command in commands(f"examples/{example.name}/README.md"):
            if command.startswith("export "):
                shell.export(command)
            elif command.startswith("millpond dev"):
                assert PORT in command
                shell.start(command).wait_for("-> running")
            elif command == f"python -m examples.{example.name}.feed localhost:9092":
                assert shell.run(command).startswith(f"sent {len(records):,} records")
                kafka.eventually(lambda: committed(servers, example), f"{example.name} has committed all records")
                for topic, rows in expected.items():
                    await_rows(servers, topic, rows, getattr(feed, "closing", list))
            elif command == f"python -m pytest examples/{example.name}":
                assert (ROOT / shlex.split(command)[-1] / "test_app.py").exists()  # it is part of this run of tests
            else:
                assert command.split()[:2] in (["millpond", "consume"], ["millpond", "query"])
                said += shell.run(command)
        shell.stop()
        for topic, rows in expected.items():
            found = sent_to(servers, topic)
            assert {
                key: (found.get(key), rows.get(key)) for key in found | rows if found.get(key) != rows.get(key)
            } == {}
        for line in shown(example):
            assert line in said
    finally:
        kafka.delete_topics(servers, {*example.inputs, *expected})
        kafka.delete_topics(servers, kafka.topic_names(servers, prefix=f"{example.id}-"))


def committed(servers: str, example: Example) -> bool:
    """Whether all input is committed."""
    for topic in example.inputs:
        offsets = kafka.committed_offsets(servers, example.id, topic)
        if any(offsets[each][0] < end for each, end in kafka.end_offsets(servers, topic).items() if end):
            return False
    return True


def await_rows(servers: str, topic: str, rows: dict[str, list[Any]], closing: Callable[[], Iterable[Sent]]) -> None:
    """Wait until a topic has its rows. Some come by way of internal topics, some when a second has passed."""

    def arrived() -> bool:
        send(servers, closing())
        return sent_to(servers, topic) == rows

    with contextlib.suppress(AssertionError):  # the comparison at the end shows the difference
        kafka.eventually(arrived, f"{topic} has its rows", timeout_s=30)


def sent_to(servers: str, topic: str) -> dict[str, list[Any]]:
    """Return the committed values of each key, in their order."""
    found: dict[str, list[Any]] = defaultdict(list)
    for row in kafka.read(servers, topic):
        key_schema, value_schema = AVRO.get(topic, (None, None))
        key, value = as_json(row.key, key_schema), json.loads(as_json(row.value, value_schema))
        if topic == "visits":
            end, start = struct.unpack(">qq", key[-16:])
            key = key[:-16] + f" {start} {end}".encode()
        if topic in TABLES:
            found[key.decode()] = [value]
        else:
            found[key.decode()].append(value)
    return {key: values for key, values in found.items() if values != [None]}


def as_json(data: bytes | None, schema: Any) -> bytes:
    """Return what is written in Avro, behind a zero and the schema's id, as JSON, and other bytes as they are."""
    if schema is None or not data:
        return data or b"null"
    assert data[0] == 0
    value = fastavro.schemaless_reader(io.BytesIO(data[5:]), fastavro.parse_schema(schema), None)
    return json.dumps(value, separators=(",", ":")).encode()


def shown(example: Example) -> list[str]:
    """Return the lines of results that the page shows, up to `…`: their offsets differ between runs."""
    found = [text for language, text in blocks(f"examples/{example.name}/README.md") if language == "text"]
    assert found
    return [line.partition(", …")[0] for text in found for line in text.splitlines()]
