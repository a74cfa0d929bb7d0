"""Fixtures of tests of the operator: they run in a simulation, and with `--soak` in the real world as well."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.operating.world import World

_REAL = (pytest.mark.slow, pytest.mark.apiserver, pytest.mark.process)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test that wants a world in each that is asked for."""
    if "world" in metafunc.fixturenames:
        soak = metafunc.config.getoption("--soak", default=False)
        worlds = ["simulated", pytest.param("real", marks=_REAL)] if soak else ["simulated"]
        metafunc.parametrize("world", worlds, indirect=True)


@pytest.fixture
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    """Where the operator is tested. A simulation is a new one for each test, so that its seed repeats the test."""
    if request.param == "real":
        yield request.getfixturevalue("real_world")
        return
    from tests.simulation.world import simulated_world

    with simulated_world(request.config.getoption("--seed", default=None)) as made:
        yield made


@pytest.fixture(scope="session")
def real_world(api: Any, background: Any, api_server: Any, crds: None) -> World:
    """Processes, and a real API server."""
    from tests.operating.process import OperatorProcess

    return World(api, background, api_server, OperatorProcess)
