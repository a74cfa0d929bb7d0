"""Token reviews: heartbeats do not wait for a slow or unavailable API server."""

from __future__ import annotations

import asyncio
import base64
import json
from datetime import timedelta
from typing import Any

import pytest

from millpond.protocol import clock
from millpond_operator.controllers.coordinator_host.token_review import TokenReviewer
from millpond_operator.controllers.coordinator_host.unverified_tokens import AUDIENCE
from millpond_operator.coordinator import Identity
from millpond_operator.kubernetes import Unavailable
from tests.kubernetes.support import until
from tests.simulation.running import simulate

WORKER = Identity("pay-0", "pay", "shop/pay")
GOOD: dict[str, Any] = {
    "authenticated": True,
    "audiences": [AUDIENCE],
    "user": {
        "username": "system:serviceaccount:shop:pay",
        "extra": {
            "authentication.kubernetes.io/pod-name": ["pay-0"],
            "authentication.kubernetes.io/pod-uid": ["p1"],
        },
    },
}


def token(lasts_s: float = 3_600, name: str = "") -> str:
    said = {
        "aud": [AUDIENCE],
        "exp": int(clock.unix_time() + lasts_s),
        "sub": GOOD["user"]["username"],
        "jti": name,
        "iss": "api",
    }
    claims = json.dumps(said).encode()
    return f"e30.{base64.urlsafe_b64encode(claims).decode().rstrip('=')}.signed"


class Reviews:
    """An API server that answers, fails, or hangs."""

    def __init__(self) -> None:
        self.asked = 0
        self.under_way = self.most_under_way = 0
        self.status: dict[str, Any] = GOOD
        self.fails = False
        self.answers = asyncio.Event()
        self.answers.set()

    async def review_token(self, _token: str, _audience: str) -> dict[str, Any]:
        self.asked += 1
        self.under_way += 1
        self.most_under_way = max(self.under_way, self.most_under_way)
        try:
            await self.answers.wait()
            if self.fails:
                raise Unavailable("away")
            return self.status
        finally:
            self.under_way -= 1


class Clocked:
    """A token reviewer and its clock."""

    def __init__(self, timeout_s: float = 0.05) -> None:
        self.now = 1_000.0
        self.reviews = Reviews()
        self.reviewer = TokenReviewer(
            self.reviews,
            lambda *_: "pay",
            self.is_worker,
            timedelta(seconds=timeout_s),
            clock=lambda: self.now,
            issuer="api",
        )

    @staticmethod
    def is_worker(*of: str) -> bool:
        return of == ("shop", "pay", "pay-0", "p1")

    async def at_once(self, of: str) -> Identity | None:
        """Return the answer to a heartbeat that does not wait."""
        answer = self.reviewer(of)
        try:
            answer.__await__().send(None)
        except StopIteration as known:
            return known.value  # type: ignore[no-any-return]
        raise AssertionError("it waits")


@pytest.mark.parametrize("how", ["fails", "hangs"])
def test_known_worker_is_answered_while_reviews_fail(how: str) -> None:
    """It is accepted until its token expires; reviews are renewed in the background, and not for every heartbeat."""

    async def scenario() -> None:
        clocked, mine = Clocked(), token()
        assert await clocked.reviewer(mine) == WORKER
        clocked.reviews.fails = how == "fails"
        if how == "hangs":
            clocked.reviews.answers.clear()
        clocked.now += 301
        for _ in range(20):
            assert await clocked.at_once(mine) == WORKER
            await asyncio.sleep(0.01)
        assert clocked.reviews.asked == 2
        for _ in range(10):
            clocked.now += 300
            assert await clocked.at_once(mine) == WORKER
            await asyncio.sleep(0)
        assert clocked.reviews.asked > 2
        clocked.now += 400
        with pytest.raises(Unavailable):
            await clocked.reviewer(mine)

    simulate(scenario())


def test_revoked_token_is_refused_after_the_next_review() -> None:
    """The pod of the token was deleted."""

    async def scenario() -> None:
        clocked, mine = Clocked(), token()
        assert await clocked.reviewer(mine) == WORKER
        clocked.reviews.status = {"authenticated": False}
        assert await clocked.at_once(mine) == WORKER
        clocked.now += 301
        assert await clocked.at_once(mine) == WORKER
        await until(lambda: clocked.reviews.asked == 2 and not clocked.reviews.under_way, "a review")
        assert await clocked.at_once(mine) is None
        clocked.now += 11
        assert await clocked.reviewer(mine) is None
        assert clocked.reviews.asked == 3

    simulate(scenario())


def test_token_expires_when_it_says() -> None:
    """A token with a very late expiry is not accepted without end either."""

    async def scenario() -> None:
        clocked = Clocked()
        short, long = token(60), token(10**9)
        assert await clocked.reviewer(short) == await clocked.reviewer(long) == WORKER
        clocked.reviews.fails = True
        clocked.now += 61
        with pytest.raises(Unavailable):
            await clocked.reviewer(short)
        assert await clocked.at_once(long) == WORKER
        clocked.now += 3_600
        with pytest.raises(Unavailable):
            await clocked.reviewer(long)

    simulate(scenario())


def test_failed_review_is_not_repeated_at_once() -> None:
    """Heartbeats with that token fail at once meanwhile."""

    async def scenario() -> None:
        clocked, mine = Clocked(), token()
        clocked.reviews.fails = True
        for _ in range(10):
            with pytest.raises(Unavailable, match="away"):
                await clocked.reviewer(mine)
        assert clocked.reviews.asked == 1
        clocked.reviews.fails = False
        clocked.now += 7
        assert await clocked.reviewer(mine) == WORKER

    simulate(scenario())


def test_concurrent_reviews_are_limited_and_their_results_kept() -> None:
    """A thousand workers reach a new leader while the API server is slow."""

    async def scenario() -> None:
        clocked = Clocked(timeout_s=5)
        clocked.reviews.answers.clear()
        tokens = [token(name=str(number)) for number in range(1_000)]
        heartbeats = [asyncio.create_task(clocked.reviewer(each, f"10.0.{n}.1")) for n, each in enumerate(tokens)]
        await until(lambda: clocked.reviews.under_way == 16, "reviews")
        for each in heartbeats:
            each.cancel()
        clocked.reviews.answers.set()
        await until(lambda: clocked.reviews.asked == 1_000 and not clocked.reviews.under_way, "all reviews")
        assert clocked.reviews.most_under_way == 16
        assert {await clocked.at_once(each) for each in tokens} == {WORKER}
        assert clocked.reviews.asked == 1_000

    simulate(scenario())


@pytest.mark.parametrize("key", ["pod-name", "pod-uid"])
def test_token_that_is_bound_to_no_pod_is_nobodys(key: str) -> None:
    """The right to request tokens of the service account does not make a worker."""

    async def scenario() -> None:
        clocked = Clocked()
        user = GOOD["user"] | {
            "extra": {each: value for each, value in GOOD["user"]["extra"].items() if key not in each}
        }
        clocked.reviews.status = GOOD | {"user": user}
        assert await clocked.reviewer(token()) is None

    simulate(scenario())
