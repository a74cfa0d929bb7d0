"""Failures of requests to a cluster, in one or two sentences: cause and cure."""

from __future__ import annotations

import json
import re
from typing import Any

from millpond.errors import MillpondError

from .printable import printable

__all__ = ("ClusterError", "Conflict", "Forbidden", "NotFound", "Unavailable", "failure")


class ClusterError(MillpondError):
    """The cluster cannot be reached, or rejects a request."""


class NotFound(ClusterError):
    """An object, or the kind of an object, does not exist."""


class Conflict(ClusterError):
    """An object was changed between reading and writing it."""


class Forbidden(ClusterError):
    """The user lacks a right.

    Attributes:
        right: the right, such as `get pods in namespace 'shop'`.
    """

    def __init__(self, message: str, right: str) -> None:
        super().__init__(message)
        self.right = right


class Unavailable(ClusterError):
    """What the API server forwards a request to does not answer."""


_FORBIDDEN = re.compile(
    r'User "(?P<user>[^"]*)" cannot (?P<verb>\S+) resource "(?P<resource>[^"]*)" in API group "(?P<group>[^"]*)"'
    r'(?: in the namespace "(?P<namespace>[^"]*)"| at the cluster scope)?'
)
_MAX_QUOTED = 300


def failure(status: int, body: bytes | str | None, what: str) -> ClusterError:
    """Return the failure for a response.

    Args:
        status: the HTTP status.
        body: the response's body: a Status of Kubernetes, or text.
        what: the request, as in "cannot WHAT": `read pods`.
    """
    message = _message(body)
    if status == 401:
        return ClusterError(
            "the cluster does not accept the login of the kubeconfig's user (401): it has expired or is of another "
            "cluster. Log in again as your cluster requires, and retry."
        )
    if status == 403:
        return _forbidden(message, what)
    if status == 404:
        return NotFound(message or f"cannot {what}: it does not exist (404).")
    if status == 409:
        return Conflict(f"cannot {what}: it was changed at the same time. Retry.")
    if status in {502, 503, 504}:
        return Unavailable(message or f"cannot {what}: status {status}.")
    return ClusterError(f"cannot {what}: the API server answered with status {status}: {message or 'no reason given'}")


def _forbidden(message: str, what: str) -> Forbidden:
    found = _FORBIDDEN.search(message)
    if found is None:
        return Forbidden(f"cannot {what}: forbidden ({message or 'no reason given'}).", what)
    if found["user"] == "system:anonymous":
        return Forbidden(
            "the cluster does not know who you are: the kubeconfig's user has no valid login. Log in again as your "
            "cluster requires, and retry.",
            "a login",
        )
    resource = f"{found['resource']}.{found['group']}" if found["group"] else found["resource"]
    place = f"in namespace '{found['namespace']}'" if found["namespace"] else "in all namespaces"
    right = f"{found['verb']} {resource} {place}"
    return Forbidden(f"cannot {what}: user '{found['user']}' lacks the right to {right}. Ask for it.", right)


def _message(body: bytes | str | None) -> str:
    """Return the message of a Status of Kubernetes, or the text of another body."""
    text = str(printable(body.decode(errors="replace") if isinstance(body, bytes) else body or ""))
    try:
        content: Any = printable(json.loads(text))
    except ValueError:
        return " ".join(text.split())[:_MAX_QUOTED]
    for key in ("message", "error"):
        if isinstance(content, dict) and isinstance(content.get(key), str):
            return str(content[key])
    return " ".join(text.split())[:_MAX_QUOTED]
