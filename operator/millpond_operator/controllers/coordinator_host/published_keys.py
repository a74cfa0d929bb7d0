"""The keys with which the API server signs tokens of service accounts, as it publishes them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Protocol

import msgspec
from joserfc.errors import JoseError
from joserfc.jwk import ECKey, RSAKey

from millpond.protocol import clock
from millpond_operator.kubernetes.errors import ApiError, Forbidden, Unavailable

__all__ = ("Documents", "PublicKey", "PublishedKeys")

log = logging.getLogger(__name__)

PublicKey = RSAKey | ECKey

_DISCOVERY, _KEYS = "/.well-known/openid-configuration", "/openid/v1/jwks"
#: The shortest time between two requests, however many tokens name unknown keys.
_MIN_INTERVAL = timedelta(seconds=1)
#: How often the keys are read again, so that a removed key stops to count.
_REFRESH_INTERVAL = timedelta(minutes=5)
_MAX_KEYS = 64
_TYPES: Mapping[str, type[RSAKey | ECKey]] = {"RSA": RSAKey, "EC": ECKey}
_SIGNATURES = "sig"


class Documents(Protocol):
    """Reads documents of the API server that are no objects; `Client` implements it."""

    async def document(self, path: str) -> bytes:
        """Return the document at a path.

        Raises:
            ApiError: it cannot be read.
        """


class _Discovery(msgspec.Struct):
    issuer: str


class _KeySet(msgspec.Struct):
    keys: list[dict[str, object]]


_discovery = msgspec.json.Decoder(_Discovery).decode
_key_set = msgspec.json.Decoder(_KeySet).decode


class PublishedKeys:
    """Reads the keys when they are first needed, when a token names an unknown key, and every five minutes.

    Args:
        documents: reads from the API server.
        clock: returns monotonic seconds.

    Attributes:
        issuers: the issuers that the API server has named so far. Tokens of an earlier one are valid until they expire.
    """

    def __init__(self, documents: Documents, clock: Callable[[], float] = clock.monotonic) -> None:
        self.issuers: frozenset[str] = frozenset()
        self._documents = documents
        self._clock = clock
        self._keys: Mapping[str, PublicKey] = {}
        self._began = float("-inf")
        """When the keys were last requested."""
        self._read_at = float("-inf")
        """When the keys were last read with success."""
        self._reading: asyncio.Task[None] | None = None

    async def get(self, kid: str) -> PublicKey | None:
        """Return a key by its id; None when the API server does not publish it.

        An unknown key is looked up at the API server, at most once a second in total; the call waits for that.

        Raises:
            ApiError: the key is unknown, and the API server did not answer.
        """
        found = self._keys.get(kid)
        if found is None:
            await asyncio.shield(self._read())
            return self._keys.get(kid)
        now = self._clock()
        if (
            now - self._read_at >= _REFRESH_INTERVAL.total_seconds()
            and now - self._began >= _MIN_INTERVAL.total_seconds()
        ):
            self._read()  # known keys stay valid while the API server does not answer
        return found

    def _read(self) -> asyncio.Task[None]:
        if self._reading is None or self._reading.done():
            self._reading = asyncio.create_task(self._read_paced())
            self._reading.add_done_callback(_log_failure)
        return self._reading

    async def _read_paced(self) -> None:
        wait = self._began + _MIN_INTERVAL.total_seconds() - self._clock()
        if wait > 0:
            await asyncio.sleep(wait)
        self._began = self._clock()
        try:
            issuer = _discovery(await self._documents.document(_DISCOVERY)).issuer
            keys = _usable(_key_set(await self._documents.document(_KEYS)).keys)
        except Forbidden as error:
            raise Forbidden(
                f"{error} Bind the ClusterRole system:service-account-issuer-discovery to the operator's account, or "
                "set --token-verification=review."
            ) from error
        except msgspec.MsgspecError as error:
            raise Unavailable(
                f"The API server's keys for tokens of service accounts are unreadable: {error}."
            ) from error
        if not keys or not issuer:
            raise Unavailable(
                "The API server publishes no key that the operator can use: set --token-verification=review."
            )
        if keys.keys() != self._keys.keys():
            log.info("token keys: the API server publishes %d keys of issuer %s", len(keys), issuer)
        self._keys, self._read_at = keys, self._clock()
        self.issuers |= {issuer}


def _usable(published: list[dict[str, object]]) -> Mapping[str, PublicKey]:
    """Return the public keys for signatures by their ids; others are ignored."""
    keys: dict[str, PublicKey] = {}
    for each in published[:_MAX_KEYS]:
        kid, kind = each.get("kid"), _TYPES.get(str(each.get("kty")))
        if not isinstance(kid, str) or not kid or kind is None or each.get("use", _SIGNATURES) != _SIGNATURES:
            continue
        try:
            keys[kid] = kind.import_key(each)  # type: ignore[arg-type]
        except (JoseError, LookupError, ValueError, TypeError) as error:  # a KeyError: an unknown curve
            log.warning("token keys: ignored a key that the API server publishes: %s", error)
    return keys


def _log_failure(reading: asyncio.Task[None]) -> None:
    if not reading.cancelled() and isinstance(error := reading.exception(), ApiError):
        log.warning("token keys: cannot read the API server's keys; tokens of known keys stay valid: %s", error)
