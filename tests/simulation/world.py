"""The simulated world: one loop with an API server in memory, simulated nodes and workers, and operators."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from millpond.protocol import clock
from tests.cluster.api import Api
from tests.cluster.installing import install_crds
from tests.cluster.memory import MemoryApiServer
from tests.operating.world import World
from tests.simulation.background import VirtualBackground
from tests.simulation.operators import SimulatedOperator

__all__ = ("simulated_world",)

_CRDS = Path(__file__).parents[2] / "crds"


@contextlib.contextmanager
def simulated_world(seed: int | None = None) -> Iterator[World]:
    """Provide a simulated world with the project's custom resource definitions.

    Args:
        seed: of all that is random in it; without one, a new one.
    """
    with (
        VirtualBackground(seed) as background,
        MemoryApiServer(background, controllers=True, now=clock.now) as server,
        Api(background, server.admin) as api,
    ):
        install_crds(api, _CRDS)
        yield World(api, background, server, SimulatedOperator)
