"""Applications of several workers for the tests of queries."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from millpond.queries import QueryFailed
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


def failure_of(query: Callable[[], object]) -> QueryFailed:
    """Return the failure of a query. If a worker answered too late, as on a busy machine, it is asked again."""
    while True:
        with pytest.raises(QueryFailed) as raised:
            query()
        if "did not answer" not in str(raised.value):
            return raised.value


@pytest.fixture
def chance() -> random.Random:
    """Return random numbers whose seed is shown when a test fails."""
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    return random.Random(seed)
