"""Run one coroutine in a simulation of its own."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, TypeVar

from tests.simulation.background import VirtualBackground

__all__ = ("simulate",)

T = TypeVar("T")


def simulate(scenario: Coroutine[Any, Any, T], timeout_s: float = 3_600.0) -> T:
    """Run a scenario on virtual time, in a loop with a network of its own.

    Raises:
        TimeoutError: it lasts longer than that, in virtual time.
    """
    with VirtualBackground() as background:
        return background.call(scenario, timeout_s)
