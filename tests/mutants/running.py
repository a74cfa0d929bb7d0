"""Runs tests on a copy of the tree, with or without a mutant. The working tree is never touched."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.mutants.mutants import ROOT, Mutant

__all__ = ("Result", "caught", "healthy")

#: What is copied, because it is changed or imported; everything else at the root is linked to.
_COPIED = ("worker", "operator", "tests", "pyproject.toml")
_NOT_LINKED = frozenset({".git", ".venv", ".hypothesis", ".pytest_cache", ".mypy_cache", ".ruff_cache", "build"})
#: A mutant may make a program wait for ever. Tests that catch one take seconds.
_TEST_TIMEOUT_S = 60
_BROKER_TEST_TIMEOUT_S = 120
_FAILED = re.compile(r"^(?:FAILED|ERROR) (?P<node>tests/\S.*?)(?: - .*)?$", re.MULTILINE)
_TIMED_OUT = re.compile(r"^\S*\+\+ Timeout \++", re.MULTILINE)
_ALL_PASSED, _SOME_FAILED = 0, 1


@dataclass(frozen=True)
class Result:
    """What became of a run of tests.

    Attributes:
        mutant: which fault was in.
        by: the test that failed first; "" when none did.
        seconds: how long it took.
        trouble: why the run says nothing, e.g. a test that cannot be imported; "" when it does.
    """

    mutant: Mutant
    by: str
    seconds: float
    trouble: str = ""


def healthy(tests: Sequence[str], environment: Mapping[str, str]) -> str:
    """Run tests without any mutant. Return what they print when one of them does not pass, else ""."""
    with _copy() as root:
        code, output = _run(root, tests, environment, timeout_s=_BROKER_TEST_TIMEOUT_S, stop_early=False)
    return "" if code == _ALL_PASSED else output


def caught(mutant: Mutant, environment: Mapping[str, str]) -> Result:
    """Run a mutant's tests on a copy of the tree that has it."""
    began = time.monotonic()

    def result(by: str, trouble: str = "") -> Result:
        return Result(mutant, by, time.monotonic() - began, trouble)

    count = mutant.occurrences()
    if count != 1:
        return result("", f"its old text occurs {count} times in {mutant.file}")
    with _copy() as root:
        mutant.apply(root)
        _forget_bytecode(root / mutant.file)
        code, output = _run(
            root,
            mutant.tests,
            environment,
            timeout_s=_BROKER_TEST_TIMEOUT_S if mutant.broker else _TEST_TIMEOUT_S,
            stop_early=True,
        )
    if code == _ALL_PASSED:
        return result("")
    failed = _FAILED.search(output)
    if failed is not None and code == _SOME_FAILED:
        return result(failed["node"])
    if _TIMED_OUT.search(output):
        return result("a time limit")
    return result("", "the tests did not run:\n" + "\n".join(output.splitlines()[-20:]))


@contextmanager
def _copy() -> Iterator[Path]:
    """A copy of the tree, deleted when the block ends."""
    with tempfile.TemporaryDirectory(prefix="millpond-mutant-") as place:
        root = Path(place)
        for each in ROOT.iterdir():
            if each.name in _NOT_LINKED:
                continue
            if each.name not in _COPIED:
                (root / each.name).symlink_to(each)
            elif each.is_dir():
                # With the bytecode, which is valid as long as the times of the sources are the same.
                shutil.copytree(each, root / each.name, symlinks=True)
            else:
                shutil.copy2(each, root / each.name)
        yield root


def _forget_bytecode(source: Path) -> None:
    cached = Path(importlib.util.cache_from_source(str(source)))
    for each in cached.parent.glob(f"{source.stem}.*"):
        each.unlink()


def _run(
    root: Path, tests: Sequence[str], environment: Mapping[str, str], *, timeout_s: int, stop_early: bool
) -> tuple[int, str]:
    """Run tests in a copy. Return pytest's exit code and output."""
    command = [
        sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider",
        "-o", "addopts=--import-mode=importlib", "-rfE", "--tb=line", "--hypothesis-seed=0",
        f"--timeout={timeout_s}", "--timeout-method=thread",
    ]  # fmt: skip
    roots = os.pathsep.join(str(root / each) for each in ("worker", "operator", "."))
    done = subprocess.run(
        [*command, *(["-x"] if stop_early else []), *tests],
        cwd=root,
        env={**os.environ, **environment, "PYTHONPATH": roots},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout
