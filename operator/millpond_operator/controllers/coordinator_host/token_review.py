"""Whose a token is, by the API server's word: a worker speaks for the pod that its token is bound to.

Heartbeats must not wait for the API server: workers that are not answered count as gone. So an answer holds until the
token itself ends, and is looked at again beside the heartbeats.

The API server is asked only about tokens that could be a worker's by what they say of themselves, in turns between the
addresses that they come from. So whoever sends forged tokens waits behind its own, and workers do not.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import random
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Protocol

from millpond.protocol import clock
from millpond_operator.coordinator import Identity
from millpond_operator.kubernetes import ApiError, Object
from millpond_operator.kubernetes.errors import Unavailable

from .review_queue import ReviewQueue
from .unverified_tokens import ACCOUNT_PREFIX, AUDIENCE, UnverifiedClaims, claims_of, objection

__all__ = ("AUDIENCE", "REVIEW_TIMEOUT", "Reviews", "TokenReviewer")

log = logging.getLogger(__name__)

#: A heartbeat with a token that is new waits for so long; its worker gives up after three seconds.
REVIEW_TIMEOUT = timedelta(seconds=2)
_POD_NAME = "authentication.kubernetes.io/pod-name"
_POD_UID = "authentication.kubernetes.io/pod-uid"
#: So often an answer is asked for anew: a pod that was deleted loses its token, but its successor's name was the same one.
_AGAIN_S = 300.0
#: For so long nobody is asked about a token that was refused, or that could not be reviewed.
_BAD_S, _FAILED_S = 10.0, 3.0
#: An answer never holds for longer, whatever the token says. Kubelets replace tokens of an hour after 48 minutes.
_LONGEST_S = 3600.0
_TOO_LATE = "The API server does not say in time whose a token is."
_TOO_MANY = "Too many tokens wait for the API server to say whose they are."
_AT_ONCE, _AT_ONCE_AGAIN = 16, 8
#: Tokens that wait for their first review: workers of one node may share an address.
_MOST_WAITING, _MOST_WAITING_OF_ONE = 2_048, 128
#: Tokens that are good are as many as pods make; others are as many as somebody likes.
_MOST_GOOD, _MOST_BAD = 200_000, 20_000


class Reviews(Protocol):
    """Asks the API server whose a token is; `Client` is one."""

    async def review_token(self, token: str, audience: str) -> Object:
        """The status of a TokenReview.

        Raises:
            ApiError: the API server cannot say.
        """


@dataclass(frozen=True, slots=True)
class _Good:
    user: Mapping[str, Any]
    until: float
    """The token itself ends."""
    again: float
    """Time to ask anew."""


class TokenReviewer:
    """Asks the API server, and remembers its answers.

    Args:
        reviews: to ask with; best a client of its own, whose connections nothing else waits for.
        application_of: the application id of the StreamApp that a service account belongs to, by namespace and name; None
            when there is none.
        is_worker: whether a pod is one of that StreamApp's workers, by its name and uid besides.
        timeout: for one review.
        clock: seconds that never go back.
        issuer: who signs this cluster's tokens, as far as is known.
        refused: is told in one word why a token was not reviewed, or that it was nobody's.
    """

    def __init__(
        self,
        reviews: Reviews,
        application_of: Callable[[str, str], str | None],
        is_worker: Callable[[str, str, str, str], bool],
        timeout: timedelta = REVIEW_TIMEOUT,
        clock: Callable[[], float] = clock.monotonic,
        issuer: str = "",
        refused: Callable[[str], None] = lambda _why: None,
    ) -> None:
        self._reviews = reviews
        self._application_of = application_of
        self._is_worker = is_worker
        self._timeout_s = timeout.total_seconds()
        self._clock = clock
        self._issuers = {issuer} - {""}
        """Those whose tokens were good. They change when somebody changes the API server's, so others are asked about too."""
        self._refused = refused
        self._first = ReviewQueue(_AT_ONCE, _MOST_WAITING_OF_ONE, _MOST_WAITING)
        """Workers wait for first reviews, and nobody for others."""
        self._again = asyncio.Semaphore(_AT_ONCE_AGAIN)
        self._good: dict[bytes, _Good] = {}
        self._bad: dict[bytes, tuple[float, str]] = {}
        """Until when nobody is asked, and why, if not because the token is nobody's."""
        self._asking: dict[bytes, asyncio.Task[None]] = {}
        self._told_at = -_AGAIN_S

    async def __call__(self, token: str | None, peer: str = "") -> Identity | None:
        """Whose token it is; None when it is nobody's.

        Raises:
            ApiError: nobody can tell now.
        """
        if not token:
            return None
        digest = hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()
        good = self._known(digest)
        if good is None:
            if not self._rests(digest):
                claims = claims_of(token)
                if (why := objection(claims, self._application_of)) is not None:
                    self._refused(f"token_{why}")
                    return None
                assert claims is not None
                await self._answered(self._ask_first(digest, token, claims, peer))
                good = self._known(digest)
            if good is None:
                self._tell_trouble(digest)
                return None
        elif self._clock() >= good.again and not self._rests(digest):
            self._ask(digest, token, self._again)
        return self._identity(good.user)

    def _known(self, digest: bytes) -> _Good | None:
        good = self._good.get(digest)
        if good is not None and self._clock() >= good.until:
            del self._good[digest]
            return None
        return good

    def _rests(self, digest: bytes) -> bool:
        """Whether it is too early to ask about a token again."""
        bad = self._bad.get(digest)
        return bad is not None and self._clock() < bad[0]

    def _tell_trouble(self, digest: bytes) -> None:
        _, trouble = self._bad.get(digest, (0.0, ""))
        if trouble:
            raise Unavailable(trouble)

    def _ask_first(self, digest: bytes, token: str, claims: UnverifiedClaims, peer: str) -> asyncio.Task[None]:
        """Ask about a token that was not asked about yet.

        Raises:
            Unavailable: too many wait.
        """
        if (asking := self._asking.get(digest)) is not None:
            return asking
        # All those of issuers that nobody was seen with are one sender's: they have one turn in each round.
        turn = self._first.enter(peer if claims.iss in self._issuers else "")
        if turn is None:
            self._refused("token_queue")
            raise Unavailable(_TOO_MANY)
        return self._ask(digest, token, turn)

    def _ask(self, digest: bytes, token: str, free: AbstractAsyncContextManager[None]) -> asyncio.Task[None]:
        asking = self._asking.get(digest)
        if asking is None:  # many heartbeats with one token are one question
            asking = self._asking[digest] = asyncio.create_task(self._review(digest, token, free))
            asking.add_done_callback(lambda _: self._asking.pop(digest, None))
        return asking

    async def _answered(self, asking: asyncio.Task[None]) -> None:
        """Wait for an answer, for as long as a heartbeat can; it is remembered even if nobody waits for it any more."""
        try:
            async with asyncio.timeout(self._timeout_s):
                await asyncio.shield(asking)
        except TimeoutError as error:
            raise Unavailable(_TOO_LATE) from error

    async def _review(self, digest: bytes, token: str, free: AbstractAsyncContextManager[None]) -> None:
        try:
            async with free, asyncio.timeout(self._timeout_s):
                status = await self._reviews.review_token(token, AUDIENCE)
        except (ApiError, TimeoutError) as error:
            # The API server is away: who was known a moment ago is still who it was.
            self._refuse(digest, _FAILED_S * random.uniform(1, 2), str(error) or _TOO_LATE)
            return
        user = status.get("user")
        if not status.get("authenticated") or AUDIENCE not in status.get("audiences", ()) or user is None:
            self._good.pop(digest, None)
            self._refused("token_review")
            self._refuse(digest, _BAD_S)
            return
        now, claims = self._clock(), claims_of(token)
        if claims is not None:
            self._issuers.add(claims.iss)
        self._bad.pop(digest, None)
        self._good.pop(digest, None)  # the oldest come first
        _make_room(self._good, _MOST_GOOD)
        # Not all at once: after a change of leaders all were asked about in the same moment.
        self._good[digest] = _Good(user, now + _lasts_s(claims), now + _AGAIN_S * random.uniform(0.8, 1.0))

    def _refuse(self, digest: bytes, for_s: float, trouble: str = "") -> None:
        now = self._clock()
        self._bad.pop(digest, None)
        _make_room(self._bad, _MOST_BAD)
        self._bad[digest] = (now + for_s, trouble)
        if trouble and now - self._told_at >= _BAD_S:
            self._told_at = now
            log.warning("A worker's token cannot be reviewed now: %s", trouble)

    def _identity(self, user: Mapping[str, Any]) -> Identity | None:
        namespace, _, account = str(user.get("username", "")).removeprefix(ACCOUNT_PREFIX).partition(":")
        extra: Mapping[str, list[str]] = user.get("extra") or {}
        pods, uids = (list(extra.get(name) or ()) for name in (_POD_NAME, _POD_UID))
        application = self._application_of(namespace, account)
        if application is None or not len(pods) == len(uids) == 1:
            return None
        if not self._is_worker(namespace, account, pods[0], uids[0]):
            return None
        return Identity(worker=pods[0], application=application, namespace=f"{namespace}/{account}")


def _lasts_s(claims: UnverifiedClaims | None) -> float:
    """For how long a token that is good stays so by itself."""
    if claims is None or not claims.exp:
        return _AGAIN_S  # nobody knows
    # It is good by the API server's clock, whatever this one says.
    return min(max(claims.exp - clock.unix_time(), _BAD_S), _LONGEST_S)


def _make_room(remembered: dict[bytes, Any], most: int) -> None:
    while len(remembered) >= most:
        del remembered[next(iter(remembered))]
