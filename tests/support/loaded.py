"""Run the suite under load: `python -m tests.support.loaded --runs 10`. No test may fail because the machine is busy.

Two processes use the CPU all the time, and a third writes to the disk of the tests and syncs, in a loop. With
`--longest-pause`, processes that the tests start are stopped for moments, too. Each run has a new seed. The exit status
is 0 if no test failed in any run.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tests.support import seeds
from tests.support.freezing import pauses

_LOGS = Path("build/loaded")
_BUSY = "while True: pass"
_WRITES = """
import os, sys
data = os.urandom(1 << 20)
with open(sys.argv[1], "wb", buffering=0) as file:
    while True:
        file.seek(0)
        for _ in range(32):
            file.write(data)
        os.fsync(file.fileno())
"""


@contextlib.contextmanager
def load(busy: int) -> Iterator[None]:
    """Run processes that keep CPU and disk busy while the block runs."""
    with tempfile.NamedTemporaryFile(prefix="millpond-load-") as file:
        commands = [[_BUSY]] * busy + [[_WRITES, file.name]]
        processes = [subprocess.Popen([sys.executable, "-c", *each], preexec_fn=_end_with_parent) for each in commands]
        try:
            yield
        finally:
            for each in processes:
                each.kill()
                each.wait()


def _end_with_parent() -> None:
    """Let the kernel kill this process when its parent ends."""
    import ctypes

    ctypes.CDLL(None).prctl(1, signal.SIGKILL)


def paused(pid: int, seed: int, longest_ms: int) -> contextlib.AbstractContextManager[None]:
    """Pause processes that a test run starts, one after the other; none if `longest_ms` is 0."""
    longest = timedelta(milliseconds=longest_ms)
    between = timedelta(milliseconds=200)
    return pauses(pid, seed, longest=longest, between=between) if longest else contextlib.nullcontext()


def main() -> int:
    """Run the suite repeatedly, and print a table."""
    parser = argparse.ArgumentParser(prog="python -m tests.support.loaded", description=__doc__)
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--busy", type=int, default=2, help="number of processes that use the CPU")
    parser.add_argument("--jobs", type=int, default=2, help="pytest processes")
    parser.add_argument(
        "--seed", type=int, default=None, help="seed of the first run; default: a new seed for each run"
    )
    parser.add_argument("--longest-pause", type=int, default=0, metavar="MS", help="0: no process is paused")
    parser.add_argument("arguments", nargs="*", help="for pytest, after --")
    given = parser.parse_args()
    console = Console(soft_wrap=True, highlight=False)
    _LOGS.mkdir(parents=True, exist_ok=True)
    table = Table("run", "seed", "minutes", "load", "result", title=f"make test-loaded, {given.busy} busy processes")
    failed = 0
    for run in range(1, given.runs + 1):
        seed = seeds.fresh() if given.seed is None else given.seed + run - 1
        log = _LOGS / f"run-{run}.log"
        options = ["-n", str(given.jobs), "--dist", "loadgroup", "--max-worker-restart", "0", "--seed", str(seed)]
        began = time.monotonic()
        command = [sys.executable, "-m", "pytest", *options, *given.arguments]
        with load(given.busy), log.open("wb") as out:
            process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT)
            with paused(process.pid, seed, given.longest_pause):
                status = process.wait()
            busy = os.getloadavg()[0]
        lines = log.read_text(errors="replace").splitlines()
        result = lines[-1].strip("= ") if lines else "nothing"
        minutes = (time.monotonic() - began) / 60
        table.add_row(str(run), str(seed), f"{minutes:.1f}", f"{busy:.1f}", result)
        console.print(f"run {run}: seed {seed}, {minutes:.1f} min, {result}", markup=False)
        if status != 0:
            failed += 1
            console.print("\n".join(line for line in lines if line.startswith(("FAILED", "ERROR"))), markup=False)
    console.print(table)
    return min(failed, 1)


if __name__ == "__main__":
    sys.exit(main())
