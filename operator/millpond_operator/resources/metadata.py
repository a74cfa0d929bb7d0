"""Metadata that all objects of an application share, and the names of objects that differ from its name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .names import API_VERSION, APP, APP_UID, Object
from .streamapp import StreamApp

__all__ = (
    "cleanup_name",
    "coordinator_config_name",
    "labels",
    "made_for",
    "metadata",
    "owned_by",
    "revision_name",
    "selector",
)


def selector(app: StreamApp, component: str = "worker") -> dict[str, str]:
    """Return the labels that identify the application's pods. They can never change."""
    return {
        "app.kubernetes.io/name": "millpond",
        "app.kubernetes.io/instance": app.name,
        "app.kubernetes.io/component": component,
    }


def labels(app: StreamApp, component: str = "worker") -> dict[str, str]:
    """Return the labels of all of the application's objects."""
    return selector(app, component) | {"app.kubernetes.io/managed-by": "millpond-operator", APP: app.name}


def metadata(app: StreamApp, name: str | None = None, component: str = "worker", *, owned: bool = True) -> Object:
    """Return the metadata of one of the application's objects.

    Args:
        app: the application.
        name: its name; None for the application's own.
        component: the part of the application that it belongs to.
        owned: whether it is deleted with the StreamApp.
    """
    made: Object = {"name": name or app.name, "namespace": app.namespace, "labels": labels(app, component)}
    if not owned:
        made["labels"] |= {APP_UID: app.uid}
    else:
        made["ownerReferences"] = [
            {
                "apiVersion": API_VERSION,
                "kind": "StreamApp",
                "name": app.name,
                "uid": app.uid,
                "controller": True,
                "blockOwnerDeletion": True,
            }
        ]
    return made


def owned_by(app: StreamApp, object: Mapping[str, Any]) -> bool:
    """Return whether this very StreamApp is the controller of an object."""
    owners = object["metadata"].get("ownerReferences") or ()
    return any(owner.get("controller") and owner["uid"] == app.uid for owner in owners)


def made_for(app: StreamApp, object: Mapping[str, Any]) -> bool:
    """Return whether an object belongs to this StreamApp, even if it is not deleted with it, like the cleanup Job."""
    return owned_by(app, object) or (object["metadata"].get("labels") or {}).get(APP_UID) == app.uid


def coordinator_config_name(app: StreamApp) -> str:
    """Return the name of the ConfigMap with the coordinator's certificate authority."""
    return f"{app.name}-coordinator"


def revision_name(app: StreamApp, revision: str) -> str:
    """Return the name of the ControllerRevision with the pod template of a revision."""
    return f"{app.name}-{revision}"


def cleanup_name(app: StreamApp) -> str:
    """Return the name of the Job that deletes the application's internal topics and consumer group."""
    return f"{app.name}-cleanup"
