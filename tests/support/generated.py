"""The number of cases that Hypothesis generates: few for quick runs, many for soak runs."""

from __future__ import annotations

from hypothesis import settings
from hypothesis.internal.conjecture import engine

__all__ = ("choose", "examples")

_SCALES = {"quick": 0.1, "usual": 1.0, "soak": 10.0}
_USUAL = 100
#: The time for shrinking a failing case, in seconds. Hypothesis' default of five minutes is longer than pytest-timeout,
#: which would end the process before the case is printed.
_SHRINKING_S = 30


def choose(*, quick: bool, soak: bool) -> None:
    """Choose the scale of this run, before test modules are imported.

    Cases must not fail because they are slow: the machine may be small and busy. pytest-timeout guards each test.
    """
    for name, scale in _SCALES.items():
        settings.register_profile(name, deadline=None, max_examples=round(_USUAL * scale))
    engine.MAX_SHRINKING_SECONDS = _SHRINKING_S
    settings.load_profile("soak" if soak else "quick" if quick else "usual")


def examples(number: int) -> int:
    """Return the number of cases in this run for a number of cases in a normal run."""
    return max(3, round(number * _SCALES.get(settings.get_current_profile_name(), 1.0)))
