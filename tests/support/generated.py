"""How many cases Hypothesis generates: few where one waits for the answer, many where nobody does."""

from __future__ import annotations

from hypothesis import settings
from hypothesis.internal.conjecture import engine

__all__ = ("choose", "examples")

_SCALES = {"quick": 0.25, "usual": 1.0, "soak": 10.0}
_USUAL = 100
#: A case that fails is made smaller for so long, in seconds: five minutes, which is usual, outlast pytest-timeout, and then the
#: process is ended before anybody has read the case.
_SHRINKING_S = 30


def choose(*, quick: bool, soak: bool) -> None:
    """Choose the scale of this run, before test modules are imported.

    Cases must not fail for being slow: the machine may be small and busy. pytest-timeout guards each test.
    """
    for name, scale in _SCALES.items():
        settings.register_profile(name, deadline=None, max_examples=round(_USUAL * scale))
    engine.MAX_SHRINKING_SECONDS = _SHRINKING_S
    settings.load_profile("soak" if soak else "quick" if quick else "usual")


def examples(number: int) -> int:
    """Return how many cases stand for so many of a usual run."""
    return max(3, round(number * _SCALES.get(settings.get_current_profile_name(), 1.0)))
