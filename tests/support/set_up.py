"""Set-up of a test that waits for a program: a broker that starts, a topic that is created.

A program that does not answer in time is no failure of what the test proves: the machine is too busy, or the program
hangs. Such a step is tried once more, with a new program where the test has one of its own, and is counted: the last
lines of a run say where. A step that is late twice is an error of the set-up, which has the program's own log. A test's
time limit does not run meanwhile.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

__all__ = ("Late", "SetUpError", "begin", "end_of", "limited", "repeated", "twice", "without_limit")

T = TypeVar("T")

_LOG_LINES = 20
_REPEATED = "set-up-repeated"


class Late(Exception):
    """A step of a set-up took too long; the message says which, and how long."""


class SetUpError(Exception):
    """A step of a set-up took too long twice."""


@dataclass
class _Now:
    """What this process knows of the run and of the test that runs now."""

    directory: Path | None = None
    test: str = ""
    limit: tuple[Any, Any] | None = None


_now = _Now()


def begin(directory: Path, test: str) -> None:
    """Note the test that begins, and the directory of its run."""
    _now.directory, _now.test, _now.limit = directory, test, None


def limited(item: Any, settings: Any) -> None:
    """Note that the time limit of a test begins; the arguments are those of pytest-timeout's hook."""
    _now.limit = (item, settings)


def twice(
    step: Callable[[], T], *, again: Callable[[], object] = lambda: None, log: Callable[[], str] = lambda: ""
) -> T:
    """Return what a step of a set-up returns; if it raises `Late`, call it once more.

    Args:
        step: one step, which has a limit of its own.
        again: called before the second time; it replaces the program that did not answer.
        log: the end of the program's log, for the message.

    Raises:
        SetUpError: it was late twice.
    """
    with without_limit():
        try:
            return step()
        except Late as late:
            _count(str(late))
        again()
        try:
            return step()
        except Late as late:
            told = f"; its log ends with:\n{text}" if (text := log()) else "."
            raise SetUpError(
                f"{late}, and so it was at a second try: the machine is too busy (its load is "
                f"{os.getloadavg()[0]:.1f}), or the program hangs{told}"
            ) from late


def repeated(directory: Path) -> list[str]:
    """Return the steps of a run that were repeated, as sentences without full stops."""
    try:
        return (directory / _REPEATED).read_text().splitlines()
    except FileNotFoundError:
        return []


def end_of(log: Path, lines: int = _LOG_LINES) -> str:
    """Return the last lines of a log, indented; nothing if it cannot be read."""
    with contextlib.suppress(OSError):
        return "\n".join(f"    {line}" for line in log.read_text(errors="replace").splitlines()[-lines:])
    return ""


def _count(what: str) -> None:
    if _now.directory is not None:
        with (_now.directory / _REPEATED).open("a") as file:
            file.write(f"{_now.test or 'between tests'}: {' '.join(what.split())}\n")


@contextlib.contextmanager
def without_limit() -> Iterator[None]:
    """Stop the time limit of the test that runs for the time of the block, and let it begin again afterwards."""
    if threading.current_thread() is not threading.main_thread():  # it may outlive its test
        yield
        return
    limit, _now.limit = _now.limit, None  # a step within a step finds none
    if limit is None:
        yield
        return
    item, settings = limit
    hook = item.config.pluginmanager.hook
    hook.pytest_timeout_cancel_timer(item=item)
    try:
        yield
    finally:
        hook.pytest_timeout_set_timer(item=item, settings=settings)
