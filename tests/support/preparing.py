"""Download, build and warm up what tests need, once, while the tests without needs run.

    python -m tests.support.preparing broker apiserver

The first pytest process that collects a test with a need starts this program; tests with needs wait for its end before
their time limit begins. Missing programs are no failure here: the fixtures report why.
"""

from __future__ import annotations

import contextlib
import fcntl
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from millpond.broker import __main__ as broker
from millpond.errors import MillpondError
from tests.cluster import binaries
from tests.support.chromium import ChromiumMissing, chromium
from tests.support.programs import helm, prometheus, versitygw

__all__ = ("PREPARED", "await_end", "lacking", "prepare", "start")

PREPARED = ("broker", "prometheus", "chromium", "apiserver", "s3", "helm")
"""The marks of tests that need preparation, in the order of preparation."""


def start(directory: Path, needed: Sequence[str]) -> None:
    """Start this program, unless another process of this test run did.

    Args:
        directory: the directory of the run.
        needed: marks of `PREPARED`.
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
                # The child inherits the lock; its end releases it.
                subprocess.Popen(
                    [sys.executable, "-m", "tests.support.preparing", need],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    cwd=Path(__file__).parents[2],
                    pass_fds=[lock.fileno()],
                ).returncode = 0  # it may run longer than this process, and is not waited for


def await_end(directory: Path, needed: Sequence[str]) -> None:
    """Wait until the preparation has ended."""
    for need in needed:
        with (directory / f"{need}.prepared").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)


def lacking(directory: Path) -> list[str]:
    """Return the long downloads and builds that are still running."""
    try:
        binaries.find()
    except binaries.BinariesMissing:
        return ["apiserver"] if (directory / "apiserver.prepared").exists() else []
    return []


def prepare(need: str) -> None:
    """Download, build or warm up what tests with this mark need.

    Raises:
        MillpondError: it failed.
    """
    if need == "broker":
        broker.main(["kafka"])
    elif need == "prometheus":
        try:
            prometheus.find()
        except prometheus.PrometheusMissing:
            prometheus.install()
    elif need == "chromium":
        with contextlib.suppress(ChromiumMissing), chromium():
            pass  # the first start reads hundreds of megabytes
    elif need == "s3":
        try:
            versitygw.find()
        except versitygw.GoProgramMissing:
            versitygw.build()
    elif need == "helm":
        helm.build()
    else:
        binaries.prepare()


def main() -> None:
    """Prepare the marks in the arguments; report failures."""
    try:
        for need in sys.argv[1:]:
            prepare(need)
    except MillpondError as error:
        sys.exit(f"millpond: {error}")


if __name__ == "__main__":
    main()
