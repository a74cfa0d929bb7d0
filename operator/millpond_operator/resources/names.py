"""What things are called: labels, annotations, the finalizer; and what manifests need to know of their surroundings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

__all__ = (
    "API_VERSION",
    "APP",
    "APPLIED",
    "APP_UID",
    "BOOTSTRAP",
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
"""A manifest: JSON in Python's types."""

API_VERSION = "millpond.dev/v1alpha1"
FIELD_MANAGER = "millpond-operator"
FINALIZER = "millpond.dev/kafka-cleanup"

APP = "millpond.dev/app"
"""Label: the StreamApp that something was made for."""
APP_UID = "millpond.dev/app-uid"
"""Label of what a StreamApp does not own: which StreamApp of that name it was made for."""
BOOTSTRAP = "millpond.dev/bootstrap"
"""Label: the StateBootstrap that something was made for."""
REVISION = "millpond.dev/revision"
"""Label: the revision of the pod template."""

RECONCILE = "millpond.dev/reconcile"
RESTARTED_AT = "millpond.dev/restartedAt"
APPLIED = "millpond.dev/applied"
"""Annotation: the digest of what was applied."""
LEADER_EPOCH = "millpond.dev/leader-epoch"
"""Annotation: which leader applied it."""


@dataclass(frozen=True)
class Surroundings:
    """What manifests need to know besides the StreamApp.

    Attributes:
        coordinator_url_base: where workers reach the coordinator: ``https://host:7070``.
        ca_pem: certificates that signed the coordinator's.
        leader_epoch: of the operator that writes.
        operator_namespace: where the operator runs.
    """

    coordinator_url_base: str
    ca_pem: str
    leader_epoch: int
    operator_namespace: str
