"""The metadata that everything made for an application shares, and the names of what has another than its own."""

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
    """The labels that tell the application's pods from all others. They may never change."""
    return {
        "app.kubernetes.io/name": "millpond",
        "app.kubernetes.io/instance": app.name,
        "app.kubernetes.io/component": component,
    }


def labels(app: StreamApp, component: str = "worker") -> dict[str, str]:
    """The labels of everything made for the application."""
    return selector(app, component) | {"app.kubernetes.io/managed-by": "millpond-operator", APP: app.name}


def metadata(app: StreamApp, name: str | None = None, component: str = "worker", *, owned: bool = True) -> Object:
    """Metadata of something made for the application.

    Args:
        app: whose it is.
        name: its name; the application's own when None.
        component: what part of the application it is.
        owned: it goes when the application goes.
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
    """Whether the StreamApp controls an object, rather than another one of the same name or, say, its StatefulSet."""
    owners = object["metadata"].get("ownerReferences") or ()
    return any(owner.get("controller") and owner["uid"] == app.uid for owner in owners)


def made_for(app: StreamApp, object: Mapping[str, Any]) -> bool:
    """Whether an object is this StreamApp's, even if it is not to go with it, such as the clean-up."""
    return owned_by(app, object) or (object["metadata"].get("labels") or {}).get(APP_UID) == app.uid


def coordinator_config_name(app: StreamApp) -> str:
    """The ConfigMap with the coordinator's certificate authority."""
    return f"{app.name}-coordinator"


def revision_name(app: StreamApp, revision: str) -> str:
    """The ControllerRevision with the pod template of that revision."""
    return f"{app.name}-{revision}"


def cleanup_name(app: StreamApp) -> str:
    """The Job that deletes the application's internal topics and consumer group."""
    return f"{app.name}-cleanup"
