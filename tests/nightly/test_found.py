"""The table of faults that were found by chance names tests that exist, and that no run leaves out."""

from __future__ import annotations

import ast
import functools
import re
from pathlib import Path

import pytest

_ROOT = Path(__file__).parents[2]
_ROWS = [
    line for line in (Path(__file__).parent / "found.md").read_text(encoding="utf-8").splitlines() if "`tests/" in line
]
_TESTS = sorted({test for row in _ROWS for test in re.findall(r"`(tests/[^`]+\.py::[^`]+)`", row)})


@functools.cache
def _tests_of(path: Path) -> dict[str, str]:
    """Return the marks of each test of a file, as text."""
    body = ast.parse(path.read_text(encoding="utf-8")).body
    marks = [
        ast.unparse(each.value)
        for each in body
        if isinstance(each, ast.Assign) and ast.unparse(each.targets[0]) == "pytestmark"
    ]
    return {
        each.name: " ".join([*marks, *(ast.unparse(mark) for mark in each.decorator_list)])
        for each in body
        if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef) and each.name.startswith("test_")
    }


@pytest.mark.parametrize("test", _TESTS)
def test_a_test_of_the_table_exists_and_is_never_left_out(test: str) -> None:
    """It is in every run of `make test` or `make test-long`: neither in the soak alone, nor drawn by the seed."""
    file, _, name = test.partition("::")
    name, _, case = name.removesuffix("]").partition("[")
    marks = _tests_of(_ROOT / file).get(name)
    assert marks is not None, f"{file} has no {name}"
    assert not re.search(r"mark\.(soak|share)\b", marks)
    if "test_stored_cases" in file:
        assert (_ROOT / "tests" / "differential" / f"{case}.json").is_file()


def test_every_fault_has_a_commit_and_a_test() -> None:
    rows = [
        line
        for line in (Path(__file__).parent / "found.md").read_text(encoding="utf-8").splitlines()
        if line.startswith("| ") and not line.startswith("| fault")
    ]
    assert len(rows) > 50
    wrong = [row for row in rows if not re.search(r"\| [0-9a-f]{8}(, [0-9a-f]{8})* \| `tests/", row)]
    assert wrong == []
