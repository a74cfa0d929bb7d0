"""Fixtures for tests of the operator, which run in a simulation, and with `--soak` in the real world as well."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.operating.world import World

_REAL = (pytest.mark.slow, pytest.mark.apiserver, pytest.mark.process)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test with the fixture `world` in each requested world."""
    if "world" in metafunc.fixturenames:
        soak = metafunc.config.getoption("--soak", default=False)
        worlds = ["simulated", pytest.param("real", marks=_REAL)] if soak else ["simulated"]
        metafunc.parametrize("world", worlds, indirect=True)


@pytest.fixture
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    """The world of a test. Each test gets a new simulation, so that its seed repeats the test."""
    if request.param == "real":
        yield request.getfixturevalue("real_world")
        return
    from tests.simulation.world import simulated_world

    with simulated_world(request.config.getoption("--seed", default=None)) as made:
        yield made


@pytest.fixture(scope="session")
def real_world(api: Any, background: Any, api_server: Any, crds: None) -> World:
    """Operator processes on a real API server."""
    from tests.operating.process import OperatorProcess

    return World(api, background, api_server, OperatorProcess)
