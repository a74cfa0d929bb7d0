"""The long tests: each part is a command that ends by itself, and is repeated with new seeds until its time is over."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass

__all__ = ("PARTS", "Part")

_PYTHON = sys.executable
_FAULT_S = 3.5
"""Mean seconds between two faults of a chaos run."""
_CHAOS_AROUND_S = 45.0
"""What a chaos run takes before the first fault and after the last."""
_FULL_FAULTS = 200
_SCENARIOS = ("rollback", "upgrade", "create", "scale", "delete")


@dataclass(frozen=True)
class Part:
    """One kind of long test.

    Attributes:
        name: in the table.
        weight: its part of the time.
        command: the command of one round: of a seed, and of the seconds that are left for it; None for as long as it takes.
        rounds: in a run without a time limit.
        shortest_s: a round is not started in less than that; the first one always is.
    """

    name: str
    weight: float
    command: Callable[[int, float | None], list[str]]
    rounds: int = 1
    shortest_s: float = 20.0


def _pytest(seed: int, *arguments: str) -> list[str]:
    return [_PYTHON, "-m", "pytest", "-n", "0", "-q", "--soak", "--seed", str(seed), *arguments]


def _chaos(seed: int, left_s: float | None) -> list[str]:
    faults = _FULL_FAULTS if left_s is None else max(10, int((left_s - _CHAOS_AROUND_S) / _FAULT_S))
    return [_PYTHON, "-m", "tests.chaos", "--faults", str(faults), "--seed", str(seed)]


def _kills(seed: int, _left_s: float | None) -> list[str]:
    return _pytest(seed, "tests/exactly_once", "tests/chaos", "-m", "broker or process")


def _crashes(seed: int, left_s: float | None) -> list[str]:
    chosen = [] if left_s is None else ["-k", _SCENARIOS[seed % len(_SCENARIOS)]]
    return _pytest(seed, "tests/operating/test_crash_at_every_write.py", "-m", "apiserver", *chosen)


def _operators(seed: int, _left_s: float | None) -> list[str]:
    return _pytest(seed, "tests/operating", "tests/many_workers", "tests/ownership", "-m", "slow")


def _model(_seed: int, left_s: float | None) -> list[str]:
    return [_PYTHON, "-m", "tests.ownership.checker", *([] if left_s is not None else ["--deep"])]


def _fuzz(seed: int, _left_s: float | None) -> list[str]:
    plain = "hypothesis and not (broker or apiserver or process)"
    return [_PYTHON, "-m", "pytest", "-n", "2", "-q", "--soak", "--seed", str(seed), "-m", plain]


PARTS = (
    Part("chaos", 0.35, _chaos, shortest_s=90.0),
    Part("kill -9 and zombies", 0.2, _kills, shortest_s=120.0),
    Part("operator crashes on a real API server", 0.25, _crashes, shortest_s=120.0),
    Part("generated cases", 0.15, _fuzz, rounds=10, shortest_s=30.0),
    Part("model of ownership", 0.05, _model, shortest_s=60.0),
)
"""In the order in which they run."""
