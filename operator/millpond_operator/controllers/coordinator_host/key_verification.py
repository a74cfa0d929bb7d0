"""Verifies tokens of workers by the API server's published keys, without a right in the cluster.

The result has the form of a TokenReview's status, so that everything else about tokens is the same in both modes.
"""

from __future__ import annotations

import binascii
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

import msgspec
from joserfc import jws, jwt
from joserfc.errors import JoseError

from millpond.protocol import clock
from millpond_operator.kubernetes import Object
from millpond_operator.kubernetes.errors import Unavailable

from .published_keys import PublishedKeys
from .unverified_tokens import ACCOUNT_PREFIX

__all__ = ("ALGORITHMS", "KEY_REVIEWS", "KeyVerifier")

#: What API servers sign with. No symmetric algorithm may be here: a public key is no secret.
ALGORITHMS = ("RS256", "ES256", "ES384", "ES512")
#: How much the clocks of the API server and of the operator may differ, as in the API server itself.
_LEEWAY = timedelta(minutes=1)
KEY_REVIEWS = 256
"""How many tokens are verified concurrently: those that name unknown keys wait for the API server, up to a second."""
_POD = "authentication.kubernetes.io/pod-"
_INVALID: Object = {"authenticated": False}


class _Named(msgspec.Struct, frozen=True):
    name: str
    uid: str


class _Bound(msgspec.Struct, frozen=True):
    """What a token is bound to."""

    namespace: str
    serviceaccount: _Named
    pod: _Named


class KeyVerifier:
    """Verifies tokens; it takes the place of the API server's TokenReviews.

    Whether the pod still exists is not decided here, but for every heartbeat, see `CoordinatorHost`.

    Args:
        keys: the API server's keys.
        account_uid: returns the uid of a service account by namespace and name; None when it is not known.
        issuers: issuers that are valid besides those that the API server names.
        now: returns Unix time in seconds.
    """

    def __init__(
        self,
        keys: PublishedKeys,
        account_uid: Callable[[str, str], str | None],
        issuers: frozenset[str] = frozenset(),
        now: Callable[[], float] = clock.unix_time,
    ) -> None:
        self._keys = keys
        self._account_uid = account_uid
        self._issuers = issuers
        self._now = now

    async def review_token(self, token: str, audience: str) -> Object:
        """Return the result in the form of a TokenReview's status.

        Raises:
            ApiError: the token cannot be verified now, since the API server's keys cannot be read, or since the
                token's service account is not known yet.
        """
        kid = _key_id(token)
        key = None if kid is None else await self._keys.get(kid)
        if key is None:
            return _INVALID
        try:
            claims = jwt.decode(token, key, algorithms=ALGORITHMS).claims
            self._registry(audience).validate(claims)
            bound = msgspec.convert(claims.get("kubernetes.io"), _Bound)
        except (JoseError, ValueError, TypeError, msgspec.ValidationError):
            return _INVALID
        account = bound.serviceaccount
        if claims["sub"] != f"{ACCOUNT_PREFIX}{bound.namespace}:{account.name}":
            return _INVALID
        uid = self._account_uid(bound.namespace, account.name)
        if uid is None:
            raise Unavailable(f"The service account {bound.namespace}/{account.name} of a token is not known yet.")
        if uid != account.uid:  # it was deleted, and another one has its name
            return _INVALID
        user = {"username": claims["sub"], "uid": uid, "extra": _extra(bound.pod)}
        return {"authenticated": True, "audiences": [audience], "user": user}

    def _registry(self, audience: str) -> jwt.JWTClaimsRegistry:
        """Return the rules for claims: all of these have to be there."""
        return jwt.JWTClaimsRegistry(
            now=int(self._now()),
            leeway=int(_LEEWAY.total_seconds()),
            iss={"essential": True, "values": sorted(self._issuers | self._keys.issuers)},
            aud={"essential": True, "value": audience},
            sub={"essential": True},
            exp={"essential": True},
            nbf={"essential": True},
        )


def _key_id(token: str) -> str | None:
    """Return the id of the key that a token names; None when it cannot be a token of the API server."""
    try:
        header = jws.extract_compact(token.encode("ascii")).headers()
    except (JoseError, ValueError, TypeError, binascii.Error):
        return None
    kid = header.get("kid")
    return kid if header.get("alg") in ALGORITHMS and isinstance(kid, str) and kid else None


def _extra(pod: _Named) -> Mapping[str, Any]:
    return {f"{_POD}name": [pod.name], f"{_POD}uid": [pod.uid]}
