"""The same seed makes the same choices, in one process and in several; another seed makes others."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import choices

_ROOT = Path(__file__).parents[2]
#: Shares of long tests, tests of Hypothesis, and tests with a seed of their own.
_TESTS = ("tests/state/test_formats.py", "tests/config/test_suggestions.py", "tests/packaging/test_marks.py")


def _chosen(directory: Path, seed: int, *options: str) -> list[str]:
    directory.mkdir()
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "--seed", str(seed), *options, *_TESTS],
        cwd=_ROOT,
        env={**os.environ, choices.DIRECTORY: str(directory), "PYTHONHASHSEED": str(seed)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return choices.read(directory)


@pytest.mark.slow
@pytest.mark.timeout(600)  # three whole runs
@pytest.mark.usefixtures("processes")
def test_a_run_can_be_repeated(tmp_path):
    """Tests and generated cases are the same, however many processes share them."""
    alone, shared = _chosen(tmp_path / "alone", 7, "-n", "0"), _chosen(tmp_path / "shared", 7, "-n", "2")
    other = _chosen(tmp_path / "other", 8, "-n", "0")
    assert alone == shared
    assert choices.digest(alone) != choices.digest(other)
    assert any(line.startswith("cases of ") for line in alone)


def test_nothing_is_recorded_unless_it_is_wanted(tmp_path, monkeypatch):
    """Without the variable no file is written; with it each choice has a line, and the same one counts once."""
    monkeypatch.delenv(choices.DIRECTORY, raising=False)
    choices.record("a plan", [1])
    monkeypatch.setenv(choices.DIRECTORY, str(tmp_path))
    for plan in ([1], [1], [2]):
        choices.record("a plan", plan)
    assert len(choices.read(tmp_path)) == 2
