"""Runs a mistake as a user would make it, and returns what millpond says, and when."""

from __future__ import annotations

import logging
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import millpond as mp
from millpond.cli import main
from millpond.state import MemoryBackend
from millpond.state.backend import OrderedBackend
from millpond.testing import TopologyTestDriver
from tests.mistakes.table import PRELUDE, Mistake, Moment

__all__ = ("Said", "command_output", "said_by", "warnings_of")

Said = tuple[Moment, str]

_OTHER_LOGS = ("millpond.topology.settings.unnamed",)


class _Lines(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.name not in _OTHER_LOGS:
            self.lines.append(record.getMessage())


class _Kept(MemoryBackend):
    """Rows that stay when the store is closed, as on a disk."""

    def close(self) -> None:
        """Keep the rows."""


class _Restarted(TopologyTestDriver):
    """A driver that finds the rows of the driver before it, as a worker after a restart does."""

    backend: OrderedBackend

    def _open_backend(self) -> OrderedBackend:
        return self.backend


def said_by(mistake: Mistake, directory: Path, capsys: pytest.CaptureFixture[str]) -> Said:
    """Make a mistake; return the moment at which something was said, and the first sentence that was.

    Args:
        mistake: the mistake.
        directory: an empty directory, which is the current one.
        capsys: pytest's capture of output.
    """
    for name, text in mistake.files.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    if mistake.command:
        with pytest.MonkeyPatch.context() as environment:
            for name, value in mistake.environment.items():
                environment.setenv(name, value)
            moment, text = "command line", _of_command(mistake.command, capsys)
        for name in mistake.files:
            sys.modules.pop(name.removesuffix(".py"), None)
    else:
        moment, text = _of_code(mistake)
    return Moment(moment), text.replace(str(directory), ".").replace(sys.executable, "python")


def _of_command(command: str, capsys: pytest.CaptureFixture[str]) -> str:
    program, *arguments = shlex.split(command)
    assert program == "millpond"
    lines = command_output(arguments, capsys).splitlines()
    return next((line for line in lines if ": note: " in line), lines[0]).removeprefix("millpond: ")


def _of_code(mistake: Mistake) -> tuple[str, str]:
    names: dict[str, Any] = {"__name__": "app"}
    exec(compile(PRELUDE, "prelude.py", "exec"), names)
    with warnings_of("millpond") as lines:
        moment = "build"
        try:
            exec(compile(mistake.code, "app.py", "exec"), names)
            topology = names["builder"].build()
            if lines:
                return moment, lines[0]
            moment = "start"
            for driver in _drivers(mistake, topology, names):
                moment = "first record"
                _pipe(driver, mistake)
                driver.close()
        except Exception as error:
            found = "import" if isinstance(error, ImportError | AttributeError) and moment == "build" else moment
            return found, str(error)
    return moment, lines[0] if lines else ""


def _drivers(mistake: Mistake, topology: mp.Topology, names: dict[str, Any]) -> Iterator[TopologyTestDriver]:
    """Yield a driver of the application; before it, one of the application as it was before the change, if any."""
    start = 1_800_000_000_000
    if not mistake.before:
        yield TopologyTestDriver(topology, mistake.settings, initial_wall_clock=start)
        return
    _Restarted.backend = _Kept()
    exec(compile(PRELUDE + mistake.before, "app.py", "exec"), names)
    yield _Restarted(names["builder"].build(), mistake.settings, initial_wall_clock=start)
    yield _Restarted(topology, mistake.settings, initial_wall_clock=start)


def _pipe(driver: TopologyTestDriver, mistake: Mistake) -> None:
    value_serde = eval(mistake.value, {"mp": mp})
    topic = driver.create_input_topic(mistake.topic, key=mp.String, value=value_serde)
    for key, value, timestamp in eval(mistake.records or "[]"):
        topic.pipe_input(key, value, timestamp=timestamp)
    driver.advance_wall_clock_time(timedelta(minutes=2))


@contextmanager
def warnings_of(name: str) -> Iterator[list[str]]:
    """Collect the log lines of a logger and those below it, from WARNING on."""
    handler = _Lines()
    logger = logging.getLogger(name)
    logger.addHandler(handler)
    try:
        yield handler.lines
    finally:
        logger.removeHandler(handler)


def command_output(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """Run a command in this process; return its output, and then its errors."""
    capsys.readouterr()
    with pytest.raises(SystemExit):
        main(arguments)
        sys.exit(0)
    said = capsys.readouterr()
    return said.out + said.err
