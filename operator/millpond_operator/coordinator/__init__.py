"""Membership and the assignment of tasks: the HTTP service that workers heartbeat to. It knows no Kubernetes.

Within one event loop:

    coordinator = Coordinator()
    await coordinator.add("delays", EngineOptions(), FileStore(path))
    await coordinator.start(port=7070)
"""

from .admission import RejectedMember, Starting
from .application import Application
from .auth import Authenticator, Identity, TokenFile
from .engine import Engine
from .limits import Limits
from .options import EngineOptions, KafkaClaim
from .server import CoordinatorServer
from .store import AssignmentStore, FileStore, StoreError

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
