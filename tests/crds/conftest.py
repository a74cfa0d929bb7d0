from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.installing import manifests
from tests.crds.rules import changed

REPOSITORY = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def installed(request):
    """The definitions, in every test that uses the API server."""
    if "api" in request.fixturenames:
        request.getfixturevalue("crds")


@pytest.fixture(scope="session")
def definitions() -> dict[str, dict[str, Any]]:
    """The custom resource definitions by kind."""
    found = manifests(REPOSITORY / "crds")
    return {each["spec"]["names"]["kind"]: each for each in found}


@pytest.fixture
def stream_app(namespace) -> Callable[..., dict[str, Any]]:
    """A valid StreamApp with changes: values by path, `None` removes."""

    def make(changes: Mapping[str, Any] | None = None, **more: Any) -> dict[str, Any]:
        built = {
            "apiVersion": "millpond.dev/v1alpha1",
            "kind": "StreamApp",
            "metadata": {"name": "delays", "namespace": namespace},
            "spec": {
                "image": "registry.example.com/delays:3",
                "topology": "app:delays",
                "kafka": {"bootstrapServers": "kafka:9092"},
            },
        }
        return changed(built, dict(changes or {}) | more)

    return make


@pytest.fixture
def state_bootstrap(namespace) -> Callable[..., dict[str, Any]]:
    """A valid StateBootstrap with changes."""

    def make(changes: Mapping[str, Any] | None = None) -> dict[str, Any]:
        built = {
            "apiVersion": "millpond.dev/v1alpha1",
            "kind": "StateBootstrap",
            "metadata": {"name": "nightly", "namespace": namespace},
            "spec": {"streamApp": "delays", "location": "s3://states/delays", "spark": {"image": "delays-spark:3"}},
        }
        return changed(built, changes or {})

    return make


@pytest.fixture
def stream_assignment(namespace) -> Callable[..., dict[str, Any]]:
    """A valid StreamAssignment with changes."""

    def make(changes: Mapping[str, Any] | None = None) -> dict[str, Any]:
        built = {
            "apiVersion": "millpond.dev/v1alpha1",
            "kind": "StreamAssignment",
            "metadata": {"name": "delays", "namespace": namespace},
            "spec": {"application": "delays", "term": 3, "number": 7},
        }
        return changed(built, changes or {})

    return make
