"""The claims of a token before its signature is verified: enough to reject most tokens that are not a worker's."""

from __future__ import annotations

import base64
from collections.abc import Callable

import msgspec

from millpond.protocol import clock

__all__ = ("ACCOUNT_PREFIX", "AUDIENCE", "UnverifiedClaims", "claims_of", "objection")

AUDIENCE = "millpond-coordinator"
ACCOUNT_PREFIX = "system:serviceaccount:"
#: Tokens of service accounts have about 1 KB.
_MAX_TOKEN = 8 * 1024
#: The API server's clock counts, so a token that expired recently by this clock is still reviewed.
_SKEW_S = 600.0


class UnverifiedClaims(msgspec.Struct, frozen=True):
    """The claims that matter."""

    iss: str = ""
    sub: str = ""
    aud: str | list[str] = ""
    exp: float = 0.0

    @property
    def account(self) -> tuple[str, str]:
        """The namespace and name of the service account; "" for another subject."""
        namespace, _, name = self.sub.removeprefix(ACCOUNT_PREFIX).partition(":")
        return (namespace, name) if self.sub.startswith(ACCOUNT_PREFIX) else ("", "")


_decode = msgspec.json.Decoder(UnverifiedClaims).decode


def claims_of(token: str) -> UnverifiedClaims | None:
    """Return the claims of a token; None when it is not a JSON Web Token."""
    if len(token) > _MAX_TOKEN:
        return None
    try:
        _, payload, signature = token.split(".")
        claims = _decode(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
    except (ValueError, msgspec.DecodeError):
        return None
    return claims if signature else None


def objection(claims: UnverifiedClaims | None, application_of: Callable[[str, str], str | None]) -> str | None:
    """Return in one word why a token cannot be a worker's, whatever its signature; None when it can.

    Args:
        claims: the token's claims.
        application_of: returns the application of a service account, by namespace and name; None when there is none.
    """
    if claims is None:
        return "form"
    if AUDIENCE not in ([claims.aud] if isinstance(claims.aud, str) else claims.aud):
        return "audience"
    if claims.exp + _SKEW_S < clock.unix_time():
        return "expired"
    if application_of(*claims.account) is None:
        return "subject"
    return None
