"""The clocks of the control plane, used by the operator, the coordinator and the workers' client.

A context variable holds the clocks in use: those of the system, unless a simulation sets others. Tasks and callbacks
inherit them, so simulated and real event loops can run in one process.
"""

from __future__ import annotations

import contextvars
import time
from datetime import datetime, timedelta

from millpond.times import EPOCH

__all__ = ("CURRENT", "Clocks", "boottime", "cpu_time", "monotonic", "now", "unix_time")


class Clocks:
    """The clocks of the system."""

    def monotonic(self) -> float:
        """Return seconds on a clock that never goes back."""
        return time.monotonic()

    def boottime(self) -> float:
        """Return seconds on a clock that never goes back and does not stop while the machine sleeps."""
        clock = getattr(time, "CLOCK_BOOTTIME", None)
        return time.monotonic() if clock is None else time.clock_gettime(clock)

    def unix_time(self) -> float:
        """Return seconds since 1970."""
        return time.time()

    def cpu_time(self) -> float:
        """Return the CPU time of this process, in seconds."""
        return time.process_time()


CURRENT: contextvars.ContextVar[Clocks] = contextvars.ContextVar("clocks", default=Clocks())  # noqa: B039 - it has no state


def monotonic() -> float:
    """Return seconds on a clock that never goes back."""
    return CURRENT.get().monotonic()


def boottime() -> float:
    """Return seconds on a clock that never goes back and does not stop while the machine sleeps."""
    return CURRENT.get().boottime()


def unix_time() -> float:
    """Return seconds since 1970."""
    return CURRENT.get().unix_time()


def cpu_time() -> float:
    """Return the CPU time of this process, in seconds."""
    return CURRENT.get().cpu_time()


def now() -> datetime:
    """Return the date and time in UTC."""
    return EPOCH + timedelta(seconds=unix_time())
