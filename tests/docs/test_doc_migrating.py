"""The steps of docs/migrating/from-kafka-streams.md, with its programs and commands: to millpond and back."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from millpond.broker import EmbeddedBroker, jars, java
from tests.demo.commands import replace_words
from tests.docs.pages import blocks
from tests.support import kafka
from tests.support.broker import free_port

PAGE = "docs/migrating/from-kafka-streams.md"
_STOP_S = 60.0


def commands() -> list[str]:
    """The command lines of the page, in its order."""
    return [line for block in blocks(PAGE) if block.language == "sh" for line in block.text.splitlines()]


class Reader:
    """A reader of the page, who runs its commands in a directory with its programs.

    Args:
        directory: the directory.
        servers: the brokers.
        port: a free port, in place of the page's.
    """

    def __init__(self, directory: Path, servers: str, port: int) -> None:
        self._directory = directory
        self._port = port
        paths = (Path(sys.executable).parent, java.find_jdk() / "bin")
        self._environment = {
            **os.environ,
            "PATH": os.pathsep.join([*map(str, paths), os.environ["PATH"]]),
            "KAFKA_STREAMS": jars.classpath("kafka-streams"),
            "BROKERS": servers,
        }
        self._environment.pop("MILLPOND_CONFIG", None)
        for block in blocks(PAGE):
            if named := re.match(r"(?://|#) (\w+\.(?:java|py))\n", block.text):
                (directory / named[1]).write_text(block.text)
        self.left = commands()

    def _next(self, start: str) -> list[str]:
        line = self.left.pop(0)
        assert line.startswith(start), f"the next command of the page is {line!r}, not {start!r}"
        return ["bash", "-c", "exec " + replace_words(line, {"8080": str(self._port)})]

    def run(self, start: str) -> str:
        """Run the next command of the page, which begins like this; return what it prints."""
        done = subprocess.run(
            self._next(start), cwd=self._directory, env=self._environment, capture_output=True, text=True, timeout=100,
            check=False,
        )  # fmt: skip
        assert done.returncode == 0, f"{start}: {done.stdout}{done.stderr}"
        return done.stdout

    @contextmanager
    def running(self, start: str) -> Iterator[Callable[[], None]]:
        """Run the next command of the page, and end it as Ctrl-C does."""
        command = self._next(start)
        log = self._directory / f"{shlex.split(start)[0]}-{len(self.left)}.log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                command, cwd=self._directory, env=self._environment, stdout=output, stderr=subprocess.STDOUT
            )

        def alive() -> None:
            assert process.poll() is None, f"{start} has ended:\n{log.read_text()[-3000:]}"

        try:
            yield alive
            alive()
            process.send_signal(signal.SIGINT)
            process.wait(_STOP_S)
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()


def _number(value: int) -> bytes:
    return value.to_bytes(8, "big", signed=True)


@pytest.fixture
def jdk(processes: None) -> None:
    """Skip the test without a JDK."""
    try:
        java.find_jdk()
    except java.JavaNotFound as missing:
        pytest.skip(str(missing))


def test_both_programs_have_the_same_topology(jdk: None, tmp_path: Path) -> None:
    """`diff` has nothing to show, so each side finds the topics of the other."""
    reader = Reader(tmp_path, "none:9092", 0)
    reader.run("javac ")
    reader.left = [line for line in reader.left if re.match("(java .*describe|millpond topology|diff)", line)]
    reader.run("java ")
    reader.run("millpond topology")
    assert reader.run("diff ") == ""
    assert reader.left == []


@pytest.mark.soak
@pytest.mark.timeout(300)
def test_an_application_moves_to_millpond_and_back(
    jdk: None, own_brokers: type[EmbeddedBroker], tmp_path: Path
) -> None:
    """Every total is that of all payments, each counted once, whichever side ran."""
    port = free_port()
    with own_brokers(tmp_path / "broker") as broker:
        servers = broker.bootstrap_servers
        for topic in ("customers", "payments", "totals"):
            kafka.create_topic(servers, topic, 2)
        reader = Reader(tmp_path, servers, port)
        kafka.produce(servers, "customers", [("ann", b"NL", 1), ("bob", b"FR", 1), ("cy", b"NL", 1)])
        paid: dict[bytes, int] = {b"NL": 0, b"FR": 0}

        def pay(customer: str, country: bytes, amount: int) -> None:
            paid[country] += amount
            kafka.produce(servers, "payments", [(customer, _number(amount), 1000 + sum(paid.values()))])

        def settled(alive: Callable[[], None]) -> bool:
            alive()
            totals = {row.key: row.value for row in kafka.read(servers, "totals")}
            return totals == {country: _number(total) for country, total in paid.items()}

        reader.run("javac ")
        pay("ann", b"NL", 5)
        pay("bob", b"FR", 7)
        with reader.running("java ") as alive:
            kafka.eventually(lambda: settled(alive), "Java adds up the payments", 60)

        reader.run("java ")
        reader.run("millpond topology")
        assert reader.run("diff ") == ""

        assert reader.run("python members.py") == "0 members\n"
        pay("cy", b"NL", 11)
        with reader.running("millpond run") as alive:
            kafka.eventually(lambda: settled(alive), "millpond continues with Java's totals", 60)
            pay("bob", b"FR", 13)
            kafka.eventually(lambda: settled(alive), "millpond adds up the payments", 60)
            shown = reader.run("millpond query")
            assert re.search(r"FR\D+20\b", shown)
            assert re.search(r"NL\D+16\b", shown)

        pay("ann", b"NL", 17)
        with reader.running("java ") as alive:
            kafka.eventually(lambda: settled(alive), "Java continues with millpond's totals", 60)
        assert reader.left == []
        # Each payment has moved the total of its country once.
        assert len(kafka.read(servers, "totals")) == 5
