"""Pause processes of a test run at random moments, so that what one of them tells comes late to the others.

A busy machine makes all processes slow, but keeps their order most of the time. A pause of one process reverses it: the
worker runs before its session knows, a commit is made before its consumer has heard of the assignment.
"""

from __future__ import annotations

import contextlib
import random
import signal
import threading
from collections.abc import Iterator
from datetime import timedelta

import psutil


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
