"""The example of a migration: it has the code of the page about it, and its own page's commands run, with a JVM."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from examples.migration.feed import records
from millpond.broker import EmbeddedBroker, java
from tests.demo.commands import replace_words
from tests.docs.pages import ROOT, blocks
from tests.support import kafka
from tests.support.broker import free_port

PAGE = "examples/migration/README.md"
GUIDE = "docs/migrating/from-kafka-streams.md"
JAVA = '(cd build && java -cp "$KAFKA_STREAMS:." Payments)'


@pytest.mark.parametrize(("name", "first_line"), [("Payments.java", "// Payments.java"), ("app.py", "# payments.py")])
def test_the_example_has_the_code_of_the_guide(name: str, first_line: str) -> None:
    """The tests of the guide compile it, and compare the two topologies."""
    [shown] = [each.text for each in blocks(GUIDE) if each.text.startswith(f"{first_line}\n")]
    _, code = (ROOT / "examples" / "migration" / name).read_text().split("\n", 1)
    assert code.lstrip("\n") == shown.removeprefix(f"{first_line}\n")


class Terminals:
    """Runs the commands of the page in order, on free ports, in a directory that looks like the repository."""

    def __init__(self, directory: Path) -> None:
        self._ports = {"9092": str(free_port()), "8080": str(free_port())}
        (directory / "examples").symlink_to(ROOT / "examples")
        self._directory = directory
        paths = (Path(sys.executable).parent, java.find_jdk() / "bin")
        self._environment = {
            **{name: value for name, value in os.environ.items() if name not in {"MILLPOND_CONFIG"}},
            "PATH": os.pathsep.join([*map(str, paths), os.environ["PATH"]]),
            "PYTHONPATH": os.pathsep.join(map(str, (ROOT / "worker", ROOT))),
            "PYTHONUNBUFFERED": "1",
            "XDG_STATE_HOME": str(directory / "state"),
            "MILLPOND_BOOTSTRAP_SERVERS": f"127.0.0.1:{self._ports['9092']}",
            "MILLPOND_HTTP_PORT": self._ports["8080"],
        }
        self.servers = self._environment["MILLPOND_BOOTSTRAP_SERVERS"]
        self.left = [line for each in blocks(PAGE) if each.language == "sh" for line in each.text.splitlines()]

    def _next(self, start: str) -> str:
        line = self.left.pop(0)
        assert line.startswith(start), f"the next command of the page is {line!r}, not {start!r}"
        return replace_words(line, self._ports)

    def export(self) -> None:
        """Set the variable of the next line."""
        name = self.left[0].removeprefix("export ").partition("=")[0]
        self._environment[name] = self._said(f'{self._next("export ")}; printf %s "${name}"')

    def run(self, start: str) -> str:
        """Run the next command, which begins like this; return what it prints."""
        return self._said(self._next(start))

    def _said(self, command: str) -> str:
        done = subprocess.run(
            ["bash", "-c", command], cwd=self._directory, env=self._environment, capture_output=True, text=True,
            timeout=100, check=False,
        )  # fmt: skip
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
        return done.stdout

    @contextlib.contextmanager
    def running(self, start: str, says: str = "") -> Iterator[None]:
        """Run the next command until it has said something, and end it as Ctrl-C does."""
        command = self._next(start)
        log = self._directory / f"{len(self.left)}.log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                ["bash", "-c", command], cwd=self._directory, env=self._environment, stdout=output,
                stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip

        def said() -> bool:
            assert process.poll() is None, f"{command} has ended:\n{log.read_text()[-3000:]}"
            return says in log.read_text()

        try:
            kafka.eventually(said, f"{start} says {says!r}", timeout_s=90)
            yield
            said()
            os.killpg(process.pid, signal.SIGINT)
            process.wait(60)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


@pytest.fixture
def terminals(processes: None, own_brokers: type[EmbeddedBroker], tmp_path: Path) -> Terminals:
    """Skip the test without a JDK."""
    try:
        java.find_jdk()
    except java.JavaNotFound as missing:
        pytest.skip(str(missing))
    return Terminals(tmp_path)


def totals_until(day: int) -> dict[bytes, int]:
    """Add up the payments of the first days by a plain loop."""
    countries: dict[object, bytes] = {}
    found: Counter[bytes] = Counter()
    for each in (each for number in range(1, day + 1) for each in records(number)):
        assert isinstance(each.value, bytes)
        if each.topic == "customers":
            countries[each.key] = each.value
        elif each.key in countries:
            found[countries[each.key]] += int.from_bytes(each.value, "big")
    return dict(found)


@pytest.mark.soak
@pytest.mark.timeout(400)
def test_the_application_moves_as_its_page_says(terminals: Terminals) -> None:
    """After each day the totals are those of all payments so far, each counted once."""

    def settled(day: int) -> bool:
        rows = kafka.read(terminals.servers, "totals")
        return {row.key: int.from_bytes(row.value or b"", "big") for row in rows} == totals_until(day)

    def send(day: int) -> None:
        count = len(list(records(day)))
        assert terminals.run("python -m examples.migration.feed").startswith(f"sent {count:,} records")
        kafka.eventually(lambda: settled(day), f"the totals include day {day}", timeout_s=90)

    terminals.export()
    terminals.export()
    with terminals.running("python -m examples.broker", says="a broker listens"):
        terminals.run("javac ")
        with terminals.running(JAVA):
            send(1)
            assert '"key":"NL"' in terminals.run("millpond consume")
        terminals.run("java ")
        terminals.run("millpond topology")
        assert terminals.run("diff ") == ""
        with terminals.running("millpond run"):
            send(2)
            said = terminals.run("millpond query")
            rows = [json.loads(line) for line in said.splitlines()]
            found = {row["key"].encode(): row["value"] for row in rows if "key" in row}
            assert found == totals_until(2)
        with terminals.running(JAVA):
            send(3)
            terminals.run("millpond consume")
    assert terminals.left == ["python -m pytest examples/migration"]
    [shown] = [each.text.splitlines() for each in blocks(PAGE) if each.language == "text"]
    assert [json.loads(line.partition(", …")[0] + "}") for line in shown] == [
        {"key": country.decode(), "value": total} for country, total in sorted(totals_until(2).items())
    ]
