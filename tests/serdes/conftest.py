"""Fixtures for tests with a schema registry."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from millpond.serdes.registry import SchemaRegistry
from tests.serdes.registry_server import RegistryServer, serve


@pytest.fixture
def server() -> Iterator[RegistryServer]:
    """A registry of this test."""
    with serve() as running:
        yield running


@pytest.fixture
def registry(server: RegistryServer) -> Iterator[SchemaRegistry]:
    """Its client, without retries."""
    found = SchemaRegistry(server.url, {"max.retries": 0})
    yield found
    found.close()
