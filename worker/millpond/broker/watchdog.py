"""A small process that kills the broker when the broker's owner process has ended, even with SIGKILL.

    python watchdog.py OWNER_PID BROKER_PID [DIRECTORY]

It waits for either process to end. When the owner ends first, the broker gets SIGKILL and DIRECTORY, a temporary data
directory, is removed. It is run by path, not as a module, so that it starts fast and imports only the standard library.
"""

from __future__ import annotations

import os
import select
import shutil
import signal
import sys
import time

_POLL_S = 0.5  # only where the kernel cannot notify of the end of a process


def main(owner: int, broker: int, directory: str | None) -> None:
    """Wait for `owner` or `broker` to end; see the docstring of the module."""
    if _first_to_end(owner, broker) == broker:
        return
    try:
        os.kill(broker, signal.SIGKILL)
    except ProcessLookupError:
        return
    _wait(broker)
    if directory is not None:
        shutil.rmtree(directory, ignore_errors=True)


def _first_to_end(*pids: int) -> int:
    if not hasattr(os, "pidfd_open"):
        while True:
            for pid in pids:
                if not _alive(pid):
                    return pid
            time.sleep(_POLL_S)
    poll = select.poll()
    pid_of = {}
    for pid in pids:
        try:
            descriptor = os.pidfd_open(pid)
        except ProcessLookupError:
            return pid
        pid_of[descriptor] = pid
        poll.register(descriptor, select.POLLIN)
    return pid_of[poll.poll()[0][0]]


def _wait(pid: int) -> None:
    if _alive(pid):
        _first_to_end(pid)


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3] if len(sys.argv) > 3 else None)
