"""Processes that hang: SIGSTOP, and SIGCONT after it.

A busy machine makes all processes slow, but keeps their order most of the time. A pause of one process reverses it: the
worker runs before its session knows, a commit is made before its consumer has heard of the assignment.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import threading
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import psutil

__all__ = ("freeze", "pauses", "thaw")


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


@contextlib.contextmanager
def pauses(pid: int, seed: int, *, longest: timedelta, between: timedelta) -> Iterator[None]:
    """Pause random descendants of the process `pid`, one after the other, while the block runs.

    Each pause takes up to `longest`, and `between` is the mean time between two.
    A process that is stopped already, as tests do, is left alone.
    """
    ended = threading.Event()
    thread = threading.Thread(
        target=_run, args=(pid, random.Random(seed), longest.total_seconds(), between.total_seconds(), ended)
    )
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _run(pid: int, rng: random.Random, longest_s: float, between_s: float, ended: threading.Event) -> None:
    while not ended.wait(rng.expovariate(1 / between_s)):
        with contextlib.suppress(psutil.NoSuchProcess):  # it ended meanwhile
            found = psutil.Process(pid).children(recursive=True)
            if found and (chosen := rng.choice(found)).status() not in (psutil.STATUS_STOPPED, psutil.STATUS_ZOMBIE):
                chosen.send_signal(signal.SIGSTOP)
                try:
                    ended.wait(rng.uniform(0, longest_s))
                finally:
                    chosen.send_signal(signal.SIGCONT)
