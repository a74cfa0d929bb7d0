"""The coordinator: membership of workers and assignment of tasks, as an HTTP service. It does not depend on Kubernetes.

`engine` decides, without I/O; `server` receives heartbeats and serves answers. Within one event loop:

    coordinator = CoordinatorServer()
    await coordinator.add("delays", EngineOptions(), FileStore(path))
    await coordinator.start(port=7070)
"""

from .engine.admission import RejectedMember, Starting
from .engine.engine import Engine
from .engine.options import EngineOptions, KafkaClaim
from .server.application import Application
from .server.auth import Authenticator, Identity, TokenFile
from .server.limits import Limits
from .server.server import CoordinatorServer
from .server.store import AssignmentStore, FileStore, StoreError

__all__ = (
    "Application",
    "AssignmentStore",
    "Authenticator",
    "CoordinatorServer",
    "Engine",
    "EngineOptions",
    "FileStore",
    "Identity",
    "KafkaClaim",
    "Limits",
    "RejectedMember",
    "Starting",
    "StoreError",
    "TokenFile",
)
