"""What an API server answers when it does not do what it was asked, one class per cause that a caller treats in its own way."""

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
        status: of the HTTP answer; 0 when there was none.
        reason: the API server's word for it, such as `Conflict` or `AlreadyExists`; "" when it gave none.
        retry_after: after how many seconds the API server wants to be asked again; None when it did not say.
        fields: the fields that were refused, as the API server names them.
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
    """Somebody else changed the object in the meantime, or a precondition does not hold: read it again."""


class AlreadyExists(Conflict):
    """An object of that name exists."""


class Invalid(ApiError):
    """The object breaks a rule of its kind; the same again will be refused again."""


class Forbidden(ApiError):
    """The operator has no right to do that, or admission refused it."""


class Unauthorized(ApiError):
    """The API server does not know who asks."""


class Expired(ApiError):
    """The version that was asked for is older than what the API server remembers."""


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
_MOST_CHARACTERS = 500
"""Of what somebody else wrote, in one message of the operator's: an API server's sentence may have an object of 2 KB in it."""
_status = msgspec.json.Decoder(_Status)


def shortened(text: str, most: int = _MOST_CHARACTERS) -> str:
    """Return a text in one line of at most so many characters."""
    flat = " ".join(text.split())
    return flat if len(flat) <= most else f"{flat[: most - 1]}…"


def error_of(method: str, path: str, status: int, body: bytes, retry_after: str | None = None) -> ApiError:
    """The error that an answer stands for.

    Args:
        method: of the request.
        path: of the request.
        status: of the answer, 400 or more.
        body: of the answer; a `Status` object when it is the API server's own.
        retry_after: the header of that name.
    """
    try:
        said = _status.decode(body)
    except msgspec.MsgspecError:
        said = _Status(message=body[: 4 * _MOST_CHARACTERS].decode("utf-8", "replace").strip())
    details = said.details or _Details()
    seconds = float(retry_after) if retry_after is not None and retry_after.isdigit() else details.retry_after_seconds
    kind = _BY_STATUS.get(status, Unavailable if status >= 500 else ApiError)
    if kind is Conflict and said.reason == "AlreadyExists":
        kind = AlreadyExists
    return kind(
        f"The API server answered {method} {path} with {status}: {shortened(said.message or said.reason)}",
        status,
        said.reason,
        seconds or None,
        tuple(cause.field for cause in details.causes or () if cause.field),
    )
