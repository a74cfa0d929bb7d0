"""The command line as users see it: applications in files, commands in this process or in child processes."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
import textwrap
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from millpond.broker.java import JavaNotFound, find_jre
from millpond.cli import main
from tests.conftest import CreateTopic
from tests.support import kafka
from tests.support.broker import Broker

WORKER_ROOT = Path(__file__).parents[2] / "worker"
ROOTS = os.pathsep.join([str(WORKER_ROOT), str(WORKER_ROOT.with_name("operator")), str(WORKER_ROOT.with_name("spark"))])


class Ended(NamedTuple):
    """The result of a command: exit status and output."""

    status: int
    out: str
    err: str


Millpond = Callable[..., Ended]
Application = Callable[[str], str]


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Give each test its own current directory and environment, and forget the modules that it imports from there."""
    monkeypatch.chdir(tmp_path)
    for name in list(os.environ):
        if name.startswith("MILLPOND_") and not name.startswith(("MILLPOND_TEST", "MILLPOND_CACHE")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state-home"))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "runtime"))
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("SCHEMA_REGISTRY_URL", "")  # commands set it; so it ends with the test
    yield
    for name, module in list(sys.modules.items()):
        if Path(getattr(module, "__file__", None) or os.devnull).is_relative_to(tmp_path):
            del sys.modules[name]


@pytest.fixture
def millpond(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Millpond:
    """Run a command in this process."""
    monkeypatch.setattr(sys, "path", list(sys.path))

    def run(*arguments: object) -> Ended:
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main(list(map(str, arguments)))
            sys.exit(0)
        said = capsys.readouterr()
        return Ended(int(ended.value.code or 0), said.out, said.err)

    return run


@pytest.fixture
def application(tmp_path: Path) -> Application:
    """Write a module into the current directory under a new name, since Python imports each name once."""

    def write(text: str) -> str:
        name = f"app_{uuid.uuid4().hex[:8]}"
        (tmp_path / f"{name}.py").write_text(textwrap.dedent(text), encoding="utf-8")
        return name

    return write


class Process:
    """A command in a child process, with its output in a file."""

    def __init__(self, directory: Path, *arguments: object) -> None:
        self._said = directory / f"said-{uuid.uuid4().hex[:6]}"
        with self._said.open("wb") as out:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "millpond.cli", *map(str, arguments)],
                stdout=out, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, cwd=directory,
                env={**os.environ, "PYTHONPATH": ROOTS, "PYTHONUNBUFFERED": "1"},
            )  # fmt: skip

    @property
    def said(self) -> str:
        return self._said.read_text(encoding="utf-8")

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    def says(self, text: str) -> bool:
        """Return whether the output contains a text; if not, it must still run."""
        if text in self.said:
            return True
        assert self.running, f"it ended with {self._process.returncode} before it said {text!r}:\n{self.said}"
        return False

    def signal(self, number: int) -> None:
        self._process.send_signal(number)

    def wait(self, timeout_s: float = 60) -> int:
        """Wait for its end; return the exit status."""
        return self._process.wait(timeout_s)

    def end(self) -> None:
        """Kill it if it still runs."""
        if self.running:
            self._process.kill()
            self._process.wait(60)


@pytest.fixture
def start(tmp_path: Path, processes: None) -> Iterator[Callable[..., Process]]:
    """Start commands in child processes; they end with the test."""
    started: list[Process] = []

    def begin(*arguments: object) -> Process:
        started.append(Process(tmp_path, *arguments))
        return started[-1]

    yield begin
    for process in started:
        process.end()


COUNT = """
    import os
    from millpond.dsl import StreamsBuilder
    from millpond.serdes import Long, String

    def count():
        builder = StreamsBuilder()
        (
            builder.stream(os.environ.get("WORDS", "words"), key=String, value=String)
            .group_by(lambda _, word: word, key=String, value=String, name="by-word")
            .count(store="counts")
            .to_stream()
            .to(os.environ.get("COUNTS", "counts"), value=Long)
        )
        return builder.build()
"""
"""Counts words: one repartition topic, one store."""


def require_spark() -> None:
    """Skip the test where Spark's libraries or a Java for them are missing."""
    for library in ("pyspark", "pyarrow", "pandas"):
        pytest.importorskip(library)
    try:
        find_jre()
    except JavaNotFound as error:
        pytest.skip(str(error))


@pytest.fixture
def counted(
    broker: Broker,
    application: Application,
    create_topic: CreateTopic,
    app_id: str,
    monkeypatch: pytest.MonkeyPatch,
) -> Callable[[int], str]:
    """Create the changelog of an application that has counted so many words; return its ``MODULE:ATTRIBUTE``."""

    def count(words: int) -> str:
        monkeypatch.setenv("WORDS", create_topic("words", partitions=2))
        monkeypatch.setenv("COUNTS", create_topic("counts"))
        changelog = f"{app_id}-counts-changelog"
        kafka.create_topic(broker.bootstrap_servers, changelog, 2)
        records = [(b"word-%d" % number, struct.pack(">q", 1), 1_000, number % 2) for number in range(words)]
        kafka.produce(broker.bootstrap_servers, changelog, records)
        return f"{application(COUNT)}:count"

    return count
