"""Download, build and warm up what tests need, once, while the tests without needs run.

    python -m tests.support.preparing broker apiserver

The first pytest process that collects a test with a need starts this program; tests with needs wait for its end before
their time limit begins. Missing programs are no failure here: the fixtures report why.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from millpond.broker import __main__ as broker
from millpond.errors import MillpondError
from tests.cluster import binaries
from tests.support.chromium import ChromiumMissing, chromium
from tests.support.programs import actionlint, helm, prometheus, versitygw

__all__ = ("PREPARED", "await_end", "missing", "prepare", "progress", "start", "unfinished")


def _find_helm() -> None:
    helm.find(helm.HELM_3), helm.find(helm.HELM_4), helm.definitions()


def _warm_chromium() -> None:
    with contextlib.suppress(ChromiumMissing), chromium():
        pass  # the first start reads hundreds of megabytes


_FOUND: Mapping[str, Callable[[], object]] = {
    "apiserver": binaries.find,
    "s3": versitygw.find,
    "helm": _find_helm,
    "prometheus": prometheus.find,
    "actionlint": actionlint.PROGRAM.find,
}
"""What raises MillpondError as long as a need is missing; of the other needs only trying tells."""
_MADE: Mapping[str, Callable[[], object]] = {
    "broker": lambda: broker.main(["kafka"]),
    "prometheus": prometheus.install,
    "chromium": _warm_chromium,
    "apiserver": binaries.prepare,
    "s3": versitygw.build,
    "helm": helm.build,
    "actionlint": actionlint.PROGRAM.build,
}
PREPARED = tuple(_MADE)
"""The marks of tests that need preparation, in the order of preparation."""
_FIRST, _LAST = "apiserver", ("s3", "helm", "actionlint")
"""Programs that a compiler makes: those that most tests wait for come first."""


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
                    [sys.executable, "-m", "tests.support.preparing", "--run", str(directory), need],
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


def unfinished(directory: Path, needed: Iterable[str]) -> set[str]:
    """Return the needs for which tests would have to wait now.

    A check that everything is there, at the beginning of a run, is no reason to let tests wait.
    """
    return {need for need in needed if _running(directory, need) and missing(need)}


def missing(need: str) -> bool:
    """Return whether what tests with this mark need has to be fetched or built; True where only trying tells."""
    try:
        find = _FOUND[need]
    except KeyError:
        return True
    try:
        find()
    except MillpondError:
        return True
    return False


def progress(directory: Path, waiting: Mapping[str, int]) -> list[str]:
    """Return a sentence, without its full stop, about each need for which tests wait.

    Args:
        directory: the directory of the run.
        waiting: the needs of tests, and how many tests have each of them.
    """
    told = []
    for need in sorted(unfinished(directory, waiting), key=PREPARED.index):
        log = directory / f"{need}.log"
        steps = re.findall(r"^((?:Building|Downloading) .+?)(?: \(.*)?$", log.read_text(errors="replace"), re.MULTILINE)
        step = f"{steps[-1]}, for {time.time() - log.stat().st_mtime:.0f} s so far" if steps else "not begun yet"
        told.append(f"{waiting[need]} tests wait for {need}: {step}")
    return told


def _running(directory: Path, need: str) -> bool:
    try:
        with (directory / f"{need}.prepared").open() as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False


def prepare(need: str) -> None:
    """Download, build or warm up what tests with this mark need.

    Raises:
        MillpondError: it failed.
    """
    if need == "apiserver" or missing(need):  # kubectl may be missing besides
        _MADE[need]()


def main() -> None:
    """Prepare the marks in the arguments; report failures."""
    parser = argparse.ArgumentParser(prog="python -m tests.support.preparing")
    parser.add_argument("needs", nargs="+", choices=PREPARED)
    parser.add_argument("--run", type=Path, help="directory of a run of tests, whose most wanted program comes first")
    given = parser.parse_args()
    try:
        for need in given.needs:
            if given.run is not None and need in _LAST and missing(need):
                await_end(given.run, [_FIRST])
            prepare(need)
    except MillpondError as error:
        sys.exit(f"millpond: {error}")


if __name__ == "__main__":
    main()
