"""Names of labels, annotations and the finalizer; and the surroundings: data of manifests besides the StreamApp."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .spec import Requirements

__all__ = (
    "API_VERSION",
    "APP",
    "APPLIED",
    "APP_UID",
    "BOOTSTRAP",
    "DRAIN",
    "FIELD_MANAGER",
    "FINALIZER",
    "LEADER_EPOCH",
    "RECONCILE",
    "RESTARTED_AT",
    "REVISION",
    "Object",
    "Surroundings",
)

Object = dict[str, Any]
"""A manifest: JSON as Python types."""

API_VERSION = "millpond.dev/v1alpha1"
FIELD_MANAGER = "millpond-operator"
FINALIZER = "millpond.dev/kafka-cleanup"

APP = "millpond.dev/app"
"""Label: the StreamApp that an object belongs to."""
APP_UID = "millpond.dev/app-uid"
"""Label of objects that a StreamApp does not own: the uid of the StreamApp that they belong to."""
BOOTSTRAP = "millpond.dev/bootstrap"
"""Label: the StateBootstrap that an object belongs to."""
REVISION = "millpond.dev/revision"
"""Label: the revision of the pod template."""

RECONCILE = "millpond.dev/reconcile"
RESTARTED_AT = "millpond.dev/restartedAt"
DRAIN = "millpond.dev/drain"
"""Annotation of a StreamApp: the workers to drain, separated by commas."""
APPLIED = "millpond.dev/applied"
"""Annotation: the digest of the applied manifest."""
LEADER_EPOCH = "millpond.dev/leader-epoch"
"""Annotation: the epoch of the leader that applied it."""


@dataclass(frozen=True)
class Surroundings:
    """The data of manifests that is not in the StreamApp.

    Attributes:
        coordinator_url_base: the URL at which workers reach the coordinator: ``https://host:7070``.
        ca_pem: the certificate authorities of the coordinator.
        leader_epoch: of the operator that writes.
        operator_namespace: the operator's namespace.
        default_resources: the resources of workers whose StreamApp names none.
        snapshot_driver_role: the ClusterRole of snapshots with executors; `Role/NAME` for a Role in their namespace.
    """

    coordinator_url_base: str
    ca_pem: str
    leader_epoch: int
    operator_namespace: str
    default_resources: Requirements = Requirements()
    snapshot_driver_role: str = "millpond-snapshot-driver"
