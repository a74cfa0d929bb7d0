"""Whose a token is, by the API server's word: a worker speaks for the pod that its token is bound to."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import time
from collections.abc import Callable, Mapping
from typing import Any

from millpond_operator.coordinator import Identity
from millpond_operator.kubernetes import ApiError, Client

__all__ = ("AUDIENCE", "TokenReviewer")

log = logging.getLogger(__name__)

AUDIENCE = "millpond-coordinator"
_POD_NAME = "authentication.kubernetes.io/pod-name"
_PREFIX = "system:serviceaccount:"
#: How long a review counts. Tokens are renewed by kubelets every 48 minutes, and a pod that was deleted is not heard for
#: the sake of its successor's name, so this only bounds the API requests of many workers.
_GOOD_S, _BAD_S = 300.0, 10.0
_MOST_REMEMBERED = 20_000


class TokenReviewer:
    """Asks the API server, and remembers its answers for a while.

    Args:
        client: to ask with.
        application_of: the application id of the StreamApp that a service account belongs to, by namespace and name; None
            when there is none.
    """

    def __init__(self, client: Client, application_of: Callable[[str, str], str | None]) -> None:
        self._client = client
        self._application_of = application_of
        self._known: dict[bytes, tuple[float, Mapping[str, Any] | None]] = {}
        self._asking: dict[bytes, asyncio.Task[Mapping[str, Any] | None]] = {}

    async def __call__(self, token: str | None) -> Identity | None:
        """Whose token it is; None when it is nobody's, or nobody can tell now."""
        if not token:
            return None
        digest = hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()
        known = self._known.get(digest)
        user = known[1] if known is not None and time.monotonic() < known[0] else await self._ask(digest, token)
        return None if user is None else self._identity(user)

    async def _ask(self, digest: bytes, token: str) -> Mapping[str, Any] | None:
        asking = self._asking.get(digest)
        if asking is None:  # many heartbeats with one token are one question
            asking = self._asking[digest] = asyncio.create_task(self._reviewed(digest, token))
            asking.add_done_callback(lambda _: self._asking.pop(digest, None))
        return await asyncio.shield(asking)

    async def _reviewed(self, digest: bytes, token: str) -> Mapping[str, Any] | None:
        before = self._known.get(digest)
        try:
            status = await self._client.review_token(token, AUDIENCE)
        except ApiError as error:
            log.warning("A worker's token cannot be reviewed: %s", error)
            # The API server is away: who was known a moment ago is still who it was.
            return before[1] if before is not None else None
        good = bool(status.get("authenticated")) and AUDIENCE in status.get("audiences", ())
        user = status.get("user") if good else None
        if len(self._known) >= _MOST_REMEMBERED:
            self._forget()
        self._known[digest] = (time.monotonic() + (_GOOD_S if good else _BAD_S), user)
        return user

    def _identity(self, user: Mapping[str, Any]) -> Identity | None:
        namespace, _, account = str(user.get("username", "")).removeprefix(_PREFIX).partition(":")
        pods: list[str] = list((user.get("extra") or {}).get(_POD_NAME) or ())
        application = self._application_of(namespace, account)
        if application is None or len(pods) != 1:
            return None
        return Identity(worker=pods[0], application=application, namespace=namespace)

    def _forget(self) -> None:
        now = time.monotonic()
        self._known = {digest: each for digest, each in self._known.items() if each[0] > now}
        if len(self._known) >= _MOST_REMEMBERED:
            self._known.clear()
