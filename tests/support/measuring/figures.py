"""Figures that tests measure: pauses, times and speeds. They are reported, not asserted.

How long something takes depends on the machine, so no test fails because of it. A test notes a figure with the fixture
`figures`. A run prints all of them at its end, with the machine, and writes them to `build/figures.txt`.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, cast

import pytest

from tests.support import seeds

__all__ = ("FILE", "Figure", "Figures", "figures", "register", "table")

FILE = "build/figures.txt"
"""The file of the last run."""
_PROPERTY = "figure"
_PLUGIN = "millpond-figures"
_PROCESSORS = Path("/proc/cpuinfo")
_MANY = 1_000


@dataclass(frozen=True)
class Figure:
    """A measured value."""

    name: str
    value: float
    unit: str
    wished: float | None
    """The largest value that is wished for."""
    load: float
    """The machine's load when the value was noted: processes that want to run, on average of a minute."""


class Figures:
    """The figures of one test.

    Args:
        properties: of the test's reports, which reach pytest's main process.
    """

    def __init__(self, properties: list[tuple[str, object]]) -> None:
        self._properties = properties

    def note(self, name: str, value: float, unit: str, wished: float | None = None) -> None:
        """Note a figure.

        Args:
            name: what was measured.
            value: the value.
            unit: of the value, such as `s`.
            wished: the largest value that is wished for.
        """
        self._properties.append((_PROPERTY, asdict(Figure(name, value, unit, wished, os.getloadavg()[0]))))


@pytest.fixture
def figures(request: pytest.FixtureRequest) -> Figures:
    """The figures of this test, for the table at the end of the run."""
    return Figures(request.node.user_properties)


def register(config: pytest.Config) -> None:
    """Let a run report its figures."""
    if not config.pluginmanager.has_plugin(_PLUGIN):
        config.pluginmanager.register(_Report(config.rootpath / FILE), _PLUGIN)


class _Report:
    """Collects the figures of all processes of a run, and reports them at its end."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._found: list[tuple[str, Figure]] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "teardown":  # the last report of a test; each has the properties of those before it
            found = (cast(dict[str, Any], content) for name, content in report.user_properties if name == _PROPERTY)
            self._found += [(seeds.plain(report.nodeid), Figure(**content)) for content in found]

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self._found:
            text = table(self._found)
            self._file.parent.mkdir(exist_ok=True)
            self._file.write_text(f"{text}\n")
            terminalreporter.write_line(f"\n{text}\n")


def table(found: Iterable[tuple[str, Figure]]) -> str:
    """Return a table with a line for each figure and its test; a value that is larger than wished has a mark."""
    rows = [("", "value", "wished", "load")]
    names = ["figure"]
    for test, each in sorted(found, key=lambda pair: (pair[0], pair[1].name)):
        missed = each.wished is not None and each.value > each.wished
        wished = "" if each.wished is None else f"{each.wished:g} {each.unit}"
        rows.append(("!" if missed else "", f"{_number(each.value)} {each.unit}", wished, f"{each.load:.1f}"))
        names.append(f"{each.name} ({test})")
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "  ".join([*(f"{cell:>{width}}" for cell, width in zip(row, widths, strict=True)), name])
        for row, name in zip(rows, names, strict=True)
    ]
    return "\n".join([f"figures, measured on {_machine()}; a mark: larger than wished", *lines])


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= _MANY else f"{value:.3g}"


def _machine() -> str:
    lines = _PROCESSORS.read_text().splitlines() if _PROCESSORS.exists() else []
    name = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
    return f"{os.cpu_count()} processors, {name or platform.processor() or platform.machine()}"
