"""The interval of heartbeats: shorter for few workers, longer for many. Pure.

The longest one is a third of the session timeout, so that a worker counts as dead only after three heartbeats in a row
were lost. A shorter one tolerates more lost heartbeats, and shows loads and lags sooner.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ("CoordinatorLoad", "interval_ms")

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


def interval_ms(session_timeout_ms: int, load: CoordinatorLoad) -> int:
    """Return the longest time between two heartbeats of a worker, in milliseconds.

    Args:
        session_timeout_ms: the session timeout of its application.
        load: the heartbeats of all applications.
    """
    wanted = load.workers * load.cost_us / _CORE_SHARE / 1000
    return int(min(max(wanted, session_timeout_ms * _SHORTEST), session_timeout_ms * _LONGEST))
