"""No test asserts how long something takes on a real clock: that depends on the machine."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

_ROOT = Path(__file__).parents[3]
_FOLDERS = ("tests", "e2e", "examples")
_CLOCKS = frozenset({"monotonic", "perf_counter", "time", "monotonic_ns", "perf_counter_ns", "time_ns"})
#: A process of a busy machine may stand still for so long, in seconds.
_LEAST_LIMIT_S = 30


def _reads_clock(node: ast.AST) -> bool:
    """Return whether this is a call such as `time.monotonic()`; `clock.monotonic()` may be virtual."""
    match node:
        case ast.Call(func=ast.Attribute(value=ast.Name(id="time"), attr=name)):
            return name in _CLOCKS
    return False


def _is_duration(node: ast.AST, known: set[str]) -> bool:
    match node:
        case ast.BinOp(left=left, op=ast.Sub()):
            return _reads_clock(left)
        case ast.Name(id=name):
            return name in known
    return False


def _limits(code: str) -> Iterator[tuple[int, str]]:
    """Yield lines of a module that limit a duration on a real clock, and what they do."""
    tree = ast.parse(code)
    known = {
        target.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and _is_duration(node.value, set())
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    for node in ast.walk(tree):
        match node:
            case ast.Assert(test=test):
                for each in ast.walk(test):
                    if isinstance(each, ast.Compare) and _is_limited(each, known):
                        yield each.lineno, "asserts that a duration is short"
            case ast.Assign(value=ast.BinOp(left, ast.Add(), ast.Constant(value=int() | float() as seconds))):
                if _reads_clock(left) and seconds < _LEAST_LIMIT_S:
                    yield node.lineno, f"waits for {seconds} s at most"


def _is_limited(node: ast.Compare, known: set[str]) -> bool:
    """Return whether a comparison has a duration as the smaller side."""
    sides = [node.left, *node.comparators]
    for left, operator, right in zip(sides, node.ops, sides[1:], strict=False):
        smaller = {ast.Lt: left, ast.LtE: left, ast.Gt: right, ast.GtE: right}.get(type(operator))
        if smaller is not None and _is_duration(smaller, known):
            return True
    return False


@pytest.mark.parametrize(
    ("code", "lines"),
    [
        ("assert time.monotonic() - began < 5", [1]),
        ("assert 1 <= time.monotonic() - began < 5", [1]),
        ("took = time.perf_counter() - began\nassert found and 5 >= took", [2]),
        ("deadline = time.monotonic() + 10", [1]),
        ("assert time.monotonic() - began >= 5", []),
        ("assert clock.monotonic() - began < 5", []),
        ("assert standstills.lasted(began, time.monotonic()) < 5", []),
        ("deadline = time.monotonic() + 60", []),
    ],
)
def test_limits_of_durations_are_found(code: str, lines: list[int]) -> None:
    """Asserted ones, and waits that fail where a busy machine stands still; virtual clocks may be limited."""
    assert [line for line, _ in _limits(code)] == lines


def test_no_test_fails_because_the_machine_is_slow() -> None:
    """A duration is a figure (`tests/support/measuring/figures.py`), or standstills are left out of it."""
    found = [
        f"{file.relative_to(_ROOT)}:{line} {what}"
        for folder in _FOLDERS
        for file in sorted((_ROOT / folder).rglob("*.py"))
        if any(f"time.{clock}" in (code := file.read_text()) for clock in _CLOCKS)
        for line, what in _limits(code)
    ]
    assert found == []
