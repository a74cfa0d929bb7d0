"""The two worlds of operator tests: processes on a real API server, or a simulation on virtual time."""

from __future__ import annotations

import uuid
from dataclasses import dataclass

from tests.cluster.api import Api
from tests.cluster.apiserver import SharedApiServer
from tests.cluster.background import Background
from tests.operating.operators import Operator

__all__ = ("World",)


@dataclass(frozen=True)
class World:
    """The surroundings of a stage."""

    api: Api
    """The API as a user with all rights sees it."""
    background: Background
    """Runs servers and simulations in the background."""
    server: SharedApiServer
    """The API server."""
    operator: type[Operator]
    """The class of operators in this world."""

    def namespace(self, stem: str) -> str:
        """Create a namespace."""
        name = f"{stem}-{uuid.uuid4().hex[:8]}"
        self.api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        return name
