"""Virtual clocks for the libraries that read the clocks of the machine: aiohttp, kopf and the Prometheus client.

aiohttp closes connections that were idle for 15 s and forgets addresses after 10 s, kopf calculates the delays of its
handlers from the wall clock. With the clocks of the machine, that depends on how fast the machine runs the simulation.
None of these libraries accepts a clock, so simulations patch the names by which their modules read one.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import time
from collections.abc import Iterator
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest import mock

import aiohttp.connector
import aiohttp.cookiejar
import aiohttp.helpers
import prometheus_client.metrics
from kopf._cogs.clients import events
from kopf._cogs.structs import credentials
from kopf._core.actions import application, progression
from kopf._core.engines import peering, probing

from millpond.protocol import clock

__all__ = ("virtual_libraries",)


class _DateTime(dt.datetime):
    """The class `datetime`, on the clock of the simulation."""

    @classmethod
    def now(cls, tz: dt.tzinfo | None = None) -> Any:
        now = clock.now()
        return now.replace(tzinfo=None) if tz is None else now.astimezone(tz)


_TIME = SimpleNamespace(
    **{**vars(time), "time": clock.unix_time, "monotonic": clock.monotonic, "perf_counter": clock.monotonic}
)
_DATETIME = SimpleNamespace(**{**vars(dt), "datetime": _DateTime})
#: The modules that read a clock, the name by which they do, and what the name stands for in a simulation.
_READERS: tuple[tuple[ModuleType, str, Any], ...] = (
    (aiohttp.connector, "monotonic", clock.monotonic),
    (aiohttp.cookiejar, "time", _TIME),
    (aiohttp.helpers, "time", _TIME),
    (prometheus_client.metrics, "time", _TIME),
    *((module, "datetime", _DATETIME) for module in (application, credentials, events, peering, probing, progression)),
)


@contextlib.contextmanager
def virtual_libraries() -> Iterator[None]:
    """Let the libraries read `millpond.protocol.clock`, which is the clock of the loop within a simulation."""
    with contextlib.ExitStack() as stack:
        for module, name, replacement in _READERS:
            stack.enter_context(mock.patch.object(module, name, replacement))
        yield
