"""One of the two API servers at a time, with a client and a namespace."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.api import Api
from tests.cluster.apiserver import SharedApiServer
from tests.cluster.background import Background
from tests.cluster.installing import install_crds
from tests.cluster.memory import MemoryApiServer, SharedMemoryApiServer
from tests.fidelity.comparing import namespace_on
from tests.support.kafka import eventually

_CRDS = Path(__file__).parents[2] / "crds"
Server = SharedApiServer | SharedMemoryApiServer


@pytest.fixture(scope="module", params=["memory", pytest.param("real", marks=pytest.mark.apiserver)])
def server(request: pytest.FixtureRequest, background: Background) -> Iterator[Server]:
    """One of the two servers."""
    if request.param == "real":
        yield request.getfixturevalue("api_server")
        return
    with MemoryApiServer(background) as memory:
        yield memory


@pytest.fixture(scope="module")
def client(server: Server, background: Background) -> Iterator[Api]:
    """A client with all rights."""
    with Api(background, server.admin) as api:
        install_crds(api, _CRDS)
        yield api


@pytest.fixture
def space(client: Api) -> Iterator[str]:
    """A namespace of one's own."""
    with namespace_on(client) as name:
        eventually(lambda: client.find("ServiceAccount", name, "default"), "the default service account is there")
        yield name
