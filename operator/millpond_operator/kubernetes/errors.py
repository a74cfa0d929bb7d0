"""Errors of the API server: one class for each cause that callers handle differently."""

from __future__ import annotations

import msgspec

from millpond.errors import MillpondError

__all__ = (
    "AlreadyExists",
    "ApiError",
    "Conflict",
    "Expired",
    "Forbidden",
    "Invalid",
    "LeadershipLost",
    "NotFound",
    "TooManyRequests",
    "Unauthorized",
    "Unavailable",
    "error_of",
    "shortened",
)


class ApiError(MillpondError):
    """A request to the API server failed.

    Attributes:
        status: of the HTTP response; 0 when there was none.
        reason: as the API server names it, such as `Conflict` or `AlreadyExists`; "" when it named none.
        retry_after: seconds after which the API server accepts a retry; None when it named none.
        fields: the rejected fields, as the API server names them.
    """

    def __init__(
        self,
        message: str,
        status: int = 0,
        reason: str = "",
        retry_after: float | None = None,
        fields: tuple[str, ...] = (),
    ) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason
        self.retry_after = retry_after
        self.fields = fields


class NotFound(ApiError):
    """There is no such object, or no such kind of objects."""


class Conflict(ApiError):
    """Another client changed the object in the meantime, or a precondition failed: read it again."""


class AlreadyExists(Conflict):
    """An object with this name exists."""


class Invalid(ApiError):
    """The object breaks a rule of its kind; a retry would fail too."""


class Forbidden(ApiError):
    """The operator lacks a permission, or admission rejected the request."""


class Unauthorized(ApiError):
    """The API server does not accept the credentials."""


class Expired(ApiError):
    """The requested version is older than the API server remembers."""


class TooManyRequests(ApiError):
    """The API server sheds load, or an eviction has to wait for a disruption budget."""


class Unavailable(ApiError):
    """The API server did not answer, or could not; a write may or may not have happened."""


class LeadershipLost(MillpondError):
    """This process is not the leader, or cannot be sure that it is: it must not write."""


class _Cause(msgspec.Struct):
    field: str = ""


class _Details(msgspec.Struct, rename="camel"):
    causes: list[_Cause] | None = None
    retry_after_seconds: int = 0


class _Status(msgspec.Struct):
    message: str = ""
    reason: str = ""
    details: _Details | None = None


_BY_STATUS: dict[int, type[ApiError]] = {
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    408: Unavailable,
    409: Conflict,
    410: Expired,
    422: Invalid,
    429: TooManyRequests,
}
_MAX_CHARACTERS = 500
"""The longest foreign text in one message, in characters: an API server's may contain an object of 2 KB."""
_status = msgspec.json.Decoder(_Status)


def shortened(text: str, most: int = _MAX_CHARACTERS) -> str:
    """Return a text in one line, cut to a length in characters."""
    flat = " ".join(text.split())
    return flat if len(flat) <= most else f"{flat[: most - 1]}…"


def error_of(method: str, path: str, status: int, body: bytes, retry_after: str | None = None) -> ApiError:
    """Return the error for a response.

    Args:
        method: of the request.
        path: of the request.
        status: of the response, 400 or more.
        body: of the response; a `Status` object when the API server itself wrote it.
        retry_after: the header with this name.
    """
    try:
        answer = _status.decode(body)
    except msgspec.MsgspecError:
        answer = _Status(message=body[: 4 * _MAX_CHARACTERS].decode("utf-8", "replace").strip())
    details = answer.details or _Details()
    seconds = float(retry_after) if retry_after is not None and retry_after.isdigit() else details.retry_after_seconds
    kind = _BY_STATUS.get(status, Unavailable if status >= 500 else ApiError)
    if kind is Conflict and answer.reason == "AlreadyExists":
        kind = AlreadyExists
    return kind(
        f"The API server answered {method} {path} with {status}: {shortened(answer.message or answer.reason)}",
        status,
        answer.reason,
        seconds or None,
        tuple(cause.field for cause in details.causes or () if cause.field),
    )
