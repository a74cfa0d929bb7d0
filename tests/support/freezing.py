"""Child processes that hang: SIGSTOP, and SIGCONT after it."""

from __future__ import annotations

import os
import signal
import subprocess
from typing import Any

__all__ = ("freeze", "thaw")


def freeze(process: subprocess.Popen[Any]) -> None:
    """Stop a child process; return when all its threads have stopped, or it has ended.

    SIGSTOP alone returns before that: until one thread has been scheduled and has stopped the others, they go on.
    """
    process.send_signal(signal.SIGSTOP)
    if process.poll() is None:
        os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)


def thaw(process: subprocess.Popen[Any]) -> None:
    """Let a stopped child process go on."""
    process.send_signal(signal.SIGCONT)
