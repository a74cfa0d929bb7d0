"""A StateBootstrap as it was read, and the one that a StreamApp's own schedule asks for."""

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

__all__ = ("InvalidStateBootstrap", "StateBootstrap", "asked_for", "bootstrap_name", "parse_bootstrap")

_LONGEST_STEM = 43
"""Of 52: the rest is the moment."""


class InvalidStateBootstrap(MillpondError):
    """The object does not follow the definition that this operator knows."""


@dataclass(frozen=True, kw_only=True)
class StateBootstrap:
    """One snapshot to make.

    Attributes:
        generation: grows with every change of the specification.
        created: when it was created, as the API server writes it.
        spec: with all defaults filled in.
        status: as it was last written, untyped.
        deleting: somebody deleted it.
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
    """From what the API server gave.

    Raises:
        InvalidStateBootstrap: it does not follow the definition that this operator knows.
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
    """The name of the StateBootstrap that is due at a moment: the same for every operator that comes to it."""
    stem = app.name
    if len(stem) > _LONGEST_STEM:
        digest = hashlib.sha256(stem.encode()).hexdigest()[:8]
        stem = f"{stem[: _LONGEST_STEM - 9].rstrip('-')}-{digest}"
    return f"{stem}-{int(due.timestamp()) // 60:08d}"


def asked_for(app: StreamApp, due: datetime) -> Object:
    """The StateBootstrap that `spec.bootstrap` of a StreamApp asks for; it goes when the StreamApp goes.

    Args:
        app: with `spec.bootstrap.spark`.
        due: when.
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
