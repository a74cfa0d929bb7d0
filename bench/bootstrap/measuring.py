"""Measures time, CPU time and memory of a process and its child processes until it is ready or ends."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import psutil

from bench.sides import RunFailed

__all__ = ("READY", "Measured", "measure")

READY: Final = "READY"
"""The line that a worker prints when it runs."""

_LOOK_S: Final = 0.1
_STOP_S: Final = 30.0


@dataclass(frozen=True, slots=True)
class Measured:
    """The measurements of one run."""

    seconds: float
    """Seconds from the start of the process until it was ready, or had ended."""
    cpu_s: float
    peak_mb: float
    """The highest resident memory of all processes together, in megabytes of 10^6 bytes."""
    log: Path


@dataclass
class _Tree:
    """A process and its child processes, polled; a child that ended counts up to the poll before its end."""

    root: psutil.Process
    cpu: dict[int, float] = field(default_factory=dict)
    peak_bytes: int = 0

    def poll(self) -> None:
        memory = 0
        try:
            family = [self.root, *self.root.children(recursive=True)]
        except psutil.NoSuchProcess:
            return
        for each in family:
            try:
                times, rss = each.cpu_times(), each.memory_info().rss
            except psutil.Error:
                continue
            self.cpu[each.pid] = times.user + times.system
            memory += rss
        self.peak_bytes = max(self.peak_bytes, memory)


def measure(command: Sequence[str], log: Path, timeout_s: float, *, until_ready: bool) -> Measured:
    """Run a command.

    Args:
        command: the command.
        log: the file of its output.
        timeout_s: the time limit.
        until_ready: whether it is stopped once it prints `READY`; otherwise it has to end by itself, with status 0.

    Raises:
        RunFailed: it failed, or took too long; the message has the last lines of its output.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as out:
        began = time.monotonic()
        process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT)
        tree = _Tree(psutil.Process(process.pid))
        try:
            while True:
                tree.poll()
                seconds = time.monotonic() - began
                code = process.poll()
                if (until_ready and _is_ready(log)) or (not until_ready and code == 0):
                    return Measured(seconds, sum(tree.cpu.values()), tree.peak_bytes / 1e6, log)
                if code is not None:
                    raise _failure(log, f"ended with exit code {code}")
                if seconds > timeout_s:
                    raise _failure(log, f"did not end within {timeout_s:.0f} s")
                time.sleep(_LOOK_S)
        finally:
            _stop(process)


def _is_ready(log: Path) -> bool:
    return any(line.strip() == READY for line in log.read_text(errors="replace").splitlines())


def _failure(log: Path, what: str) -> RunFailed:
    tail = "\n".join(log.read_text(errors="replace").splitlines()[-15:])
    return RunFailed(f"{what}; the last lines of {log}:\n{tail}")


def _stop(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
