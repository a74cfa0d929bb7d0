"""Applications of several workers for the tests of queries."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.queries.application import Application


@pytest.fixture
def start() -> Iterator[Callable[..., Application]]:
    """Return a function that starts applications; they end with the test."""
    started: list[Application] = []

    def make(*arguments: Any, **named: Any) -> Application:
        started.append(Application(*arguments, **named))
        return started[-1]

    yield make
    for each in started:
        each.close()


@pytest.fixture
def chance() -> random.Random:
    """Return random numbers whose seed is shown when a test fails."""
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    return random.Random(seed)
