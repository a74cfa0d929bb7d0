"""A small process beside a session: when the session dies, however it dies, it kills the session's child processes.

    python child_reaper.py [DIRECTORY]

It reads lines from standard input: `+PID` to watch a process, `-PID` when that has ended, `done` when the session ends
normally. At the end of input without `done` it kills the watched processes and removes DIRECTORY, a temporary one. It
is run by path and not as a module, so that it costs one bare interpreter and imports nothing else.
"""

from __future__ import annotations

import os
import select
import shutil
import signal
import sys
import time

_EXIT_TIMEOUT_S = 10.0


def main(directory: str | None) -> None:
    """Watch processes, and kill them at the end of input without `done`."""
    watched: dict[int, int | None] = {}
    for line in sys.stdin:
        if line.startswith("done"):
            return
        pid = int(line[1:])
        if line.startswith("+"):
            watched[pid] = _descriptor(pid)
        else:
            descriptor = watched.pop(pid, None)
            if descriptor is not None:
                os.close(descriptor)
    for pid, descriptor in watched.items():
        _kill(pid, descriptor)
    for descriptor in watched.values():
        if descriptor is not None:
            select.select([descriptor], [], [], _EXIT_TIMEOUT_S)
    if directory is not None:
        # The broker has its own watchdog, which may need some time more.
        deadline = time.monotonic() + _EXIT_TIMEOUT_S
        while os.path.exists(directory) and time.monotonic() < deadline:  # noqa: PTH110 (importing pathlib is slow)
            shutil.rmtree(directory, ignore_errors=True)
            time.sleep(0.2)


def _descriptor(pid: int) -> int | None:
    """Return a descriptor of the process, which stays valid if its id is reused; None where the system has none."""
    try:
        return os.pidfd_open(pid)
    except (AttributeError, OSError):
        return None


def _kill(pid: int, descriptor: int | None) -> None:
    try:
        if descriptor is not None:
            signal.pidfd_send_signal(descriptor, signal.SIGKILL)
        else:
            os.kill(pid, signal.SIGKILL)
    except OSError:
        pass


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else None)
