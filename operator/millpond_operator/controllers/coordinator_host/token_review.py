"""Authenticates workers by their tokens, which are bound to their pods: by TokenReviews, or by the API server's keys.

Heartbeats must not wait for the API server, since workers that get no answer count as dead. So the result of a review
holds until the token expires, and is renewed in the background.

Only tokens whose claims could be a worker's are reviewed, in turns between the sender addresses. So a sender of forged
tokens delays itself, but no workers.
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

__all__ = ("AUDIENCE", "FIRST_REVIEWS", "REVIEW_TIMEOUT", "Reviews", "TokenReviewer")

log = logging.getLogger(__name__)

#: How long a heartbeat with a new token waits for its review; the worker itself gives up after three seconds.
REVIEW_TIMEOUT = timedelta(seconds=2)
_POD_NAME = "authentication.kubernetes.io/pod-name"
_POD_UID = "authentication.kubernetes.io/pod-uid"
#: How often a review is renewed: the token of a deleted pod becomes invalid, while its successor has the same name.
_RENEW_INTERVAL_S = 300.0
#: How long a rejected token, and one whose review failed, are not reviewed again.
_REJECTED_S, _FAILED_S = 10.0, 3.0
#: How long a result holds at most, whatever the token's expiry. Kubelets replace a token of one hour after 48 minutes.
_MAX_HOLD_S = 3600.0
_TOO_LATE = "The API server did not review the token in time."
_TOO_MANY = "Too many tokens are waiting for a review by the API server."
#: The number of concurrent first reviews, by default, and of renewals.
FIRST_REVIEWS, _RENEWALS = 16, 8
#: How many tokens may wait for their first review, in total and per address: workers of one node may share one.
_MAX_WAITING, _MAX_WAITING_PER_ADDRESS = 2_048, 128
#: How many results are remembered. Pods limit the number of accepted tokens; nothing limits that of others.
_MAX_ACCEPTED, _MAX_REJECTED = 200_000, 20_000


class Reviews(Protocol):
    """Reviews tokens; `Client` implements it by TokenReviews, and `KeyVerifier` by the API server's keys."""

    async def review_token(self, token: str, audience: str) -> Object:
        """Return the status of a TokenReview.

        Raises:
            ApiError: the API server rejected the review or did not answer.
        """


@dataclass(frozen=True, slots=True)
class _Accepted:
    user: Mapping[str, Any]
    until: float
    """When the token expires."""
    renew_at: float
    """When the review is due for renewal."""


class TokenReviewer:
    """Reviews tokens at the API server and remembers the results.

    Args:
        reviews: reviews tokens, best a client with connections of its own.
        application_of: returns the application id of the StreamApp that a service account belongs to, by namespace and
            name; None when there is none.
        is_worker: returns whether a pod is one of that StreamApp's workers, by the account and the pod's name and uid.
        timeout: the timeout of one review.
        clock: returns monotonic seconds.
        issuer: the issuer of the cluster's tokens; "" when it is not known.
        on_rejection: called with one word about why a token was rejected.
        at_once: how many tokens are reviewed concurrently for the first time.
    """

    def __init__(  # noqa: PLR0913 - its collaborators; all but three have defaults
        self,
        reviews: Reviews,
        application_of: Callable[[str, str], str | None],
        is_worker: Callable[[str, str, str, str], bool],
        timeout: timedelta = REVIEW_TIMEOUT,
        clock: Callable[[], float] = clock.monotonic,
        issuer: str = "",
        on_rejection: Callable[[str], None] = lambda _why: None,
        at_once: int = FIRST_REVIEWS,
    ) -> None:
        self._reviews = reviews
        self._application_of = application_of
        self._is_worker = is_worker
        self._timeout_s = timeout.total_seconds()
        self._clock = clock
        self._issuers = {issuer} - {""}
        """The issuers of accepted tokens. The API server's issuer may change, so tokens of others are reviewed too."""
        self._on_rejection = on_rejection
        self._first_reviews = ReviewQueue(at_once, _MAX_WAITING_PER_ADDRESS, _MAX_WAITING)
        """Heartbeats wait for first reviews, but not for renewals."""
        self._renewals = asyncio.Semaphore(_RENEWALS)
        self._accepted: dict[bytes, _Accepted] = {}
        self._rejected: dict[bytes, tuple[float, str]] = {}
        """Until when a token is not reviewed again, and the error of a failed review; "" for a rejected token."""
        self._reviewing: dict[bytes, asyncio.Task[None]] = {}
        self._logged_at = -_RENEW_INTERVAL_S

    async def __call__(self, token: str | None, peer: str = "") -> Identity | None:
        """Return the identity of a worker by its token; None when the token is rejected.

        Raises:
            ApiError: the token could not be reviewed now.
        """
        if not token:
            return None
        digest = hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()
        accepted = self._find(digest)
        if accepted is None:
            if not self._backs_off(digest):
                claims = claims_of(token)
                if (why := objection(claims, self._application_of)) is not None:
                    self._on_rejection(f"token_{why}")
                    return None
                assert claims is not None
                await self._wait(self._review_first(digest, token, claims, peer))
                accepted = self._find(digest)
            if accepted is None:
                self._raise_failure(digest)
                return None
        elif self._clock() >= accepted.renew_at and not self._backs_off(digest):
            self._start_review(digest, token, self._renewals)
        return self._identity(accepted.user)

    def _find(self, digest: bytes) -> _Accepted | None:
        accepted = self._accepted.get(digest)
        if accepted is not None and self._clock() >= accepted.until:
            del self._accepted[digest]
            return None
        return accepted

    def _backs_off(self, digest: bytes) -> bool:
        """Return whether it is too early to review a token again."""
        rejected = self._rejected.get(digest)
        return rejected is not None and self._clock() < rejected[0]

    def _raise_failure(self, digest: bytes) -> None:
        _, failure = self._rejected.get(digest, (0.0, ""))
        if failure:
            raise Unavailable(failure)

    def _review_first(self, digest: bytes, token: str, claims: UnverifiedClaims, peer: str) -> asyncio.Task[None]:
        """Review a token for the first time.

        Raises:
            Unavailable: too many tokens are waiting.
        """
        if (reviewing := self._reviewing.get(digest)) is not None:
            return reviewing
        # All tokens of unknown issuers count as those of one sender, with one turn in each round.
        turn = self._first_reviews.enter(peer if claims.iss in self._issuers else "")
        if turn is None:
            self._on_rejection("token_queue")
            raise Unavailable(_TOO_MANY)
        return self._start_review(digest, token, turn)

    def _start_review(self, digest: bytes, token: str, turn: AbstractAsyncContextManager[None]) -> asyncio.Task[None]:
        reviewing = self._reviewing.get(digest)
        if reviewing is None:  # one review serves all heartbeats with the token
            reviewing = self._reviewing[digest] = asyncio.create_task(self._review(digest, token, turn))
            reviewing.add_done_callback(lambda _: self._reviewing.pop(digest, None))
        return reviewing

    async def _wait(self, reviewing: asyncio.Task[None]) -> None:
        """Wait for a review as long as a heartbeat can. The review continues after that, and its result is kept."""
        try:
            async with asyncio.timeout(self._timeout_s):
                await asyncio.shield(reviewing)
        except TimeoutError as error:
            raise Unavailable(_TOO_LATE) from error

    async def _review(self, digest: bytes, token: str, turn: AbstractAsyncContextManager[None]) -> None:
        try:
            async with turn, asyncio.timeout(self._timeout_s):
                status = await self._reviews.review_token(token, AUDIENCE)
        except (ApiError, TimeoutError) as error:
            # The API server is not available; tokens that it accepted before stay accepted.
            self._reject(digest, _FAILED_S * random.uniform(1, 2), str(error) or _TOO_LATE)
            return
        user = status.get("user")
        if not status.get("authenticated") or AUDIENCE not in status.get("audiences", ()) or user is None:
            self._accepted.pop(digest, None)
            self._on_rejection("token_review")
            self._reject(digest, _REJECTED_S)
            return
        now, claims = self._clock(), claims_of(token)
        if claims is not None:
            self._issuers.add(claims.iss)
        self._rejected.pop(digest, None)
        self._accepted.pop(digest, None)  # so that the oldest stay first
        _make_room(self._accepted, _MAX_ACCEPTED)
        # Spread the renewals: after a change of leaders all tokens are reviewed at the same moment.
        renew_at = now + _RENEW_INTERVAL_S * random.uniform(0.8, 1.0)
        self._accepted[digest] = _Accepted(user, now + _holds_for_s(claims), renew_at)

    def _reject(self, digest: bytes, for_s: float, failure: str = "") -> None:
        now = self._clock()
        self._rejected.pop(digest, None)
        _make_room(self._rejected, _MAX_REJECTED)
        self._rejected[digest] = (now + for_s, failure)
        if failure and now - self._logged_at >= _REJECTED_S:
            self._logged_at = now
            log.warning("token review: failed; workers that were authenticated before are not affected: %s", failure)

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


def _holds_for_s(claims: UnverifiedClaims | None) -> float:
    """Return for how many seconds the result for an accepted token holds."""
    if claims is None or not claims.exp:
        return _RENEW_INTERVAL_S
    # By the API server's clock the token is valid, whatever this one says.
    return min(max(claims.exp - clock.unix_time(), _REJECTED_S), _MAX_HOLD_S)


def _make_room(remembered: dict[bytes, Any], most: int) -> None:
    while len(remembered) >= most:
        del remembered[next(iter(remembered))]
