"""Figures that tests note are printed at the end of a run, and written to a file."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests.support.measuring.figures import Figure, table

_CONFTEST = """
    from tests.support.measuring.figures import figures, register

    def pytest_configure(config):
        register(config)
"""
_TESTS = """
    import pytest

    @pytest.mark.parametrize("value", [1, 3])
    def test_figure(figures, value):
        figures.note(f"pause {value}", value, "s", wished=2)
"""


def test_table_marks_what_is_larger_than_wished() -> None:
    """With a line for each figure, in the order of tests."""
    found = [
        ("b.py::test_b", Figure("pause", 2.345, "s", 2.0, 9.12)),
        ("a.py::test_a", Figure("speed", 12_345.6, "records/s", None, 0.5)),
        ("a.py::test_a", Figure("pause", 1.0, "s", 2.0, 0.5)),
    ]
    head, *lines = table(found).splitlines()
    assert f"{os.cpu_count()} processors" in head
    assert [line.split() for line in lines] == [
        ["value", "wished", "load", "figure"],
        ["1", "s", "2", "s", "0.5", "pause", "(a.py::test_a)"],
        ["12,346", "records/s", "0.5", "speed", "(a.py::test_a)"],
        ["!", "2.35", "s", "2", "s", "9.1", "pause", "(b.py::test_b)"],
    ]


@pytest.mark.usefixtures("processes")
@pytest.mark.parametrize("jobs", [0, 2], ids=["one process", "two processes"])
def test_run_prints_and_writes_the_figures_of_all_its_processes(tmp_path: Path, jobs: int) -> None:
    """The tests pass, whatever was wished for."""
    for name, text in {"conftest.py": _CONFTEST, "test_it.py": _TESTS, "pytest.ini": "[pytest]"}.items():
        (tmp_path / name).write_text(textwrap.dedent(text))
    command = [sys.executable, "-m", "pytest", "-n", str(jobs), "--rootdir", str(tmp_path), "-c", "pytest.ini"]
    root = str(Path(__file__).parents[3])
    done = subprocess.run(
        command, cwd=tmp_path, env={**os.environ, "PYTHONPATH": root}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    written = (tmp_path / "build" / "figures.txt").read_text()
    assert written in done.stdout
    assert [line.split()[-3:] for line in written.splitlines()[2:]] == [
        ["pause", "1", "(test_it.py::test_figure[1])"], ["pause", "3", "(test_it.py::test_figure[3])"]
    ]  # fmt: skip
