"""Fetch and build what tests need, once, beside the tests that need nothing.

    python -m tests.support.preparing broker apiserver

The first pytest process that collects a test in need starts this program; tests in need wait for its end before their time
limit begins. What cannot be had is no failure here: the fixtures say why.
"""

from __future__ import annotations

import fcntl
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from millpond.broker import __main__ as broker
from millpond.errors import MillpondError
from tests.cluster import binaries
from tests.support import versitygw

__all__ = ("PREPARED", "await_end", "lacking", "prepare", "start")

PREPARED = ("broker", "apiserver", "s3")
"""The marks of tests that need preparation, in the order in which it is done."""


def start(directory: Path, needed: Sequence[str]) -> None:
    """Start to prepare, unless another process of this run of tests did.

    Args:
        directory: of the run.
        needed: of `PREPARED`.
    """
    for need in needed:
        with (directory / f"{need}.prepared").open("a") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue
            if lock.tell():
                continue
            lock.write("started\n")
            lock.flush()
            with (directory / f"{need}.log").open("wb") as log:
                # The child inherits the lock, and releases it when it ends, however it ends.
                subprocess.Popen(
                    [sys.executable, "-m", "tests.support.preparing", need],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    cwd=Path(__file__).parents[2],
                    pass_fds=[lock.fileno()],
                ).returncode = 0  # it may outlive this process, and nobody waits for it


def await_end(directory: Path, needed: Sequence[str]) -> None:
    """Wait until all of it is there, or cannot be had."""
    for need in needed:
        with (directory / f"{need}.prepared").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)


def lacking(directory: Path) -> list[str]:
    """Return what is being fetched or built now, of what takes minutes."""
    try:
        binaries.find()
    except binaries.BinariesMissing:
        return ["apiserver"] if (directory / "apiserver.prepared").exists() else []
    return []


def prepare(need: str) -> None:
    """Fetch or build what tests with this mark need.

    Raises:
        MillpondError: it cannot be had.
    """
    if need == "broker":
        broker.main(["kafka"])
    elif need == "s3":
        try:
            versitygw.find()
        except versitygw.VersitygwMissing:
            versitygw.build()
    else:
        try:
            binaries.find()
        except binaries.BinariesMissing:
            binaries.build()


def main() -> None:
    """Prepare what the arguments name; say what cannot be had."""
    try:
        for need in sys.argv[1:]:
            prepare(need)
    except MillpondError as error:
        sys.exit(f"millpond: {error}")


if __name__ == "__main__":
    main()
