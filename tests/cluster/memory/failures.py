"""Errors in the form of the API server: a `Status` with Kubernetes' messages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.cluster.memory.kinds import Kind

__all__ = (
    "ApiFailure",
    "Cause",
    "already_exists",
    "bad_request",
    "conflict",
    "expired",
    "forbidden",
    "invalid",
    "not_found",
    "status_of",
)

Object = dict[str, Any]
Cause = tuple[str, str, str]
"""Reason, path of the field, and sentence."""


class ApiFailure(Exception):
    """The response is an error."""

    def __init__(self, code: int, reason: str, message: str, details: Object | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.details = details


def status_of(failure: ApiFailure) -> Object:
    """The `Status` that the client gets."""
    made: Object = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": failure.message,
        "reason": failure.reason,
        "details": failure.details,
        "code": failure.code,
    }
    return {key: value for key, value in made.items() if value not in (None, "")}


def _details(kind: Kind, name: str, **more: Any) -> Object:
    made = {"name": name, "group": kind.group, "kind": kind.plural, **more}
    return {key: value for key, value in made.items() if value}


def not_found(kind: Kind, name: str) -> ApiFailure:
    return ApiFailure(404, "NotFound", f'{kind.resource} "{name}" not found', _details(kind, name))


def already_exists(kind: Kind, name: str) -> ApiFailure:
    return ApiFailure(409, "AlreadyExists", f'{kind.resource} "{name}" already exists', _details(kind, name))


def conflict(kind: Kind, name: str, why: str = "") -> ApiFailure:
    told = why or "the object has been modified; please apply your changes to the latest version and try again"
    message = f'Operation cannot be fulfilled on {kind.resource} "{name}": {told}'
    return ApiFailure(409, "Conflict", message, _details(kind, name))


def bad_request(message: str) -> ApiFailure:
    return ApiFailure(400, "BadRequest", message)


def forbidden(kind: Kind, name: str, why: str) -> ApiFailure:
    return ApiFailure(403, "Forbidden", f'{kind.resource} "{name}" is forbidden: {why}', _details(kind, name))


def expired(message: str) -> ApiFailure:
    return ApiFailure(410, "Expired", message)


def invalid(kind: Kind, name: str, causes: Sequence[Cause]) -> ApiFailure:
    """Several fields are invalid."""
    sentences = [f"{field}: {message}" for _, field, message in causes]
    told = sentences[0] if len(sentences) == 1 else "[" + ", ".join(sentences) + "]"
    shown = f"{kind.kind}.{kind.group}" if kind.group else kind.kind
    details = {
        **_details(kind, name),
        "kind": kind.kind,
        "causes": [{"reason": reason, "message": message, "field": field} for reason, field, message in causes],
    }
    return ApiFailure(422, "Invalid", f'{shown} "{name}" is invalid: {told}', details)
