"""Forged tokens: most are rejected because of their claims, and the others delay only each other."""

from __future__ import annotations

import asyncio
import base64
import json
from collections import Counter
from typing import Any

import pytest

from millpond.protocol import clock
from millpond_operator.controllers.coordinator_host.review_queue import ReviewQueue
from millpond_operator.controllers.coordinator_host.token_review import TokenReviewer
from millpond_operator.controllers.coordinator_host.unverified_tokens import AUDIENCE, claims_of
from millpond_operator.coordinator import Identity
from millpond_operator.kubernetes import Unavailable
from tests.simulation.running import simulate

_ISSUER = "https://kubernetes.default.svc"
_REVIEW_S = 0.005


def token(number: int | str = 0, signature: str = "good", **changes: Any) -> str:
    """Return a token as service accounts have them; a change to None removes a claim."""
    claims = {
        "aud": [AUDIENCE],
        "exp": int(clock.unix_time() + 3_600),
        "iss": _ISSUER,
        "jti": str(number),
        "sub": "system:serviceaccount:shop:pay",
    } | changes
    made = {name: value for name, value in claims.items() if value is not None}
    parts = ({"alg": "RS256"}, made)
    encoded = [base64.urlsafe_b64encode(json.dumps(each).encode()).decode().rstrip("=") for each in parts]
    return ".".join([*encoded, signature])


class Reviews:
    """A slow API server that recognizes valid signatures."""

    def __init__(self) -> None:
        self.asked = 0

    async def review_token(self, token: str, _audience: str) -> dict[str, Any]:
        self.asked += 1
        await asyncio.sleep(_REVIEW_S)
        if not token.endswith(".good"):
            return {"authenticated": False}
        claims = claims_of(token)
        assert claims is not None
        extra = {
            f"authentication.kubernetes.io/pod-{key}": [value] for key, value in (("name", "pay-0"), ("uid", "p1"))
        }
        return {"authenticated": True, "audiences": [AUDIENCE], "user": {"username": claims.sub, "extra": extra}}


class Door:
    """A token reviewer and its rejections."""

    def __init__(self, issuer: str = _ISSUER) -> None:
        self.reviews = Reviews()
        self.refused: Counter[str] = Counter()
        self.ask = TokenReviewer(
            self.reviews,
            lambda namespace, name: "pay" if (namespace, name) == ("shop", "pay") else None,
            lambda *_: True,
            issuer=issuer,
            on_rejection=lambda why: self.refused.update([why]),
        )


async def outcome(door: Door, of: str, peer: str) -> Identity | Unavailable | None:
    try:
        return await door.ask(of, peer)
    except Unavailable as error:
        return error


def test_flood_of_forged_tokens_does_not_delay_workers() -> None:
    """20,000 of them come from one address, perfect except for the signature."""

    async def scenario() -> None:
        door = Door()
        flood = [asyncio.create_task(outcome(door, token(number, "forged"), "10.0.0.66")) for number in range(20_000)]
        await asyncio.sleep(0)
        began = clock.monotonic()
        workers = [outcome(door, token(f"w{number}"), f"10.0.1.{number}") for number in range(100)]
        found = await asyncio.gather(*workers)
        assert {each.worker if isinstance(each, Identity) else each for each in found} == {"pay-0"}
        # A hundred reviews, 16 at once, with one of the flood's between two of them at most.
        assert clock.monotonic() - began < 0.5
        answers = await asyncio.gather(*flood)
        assert not any(isinstance(each, Identity) for each in answers)
        assert door.reviews.asked < 300
        assert door.refused["token_queue"] > 19_000

    simulate(scenario())


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        ("random", "form"),
        ("a.b.c", "form"),
        (token(signature=""), "form"),
        (token(aud=["https://kubernetes.default.svc"]), "audience"),
        (token(aud=None), "audience"),
        (token(exp=1), "expired"),
        (token(exp=None), "expired"),
        (token(sub="system:serviceaccount:shop:other"), "subject"),
        (token(sub="pay"), "subject"),
        (token(sub=None), "subject"),
        (token(jti="x" * 10_000), "form"),
    ],
)
def test_token_that_cannot_be_a_workers_is_not_reviewed(bad: str, why: str) -> None:
    """The API server does not get a request."""

    async def scenario() -> None:
        door = Door()
        assert await door.ask(bad, "10.0.0.66") is None
        assert door.reviews.asked == 0
        assert door.refused == {f"token_{why}": 1}

    simulate(scenario())


def test_issuer_that_changed_is_accepted() -> None:
    """Tokens of an unknown issuer share one place in the queue until one of them is accepted."""

    async def scenario() -> None:
        door = Door()
        flood = [
            asyncio.create_task(outcome(door, token(number, "forged", iss=str(number)), f"10.0.0.{number}"))
            for number in range(200)
        ]
        await asyncio.sleep(0)
        assert isinstance(await door.ask(token(), "10.0.1.1"), Identity)
        await asyncio.gather(*flood)
        assert isinstance(await door.ask(token(1, iss="https://new.example"), "10.0.1.2"), Identity)

    simulate(scenario())


def test_senders_have_turns_one_after_the_other() -> None:
    """The tokens of each sender are reviewed in their order."""

    async def scenario() -> None:
        queue = ReviewQueue(at_once=1, per_sender=3, most=5)
        order: list[str] = []

        async def wait(sender: str, name: str) -> None:
            turn = queue.enter(sender)
            assert turn is not None
            async with turn:
                order.append(name)
                await asyncio.sleep(1)

        tasks = [asyncio.create_task(wait(name[0], name)) for name in ("x0", "a1", "a2", "a3", "b1", "c1")]
        await asyncio.sleep(0)
        assert len(queue) == 5
        assert queue.enter("d") is None  # in total
        tasks[2].cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert order == ["x0", "a1", "b1", "c1", "a3"]
        assert len(queue) == 0

    simulate(scenario())


def test_turn_of_someone_who_left_is_passed_on() -> None:
    """This holds even when the turn was given at the same moment."""

    async def scenario() -> None:
        queue = ReviewQueue(at_once=1, per_sender=3, most=5)
        entered = asyncio.Event()

        async def wait(then: asyncio.Event | None = None) -> None:
            turn = queue.enter("a")
            assert turn is not None
            async with turn:
                entered.set()
                if then is not None:
                    await then.wait()

        over = asyncio.Event()
        first = asyncio.create_task(wait(over))
        await entered.wait()
        entered.clear()
        second = asyncio.create_task(wait())
        third = asyncio.create_task(wait())
        await asyncio.sleep(0)
        over.set()
        while not first.done():  # noqa: ASYNC110 - a turn of the loop each
            await asyncio.sleep(0)
        second.cancel()
        await asyncio.gather(second, return_exceptions=True)
        await third
        turn = queue.enter("b")
        assert turn is not None
        async with turn:
            assert len(queue) == 0

    simulate(scenario())
