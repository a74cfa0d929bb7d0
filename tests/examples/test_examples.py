"""The examples, as their pages tell to run them: on a real broker, with the records of their feeds."""

from __future__ import annotations

import importlib
import json
import shlex
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from examples.feeding import Sent
from tests.demo.commands import ROOT, Shell, commands
from tests.support import broker as support
from tests.support import kafka

from . import loops

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

PORT = "--port 9092"


class Example(NamedTuple):
    """An example, and what is compared."""

    name: str
    inputs: tuple[str, ...]
    output: str
    loop: Callable[[Iterable[Sent]], loops.Results]


EXAMPLES = (Example("alerts", ("bank.customers", "payments"), "alerts", loops.alerts),)


@pytest.fixture
def shell(broker: support.Broker, tmp_path: Path, processes: object) -> Iterator[Shell]:
    """A shell in the repository, whose sessions use the broker of the tests."""
    shared = f"--bootstrap-servers {broker.bootstrap_servers}"
    opened = Shell(ROOT, {PORT: shared, "localhost:9092": broker.bootstrap_servers}, tmp_path / "state-home")
    yield opened
    opened.close()


@pytest.mark.parametrize("example", EXAMPLES, ids=[each.name for each in EXAMPLES])
def test_an_example_runs_as_its_page_says(example: Example, shell: Shell, broker: support.Broker) -> None:
    """Its commands run in order, and what it sends is exactly what a plain loop over the same records finds."""
    servers = broker.bootstrap_servers
    expected = example.loop(records(example))
    try:
        for command in commands(f"examples/{example.name}/README.md"):
            if command.startswith("millpond dev"):
                assert PORT in command
                shell.start(command).wait_for("-> running")
            elif command.startswith("python -m pytest"):
                assert (ROOT / shlex.split(command)[-1] / "test_app.py").exists()  # it is part of this run of tests
            else:
                assert command == f"python -m examples.{example.name}.feed localhost:9092"
                feed = shell.start(command)
                feed.wait_for("Ctrl-C ends")
                kafka.eventually(lambda: processed(servers, example), f"{example.name} has processed all records")
                feed.wait_for(last_line(example, expected))
        shell.stop()
        assert sent_by(servers, example.output) == expected
    finally:
        kafka.delete_topics(servers, {*example.inputs, example.output})
        kafka.delete_topics(servers, kafka.topic_names(servers, prefix=f"{example.name}-"))


def records(example: Example) -> list[Sent]:
    """Return the records of an example's feed."""
    return list(importlib.import_module(f"examples.{example.name}.feed").records())


def processed(servers: str, example: Example) -> bool:
    """Whether all input is committed, that of internal topics as well."""
    repartitioned = {
        each for each in kafka.topic_names(servers, prefix=f"{example.name}-") if each.endswith("-repartition")
    }
    for topic in (*example.inputs, *repartitioned):
        committed = kafka.committed_offsets(servers, example.name, topic)
        if any(committed[each][0] < end for each, end in kafka.end_offsets(servers, topic).items() if end):
            return False
    return True


def sent_by(servers: str, topic: str) -> dict[str, list[Any]]:
    """Return the committed values of each key, in their order."""
    found: dict[str, list[Any]] = defaultdict(list)
    for row in kafka.read(servers, topic):
        found[(row.key or b"").decode()].append(json.loads(row.value or b"null"))
    return found


def last_line(example: Example, expected: loops.Results) -> str:
    """Return the beginning of a line that the feed shows."""
    return f"{example.output} {next(iter(expected))}"
