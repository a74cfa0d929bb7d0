"""The commands of docs/runbooks/DeadLetters.md send a dead letter again, on a real broker."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer, murmur2

from millpond.cli import main
from tests.support import kafka
from tests.support.broker import Broker

from .pages import blocks

_APPLICATION = """
import millpond as mp

class Flight(mp.Struct):
    minutes: int

def delays():
    builder = mp.StreamsBuilder()
    builder.stream("flights", key=mp.String, value=mp.Json(Flight)).to("late", key=mp.String, value=mp.Json(Flight))
    return builder.build()
"""


@pytest.fixture
def servers(broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A broker with the runbook's topics and a dead letter, which is not in the partition of its key."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.delitem(sys.modules, "delays", raising=False)
    (tmp_path / "delays.py").write_text(_APPLICATION)
    servers = broker.bootstrap_servers
    for topic in ("flights", "delays-dead"):
        kafka.create_topic(servers, topic, 2)
    producer = Producer({"bootstrap.servers": servers}, logger=kafka.log)
    producer.produce(
        "delays-dead", '{"minutes": "ten"}', "AA", 1 - murmur2(b"AA", 2),
        headers=[("trace", b"7f"), ("__streams.errors.topic", b"flights"), ("__streams.errors.stacktrace", b"secret")],
    )  # fmt: skip
    producer.flush()
    yield servers
    kafka.delete_topics(servers, ("flights", "delays-dead"))


def test_a_dead_letter_is_corrected_and_sent_again(
    servers: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It goes to the partition of its key, without the headers of the error."""
    read, write = (each.text for each in blocks("docs/runbooks/DeadLetters.md") if each.text.startswith("millpond "))

    def run(command: str) -> tuple[str, str]:
        with pytest.raises(SystemExit) as ended:
            main(shlex.split(command.replace("kafka:9092", servers))[1:])
            sys.exit(0)
        out, err = capsys.readouterr()
        assert not ended.value.code, err
        return str(out), str(err)

    command, _, file = read.strip().partition(" > ")
    shown, _ = run(command)
    letter = json.loads(shown)
    assert ["__streams.errors.topic", "flights"] in letter["headers"]
    (tmp_path / file).write_text(json.dumps({**letter, "value": {"minutes": 10}}))
    _, said = run(write)
    assert "read from delays-dead: the partition is chosen by key" in said
    assert "headers __streams.errors.* are left out" in said
    sent = json.loads(run(f"millpond consume flights --bootstrap-servers {servers}")[0])
    assert (sent["partition"], sent["headers"]) == (murmur2(b"AA", 2), [["trace", "7f"]])
    assert (sent["key"], sent["value"], sent["timestamp"]) == ("AA", {"minutes": 10}, letter["timestamp"])
