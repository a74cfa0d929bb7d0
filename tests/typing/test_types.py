"""What type checkers make of the DSL: right uses pass with exact types, wrong ones are errors."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parent.parent


def wrong_lines() -> set[int]:
    """Line numbers of wrong_uses.py that have to be errors."""
    text = (HERE / "wrong_uses.py").read_text().splitlines()
    return {number for number, line in enumerate(text, 1) if line.endswith("# wrong")}


def mypy(file: str) -> tuple[set[int], str]:
    """Lines at which mypy --strict finds errors in the file, and its output."""
    command = [
        sys.executable,
        "-m",
        "mypy",
        "--strict",
        "--warn-unused-ignores",
        "--no-error-summary",
        str(HERE / file),
    ]
    output = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False).stdout
    return {int(line) for line in re.findall(rf"{file}:(\d+): error", output)}, output


def pyright(file: str) -> tuple[set[int], str]:
    """Lines at which pyright finds errors in the file, and what it says of it."""
    command = [sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", sys.executable, "-p", str(HERE)]
    output = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False).stdout
    report = json.loads(output[output.index("{") :])
    assert report["summary"]["filesAnalyzed"] == 2
    found = [entry for entry in report["generalDiagnostics"] if entry["file"].endswith(file)]
    said = {entry["range"]["start"]["line"] + 1: entry["message"] for entry in found if entry["severity"] == "error"}
    return set(said), "\n".join(f"{line}: {message}" for line, message in sorted(said.items()))


CHECKERS = {"mypy": mypy, "pyright": pyright}


@pytest.mark.timeout(300)
@pytest.mark.parametrize("checker", CHECKERS)
def test_right_uses_have_exactly_the_types_asserted(checker: str) -> None:
    """Keys and values keep their types through every operator, without a cast or an annotation."""
    errors, output = CHECKERS[checker]("right_uses.py")
    assert not errors, output


@pytest.mark.timeout(300)
@pytest.mark.parametrize("checker", CHECKERS)
def test_wrong_uses_are_errors(checker: str) -> None:
    """Joins of tables with other keys, functions and serdes of other types do not type-check; nothing else fails."""
    errors, output = CHECKERS[checker]("wrong_uses.py")
    assert errors == wrong_lines(), output
