"""The requests of a client, in Kubernetes' terms."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ("Call", "Match", "anything", "is_write", "on")

_WRITES = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
#: Writes that change nothing, and those whose number depends on the clock alone.
_NO_WRITES = frozenset({"tokenreviews", "subjectaccessreviews", "selfsubjectaccessreviews", "leases"})


@dataclass
class Call:
    """One request.

    Only `status` changes: it is set with the response.
    """

    verb: str
    """get, list, watch, create, update, patch, delete."""
    resource: str
    """Plural name; empty for what is no resource, like `/version`."""
    namespace: str = ""
    name: str = ""
    subresource: str = ""
    query: Mapping[str, str] = field(default_factory=dict)
    body: Any = None
    """What came with it, read as JSON; None if that is none."""
    agent: str = ""
    """`User-Agent`."""
    at: float = 0.0
    """Monotonic time it came at, in seconds."""
    status: int = 0
    """Of the answer that the API server gave; 0 while there is none, or if it was never asked."""

    def __str__(self) -> str:
        parts = (self.namespace, self.name, self.subresource)
        return f"{self.verb} {'/'.join((self.resource, *(part for part in parts if part)))} -> {self.status or '-'}"


Match = Callable[[Call], bool]
"""Whether a fault is for a request."""


def anything(_call: Call) -> bool:
    """All requests."""
    return True


def is_write(call: Call) -> bool:
    """Whether a request changes a wanted object: not a lease, and no review by POST."""
    return call.verb in _WRITES.values() and call.resource not in _NO_WRITES and call.subresource != "token"


def on(
    resource: str | None = None,
    verb: str | None = None,
    *,
    namespace: str | None = None,
    name: str | None = None,
    subresource: str | None = None,
) -> Match:
    """Match requests of this kind; omitted criteria match everything. `verb` may be `write`."""
    wanted = {"resource": resource, "namespace": namespace, "name": name, "subresource": subresource}

    def match(call: Call) -> bool:
        if verb is not None and not (is_write(call) if verb == "write" else call.verb == verb):
            return False
        return all(value is None or getattr(call, key) == value for key, value in wanted.items())

    return match


def read(method: str, path: str, query: Mapping[str, str], body: bytes, agent: str, at: float) -> Call:
    """Parse an HTTP request."""
    parts = path.strip("/").split("/")
    if parts[0] == "api" and len(parts) > 2:
        parts = parts[2:]
    elif parts[0] == "apis" and len(parts) > 3:
        parts = parts[3:]
    else:
        return Call(_WRITES.get(method, "get"), "", query=query, agent=agent, at=at)
    namespace = ""
    if parts[0] == "namespaces" and len(parts) > 2:
        namespace, parts = parts[1], parts[2:]
    resource, name, subresource = (*parts[:3], "", "")[:3]
    verb = _WRITES.get(method) or ("get" if name else "list")
    if query.get("watch") in {"1", "true"}:
        verb = "watch"
    try:
        told = json.loads(body) if body else None
    except ValueError:
        told = None
    if not name and isinstance(told, dict):
        name = str(told.get("metadata", {}).get("name", ""))
    return Call(verb, resource, namespace, name, subresource, query, told, agent, at)
