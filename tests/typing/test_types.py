"""Type checkers accept right uses of the DSL with exact types, and report wrong ones."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
FILES = ("right_uses.py", "wrong_uses.py")

# One run of a checker serves both tests, if one process has both.
pytestmark = pytest.mark.xdist_group("typing")


def wrong_lines() -> set[int]:
    """Line numbers of wrong_uses.py that have to be errors."""
    text = (HERE / "wrong_uses.py").read_text().splitlines()
    return {number for number, line in enumerate(text, 1) if line.endswith("# wrong")}


def mypy() -> dict[str, dict[int, str]]:
    """Run mypy --strict on both files; return what it finds, by file and line."""
    command = [sys.executable, "-m", "mypy", "--strict", "--warn-unused-ignores", "--no-error-summary"]
    output = subprocess.run(
        [*command, *(str(HERE / file) for file in FILES)], cwd=ROOT, capture_output=True, text=True, check=False
    ).stdout
    found: dict[str, dict[int, str]] = {file: {} for file in FILES}
    for line in output.splitlines():
        if "error: " in line:
            place = re.match(r"(?:.*/)?(\w+\.py):(\d+): error: (.*)", line)
            assert place is not None, output
            assert place[1] in found, output
            found[place[1]][int(place[2])] = place[3]
    return found


def pyright() -> dict[str, dict[int, str]]:
    """Run pyright on both files; return what it finds, by file and line."""
    command = [sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", sys.executable, "-p", str(HERE)]
    output = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False).stdout
    report = json.loads(output[output.index("{") :])
    assert report["summary"]["filesAnalyzed"] == len(FILES)
    found: dict[str, dict[int, str]] = {file: {} for file in FILES}
    for entry in report["generalDiagnostics"]:
        if entry["severity"] == "error":
            found[Path(entry["file"]).name][entry["range"]["start"]["line"] + 1] = entry["message"]
    return found


CHECKERS = {"mypy": mypy, "pyright": pyright}


@pytest.fixture(scope="module", params=CHECKERS)
def found(request: pytest.FixtureRequest, processes: None) -> dict[str, dict[int, str]]:
    """The errors of one type checker in both files."""
    return CHECKERS[request.param]()


@pytest.mark.timeout(300)
def test_right_uses_have_exactly_the_types_asserted(found: dict[str, dict[int, str]]) -> None:
    """Keys and values keep their types through every operator, without a cast or an annotation."""
    assert not found["right_uses.py"]


@pytest.mark.timeout(300)
def test_wrong_uses_are_errors(found: dict[str, dict[int, str]]) -> None:
    """Joins of tables with other keys, functions and serdes of other types do not type-check; nothing else fails."""
    assert found["wrong_uses.py"].keys() == wrong_lines(), found["wrong_uses.py"]
