"""The machine's standstills: the time in which it gave a process that wanted to run no processor.

A bound that is the behaviour itself, such as a condition that is wrong for at most five seconds, is compared with the
time without standstills:

    with Standstills(directory) as standstills:
        began = time.monotonic()
        ...
        assert standstills.lasted(began, time.monotonic()) < 5

A process of its own measures: a thread of a test would measure the locks and the garbage collector of that test, too.
It asks to be woken every 10 ms. How much later it is woken is a standstill in full: the machine was frozen, or its
processors worked for another machine. Beside busy processes it is woken in time, since the kernel prefers processes
that hardly run, while those that compute wait. So a share of the time in between is a standstill, too: with six
processes that want to run on two processors, each runs for a third of the time, and two thirds are a standstill.
"""

from __future__ import annotations

import array
import contextlib
import os
import select
import subprocess
import sys
import time
from bisect import bisect_left
from pathlib import Path
from typing import BinaryIO, Self

__all__ = ("Standstills",)

_TICK_S = 0.01
#: A process is woken later by this much on any machine.
_LATE_S = 0.001
#: For so long the process may be silent, itself in a standstill.
_SILENT_S = 60.0
#: Only Linux has it.
_STAT = Path("/proc/stat")
_RUNNING = b"procs_running "


class Standstills:
    """Measured during the `with` block.

    Args:
        directory: for the file of measurements.
    """

    def __init__(self, directory: Path) -> None:
        self._file = directory / f"standstills-{os.getpid()}"
        #: Two numbers for each tick: its time, and the length of all standstills until then.
        self._times = array.array("d")
        self._lengths = array.array("d")

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            [sys.executable, __file__, self._file], stdin=subprocess.PIPE, start_new_session=True
        )
        self._read_to(time.monotonic())
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()

    @property
    def pid(self) -> int:
        """The number of the process that measures."""
        return self._process.pid

    def between(self, begin: float, end: float) -> float:
        """Return the length of all standstills between two moments of `time.monotonic`, in seconds.

        Raises:
            AssertionError: the measuring process has ended.
        """
        self._read_to(end)
        return self._length(end) - self._length(begin)

    def lasted(self, begin: float, end: float) -> float:
        """Return the time between two moments without standstills, in seconds."""
        return end - begin - self.between(begin, end)

    def _read_to(self, moment: float) -> None:
        """Read measurements until those of a moment are there."""
        deadline = time.monotonic() + _SILENT_S
        while not self._times or self._times[-1] < moment:
            assert self._process.poll() is None, "the process that measures standstills has ended"
            assert time.monotonic() < deadline, f"standstills were not measured for {_SILENT_S:g} s"
            self._read()
            time.sleep(_TICK_S)

    def _read(self) -> None:
        size = 2 * self._times.itemsize
        if not self._file.exists():
            return
        with self._file.open("rb") as file:
            file.seek(len(self._times) * size)
            found = file.read()
        rows = array.array("d", found[: len(found) // size * size])
        self._times.extend(rows[::2])
        self._lengths.extend(rows[1::2])

    def _length(self, moment: float) -> float:
        """Return the length of all standstills until a moment; within a tick it grows evenly."""
        at = bisect_left(self._times, moment)
        if at == 0:
            return 0.0
        before, after = self._times[at - 1], self._times[at]
        share = (moment - before) / (after - before)
        return self._lengths[at - 1] + share * (self._lengths[at] - self._lengths[at - 1])


def _standstill(passed_s: float, others: int, processors: int) -> float:
    """Return how much of a tick was a standstill, in seconds.

    Args:
        passed_s: the time since the last tick.
        others: the number of processes that want to run, except the one that measures.
        processors: the number of processors.
    """
    late_s = max(0.0, passed_s - _TICK_S - _LATE_S)
    share = min(1.0, processors / max(others, 1))
    return late_s + (passed_s - late_s) * (1 - share)


def _others(stat: BinaryIO | None) -> int:
    """Return the number of processes that want to run now, except this one; 0 if the machine does not tell it."""
    if stat is None:
        return 0
    stat.seek(0)
    return next((int(line.split()[1]) - 1 for line in stat if line.startswith(_RUNNING)), 0)


def _measure(path: str) -> None:
    """Append a measurement at each tick until the parent closes the standard input, or ends."""
    with contextlib.ExitStack() as stack:
        out = stack.enter_context(Path(path).open("wb", buffering=0))
        stat = stack.enter_context(_STAT.open("rb", buffering=0)) if _STAT.exists() else None
        processors = os.cpu_count() or 1
        before, length = time.monotonic(), 0.0
        out.write(array.array("d", (before, length)).tobytes())
        while not select.select([sys.stdin], [], [], _TICK_S)[0]:
            now = time.monotonic()
            length += _standstill(now - before, _others(stat), processors)
            before = now
            out.write(array.array("d", (before, length)).tobytes())


if __name__ == "__main__":
    _measure(sys.argv[1])
