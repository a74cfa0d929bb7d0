"""CPU time and memory of one running process, read from `/proc` (Linux)."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

_TICKS: Final = os.sysconf("SC_CLK_TCK")


def cpu_seconds(pid: int) -> float:
    """Return the CPU time of all threads of `pid` so far, user and system, in seconds.

    Raises:
        ProcessLookupError: the process does not exist.
    """
    # The command in parentheses may contain spaces: fields are counted from the last ")"; utime and stime are numbers
    # 14, 15.
    fields = _read(pid, "stat").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def peak_memory_mb(pid: int) -> float:
    """Return the largest resident set of `pid` so far (VmHWM), in megabytes of 10^6 bytes.

    Raises:
        ProcessLookupError: the process does not exist.
    """
    for line in _read(pid, "status").splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024 / 1e6
    raise ProcessLookupError(pid)


def _read(pid: int, name: str) -> str:
    try:
        return Path(f"/proc/{pid}/{name}").read_text()
    except (FileNotFoundError, ProcessLookupError):
        raise ProcessLookupError(pid) from None
