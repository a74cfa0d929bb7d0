"""Runs a process until it is ready or ends: how long, how much CPU time, how much memory, all that it started included."""

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
"""The line that a worker prints once it runs."""

_LOOK_S: Final = 0.1
_STOP_S: Final = 30.0


@dataclass(frozen=True, slots=True)
class Measured:
    """What one run took."""

    seconds: float
    """From the start of the process until it was ready, or had ended."""
    cpu_s: float
    peak_mb: float
    """The most of resident memory that all processes had at one moment, in megabytes of 10^6 bytes."""
    log: Path


@dataclass
class _Tree:
    """A process and all that it starts, looked at now and then: what ended between two looks counts up to the last one."""

    root: psutil.Process
    cpu: dict[int, float] = field(default_factory=dict)
    peak_bytes: int = 0

    def look(self) -> None:
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
        command: what.
        log: where its output goes.
        timeout_s: how long it may take.
        until_ready: whether it runs until it prints `READY`, and is then told to stop; else it has to end well by itself.

    Raises:
        RunFailed: it ended badly, or took too long; the message has the end of its output.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as out:
        began = time.monotonic()
        process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT)
        tree = _Tree(psutil.Process(process.pid))
        try:
            while True:
                tree.look()
                seconds = time.monotonic() - began
                code = process.poll()
                if (until_ready and _is_ready(log)) or (not until_ready and code == 0):
                    return Measured(seconds, sum(tree.cpu.values()), tree.peak_bytes / 1e6, log)
                if code is not None:
                    raise _failure(log, f"ended with exit code {code}")
                if seconds > timeout_s:
                    raise _failure(log, f"was not through after {timeout_s:.0f} s")
                time.sleep(_LOOK_S)
        finally:
            _stop(process)


def _is_ready(log: Path) -> bool:
    return any(line.strip() == READY for line in log.read_text(errors="replace").splitlines())


def _failure(log: Path, what: str) -> RunFailed:
    tail = "\n".join(log.read_text(errors="replace").splitlines()[-15:])
    return RunFailed(f"{what}; it printed:\n{tail}\n(all of it is in {log})")


def _stop(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
