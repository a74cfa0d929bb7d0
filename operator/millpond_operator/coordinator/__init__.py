"""The coordinator: membership of workers and assignment of tasks, as an HTTP service. It does not depend on Kubernetes.

`engine` decides, without I/O; `server` receives heartbeats and serves answers. Within one event loop:

    coordinator = CoordinatorServer()
    await coordinator.add("delays", EngineOptions(), FileStore(path))
    await coordinator.start(port=7070)
"""

from millpond_operator.coordinator.engine.admission import RejectedMember, Starting
from millpond_operator.coordinator.engine.engine import Engine
from millpond_operator.coordinator.engine.options import EngineOptions, KafkaClaim
from millpond_operator.coordinator.server.application import Application
from millpond_operator.coordinator.server.auth import Authenticator, Identity, TokenFile
from millpond_operator.coordinator.server.first_protocol import AdmissionProtocol
from millpond_operator.coordinator.server.limits import Limits
from millpond_operator.coordinator.server.server import CoordinatorServer
from millpond_operator.coordinator.server.store import AssignmentStore, FileStore, StoreError

__all__ = (
    "AdmissionProtocol",
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
