"""The interval of heartbeats: shorter for few workers, longer for many. Pure.

The longest one is a third of the session timeout, so that a worker counts as dead only after three heartbeats in a row
were lost. A shorter one tolerates more lost heartbeats, and shows loads and lags sooner. A worker that reports which
brokers it reaches sends so many heartbeats within its limit that reports of two workers are of one time (`cut_off.py`).
"""

from __future__ import annotations

from dataclasses import dataclass

from millpond.protocol import BrokerReach

__all__ = ("REPORTS", "CoordinatorLoad", "interval_ms")

REPORTS = 8
"""The least number of reports of brokers that a worker sends within its limit."""

#: The share of a core that heartbeats may take while their interval can still be made longer.
_CORE_SHARE = 0.05
#: The limits of the interval, as parts of the session timeout. A third, less 5 % for the way of a heartbeat.
_SHORTEST, _LONGEST = 1 / 6, 0.95 / 3


@dataclass(frozen=True, slots=True)
class CoordinatorLoad:
    """The heartbeats that a coordinator receives."""

    workers: int = 0
    """Live workers of all its applications."""
    cost_us: float = 500.0
    """CPU time for one heartbeat, in microseconds."""


def interval_ms(session_timeout_ms: int, load: CoordinatorLoad, reach: BrokerReach | None = None) -> int:
    """Return the longest time between two heartbeats of a worker, in milliseconds.

    Args:
        session_timeout_ms: the session timeout of its application.
        load: the heartbeats of all applications.
        reach: the worker's report of its brokers, if it sends one.
    """
    wanted = load.workers * load.cost_us / _CORE_SHARE / 1000
    found = int(min(max(wanted, session_timeout_ms * _SHORTEST), session_timeout_ms * _LONGEST))
    return found if reach is None else min(found, max(1, reach.limit_ms // REPORTS))
