"""Fixtures for tests with a real API server. A process has one; each test has its own namespace."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support import evidence

if TYPE_CHECKING:
    from tests.cluster.api import Api
    from tests.cluster.apiserver import SharedApiServer
    from tests.cluster.background import Background

__all__ = ("api", "api_server", "background", "crds", "namespace")

_CRDS = Path(__file__).parents[2] / "crds"


@pytest.fixture(scope="session")
def api_server() -> Iterator[SharedApiServer]:
    """The API server that all tests of a process share; without its programs, tests that need it are skipped.

    All these tests run in one process, unless its programs have to be made first (`tests/support/scheduling.py`).
    """
    from tests.cluster import apiserver, binaries

    try:
        server = apiserver.ApiServer()
    except binaries.BinariesMissing as missing:
        pytest.skip(str(missing))
    with server as started:
        for program in binaries.PROGRAMS:
            evidence.follow(started.directory / f"{program}.log", "api_server")
        yield started


@pytest.fixture(scope="session")
def background() -> Iterator[Background]:
    """An event loop beside the tests."""
    from tests.cluster.background import Background

    with Background() as loop:
        yield loop


@pytest.fixture(scope="session")
def api(api_server: SharedApiServer, background: Background) -> Iterator[Api]:
    """A client with all rights."""
    from tests.cluster.api import Api

    with Api(background, api_server.admin) as client:
        yield client


@pytest.fixture(scope="session")
def crds(api: Api) -> None:
    """The project's custom resource definitions, installed."""
    from tests.cluster.installing import install_crds

    install_crds(api, _CRDS)


@pytest.fixture
def namespace(request: pytest.FixtureRequest, api: Api) -> Iterator[str]:
    """A namespace of its own; it is deleted after the test, with everything in it."""
    stem = re.sub(r"[^a-z0-9]+", "-", request.node.name.lower()).strip("-")[:40].rstrip("-")
    name = f"{stem}-{uuid.uuid4().hex[:8]}"
    api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    yield name
    api.delete("Namespace", None, name)
