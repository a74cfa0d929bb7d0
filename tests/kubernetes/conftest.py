"""A proxy with network faults, for tests that watch a real API server."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cluster.apiserver import SharedApiServer
from tests.cluster.background import Background
from tests.cluster.faultproxy import FaultProxy


@pytest.fixture
def proxy(background: Background, api_server: SharedApiServer) -> Iterator[FaultProxy]:
    """Between the watches and the API server."""
    with FaultProxy(background, api_server.admin, api_server.authority) as serving:
        yield serving
