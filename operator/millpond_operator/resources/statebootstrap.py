"""A StateBootstrap, and the one that a StreamApp's schedule requests."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec

from millpond.errors import MillpondError

from .metadata import metadata
from .names import API_VERSION, Object
from .spec import StateBootstrapSpec, read_spec
from .streamapp import StreamApp

__all__ = ("InvalidStateBootstrap", "StateBootstrap", "bootstrap_name", "parse_bootstrap", "scheduled_bootstrap")

_MAX_STEM = 43
"""Characters of the name before the time; the name has at most 52."""


class InvalidStateBootstrap(MillpondError):
    """The object does not match this operator's CRD."""


@dataclass(frozen=True, kw_only=True)
class StateBootstrap:
    """One snapshot to make.

    Attributes:
        generation: grows with every change of the specification.
        created: creation time, as the API server writes it.
        spec: with all defaults.
        status: the last written status, untyped.
        deleting: whether it was deleted.
    """

    namespace: str
    name: str
    uid: str
    generation: int
    resource_version: str
    created: str
    spec: StateBootstrapSpec
    status: Mapping[str, Any]
    deleting: bool


def parse_bootstrap(object: Mapping[str, Any]) -> StateBootstrap:
    """Parse an object from the API server.

    Raises:
        InvalidStateBootstrap: it does not match this operator's CRD.
    """
    meta = object["metadata"]
    spec = read_spec(object, "StateBootstrap", StateBootstrapSpec, InvalidStateBootstrap)
    return StateBootstrap(
        namespace=meta["namespace"],
        name=meta["name"],
        uid=meta.get("uid", ""),
        generation=meta.get("generation", 0),
        resource_version=meta.get("resourceVersion", ""),
        created=meta.get("creationTimestamp") or "",
        spec=spec,
        status=object.get("status") or {},
        deleting="deletionTimestamp" in meta,
    )


def bootstrap_name(app: StreamApp, due: datetime) -> str:
    """Return the name of the StateBootstrap that is due at a time: the same for every leader that creates it."""
    stem = app.name
    if len(stem) > _MAX_STEM:
        digest = hashlib.sha256(stem.encode()).hexdigest()[:8]
        stem = f"{stem[: _MAX_STEM - 9].rstrip('-')}-{digest}"
    return f"{stem}-{int(due.timestamp()) // 60:08d}"


def scheduled_bootstrap(app: StreamApp, due: datetime) -> Object:
    """Return the StateBootstrap that `spec.bootstrap` of a StreamApp requests; it is deleted with the StreamApp.

    Args:
        app: with `spec.bootstrap.spark`.
        due: when it is due.
    """
    bootstrap = app.spec.bootstrap
    assert bootstrap is not None
    assert bootstrap.spark is not None
    given: dict[str, Any] = {
        "streamApp": app.name,
        "location": bootstrap.location,
        "credentialsSecret": bootstrap.credentials_secret,
        "catalog": bootstrap.catalog,
        "keep": bootstrap.keep,
        "deadline": str(bootstrap.deadline),
        "backoffLimit": bootstrap.backoff_limit,
        "ttlSecondsAfterFinished": bootstrap.ttl_seconds_after_finished,
        "spark": msgspec.to_builtins(bootstrap.spark),
    }
    spec = {name: value for name, value in given.items() if value is not None}
    return {
        "apiVersion": API_VERSION,
        "kind": "StateBootstrap",
        "metadata": metadata(app, bootstrap_name(app, due), "snapshot"),
        "spec": spec,
    }
