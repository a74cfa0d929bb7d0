"""The two worlds that operators are tested in: processes on a real API server, or a simulation on virtual time."""

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
    """What a stage is set up in."""

    api: Api
    """A user's, with all rights."""
    background: Background
    """For what serves and simulates."""
    server: SharedApiServer
    """The API server."""
    operator: type[Operator]
    """How operators are run."""

    def namespace(self, stem: str) -> str:
        """A new namespace."""
        name = f"{stem}-{uuid.uuid4().hex[:8]}"
        self.api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        return name
