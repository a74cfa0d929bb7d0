"""A tiny process beside a session: when the session dies, however it does, its children are killed.

    python leash.py [DIRECTORY]

It reads lines from standard input: `+PID` to hold a process, `-PID` when it has ended, `done` when all is in order.
At the end of input without `done` it kills what it holds and removes DIRECTORY, a temporary one. Run by path and not
as a module, so that it costs one bare interpreter and imports nothing else.
"""

from __future__ import annotations

import os
import select
import shutil
import signal
import sys
import time

_WAIT_S = 10.0


def main(directory: str | None) -> None:
    """Hold and, if need be, kill; see the module's text."""
    held: dict[int, int | None] = {}
    for line in sys.stdin:
        if line.startswith("done"):
            return
        pid = int(line[1:])
        if line.startswith("+"):
            held[pid] = _descriptor(pid)
        else:
            descriptor = held.pop(pid, None)
            if descriptor is not None:
                os.close(descriptor)
    for pid, descriptor in held.items():
        _kill(pid, descriptor)
    for descriptor in held.values():
        if descriptor is not None:
            select.select([descriptor], [], [], _WAIT_S)
    if directory is not None:
        # The broker has a watchdog of its own, which may need a moment more.
        deadline = time.monotonic() + _WAIT_S
        while os.path.exists(directory) and time.monotonic() < deadline:  # noqa: PTH110 (pathlib costs more than all of this)
            shutil.rmtree(directory, ignore_errors=True)
            time.sleep(0.2)


def _descriptor(pid: int) -> int | None:
    """Names this very process, even when its id is another one's later; None where there is no such thing."""
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
