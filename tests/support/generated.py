"""The cases that Hypothesis generates: how many, and that the seed of the run alone decides which."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import engine, providers

from tests.support import choices, seeds

__all__ = ("BY_CHANCE", "choose", "examples")

BY_CHANCE = (HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much)
"""Health checks that fail because of a busy machine, or of what a seed draws, and not because of the code."""

_SCALES = {"quick": 0.1, "usual": 1.0, "soak": 10.0}
_USUAL = 100
#: The time for shrinking a failing case, in seconds. Hypothesis' default of five minutes is longer than pytest-timeout,
#: which would end the process before the case is printed.
_SHRINKING_S = 30


def choose(*, quick: bool, soak: bool) -> None:
    """Choose the scale of this run, before test modules are imported.

    Cases must not fail because they are slow: the machine may be small and busy. pytest-timeout guards each test.
    Without a database no run depends on the failures of an earlier one.
    """
    for name, scale in _SCALES.items():
        settings.register_profile(
            name,
            deadline=None,
            database=None,
            derandomize=False,  # by itself it is True where CI is set, and then the seed chooses nothing
            max_examples=round(_USUAL * scale),
            suppress_health_check=BY_CHANCE,
        )
    engine.MAX_SHRINKING_SECONDS = _SHRINKING_S
    _draw_no_constants_of_modules()
    _record_ends()
    settings.load_profile("soak" if soak else "quick" if quick else "usual")


def examples(number: int) -> int:
    """Return the number of cases in this run for a number of cases in a normal run."""
    return max(3, round(number * _SCALES.get(settings.get_current_profile_name(), 1.0)))


def _draw_no_constants_of_modules() -> None:
    """Keep Hypothesis from drawing constants of the modules that are imported at that moment.

    Which ones are imported depends on the tests that ran before in the same process, so the same seed would generate
    other cases when a test runs alone.
    """
    if not hasattr(providers, "is_local_module_file"):
        raise AssertionError("Hypothesis finds constants of modules in another way: see tests/support/generated.py.")
    providers.is_local_module_file = lambda _path: False


def _record_ends() -> None:
    """Record the state of each test's random numbers at its end: it follows from all that was drawn."""
    run = engine.ConjectureRunner.run

    def recorded(self: engine.ConjectureRunner) -> None:
        try:
            run(self)
        finally:
            test = seeds.plain(os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" ")[0])
            choices.record(f"cases of {test}", self.random.getstate())

    engine.ConjectureRunner.run = recorded  # type: ignore[method-assign]
