"""Tokens that are verified by the API server's keys: what is rejected, how keys rotate, and a flood of unknown keys."""

from __future__ import annotations

import asyncio
import base64
import functools
import hmac
import json
from collections.abc import Callable
from typing import Any

import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding
from joserfc import jwt
from joserfc.jwk import ECKey, RSAKey

from millpond.protocol import clock
from millpond_operator.controllers.coordinator_host.key_verification import KEY_REVIEWS, KeyVerifier
from millpond_operator.controllers.coordinator_host.published_keys import PublishedKeys
from millpond_operator.controllers.coordinator_host.token_review import TokenReviewer
from millpond_operator.controllers.coordinator_host.unverified_tokens import AUDIENCE
from millpond_operator.coordinator import Identity
from millpond_operator.kubernetes import ApiError, Forbidden, Unavailable
from tests.simulation.running import simulate

ISSUER = "https://kubernetes.default.svc"
NEXT = ECKey.generate_key("P-256", {"kid": "k2"})


@functools.cache
def rsa_key(name: str = "published") -> RSAKey:
    """Return a key, which is made when a test first needs it: that takes a tenth of a second or more."""
    return RSAKey.generate_key(2048, {"kid": "k1"})


def claims(**changes: Any) -> dict[str, Any]:
    """Return the claims of a worker's token; a change to None removes a claim."""
    now = int(clock.unix_time())
    made = {
        "aud": [AUDIENCE],
        "exp": now + 3_600,
        "iat": now,
        "iss": ISSUER,
        "jti": "1",
        "kubernetes.io": {
            "namespace": "shop",
            "pod": {"name": "pay-0", "uid": "p1"},
            "serviceaccount": {"name": "pay", "uid": "a1"},
        },
        "nbf": now,
        "sub": "system:serviceaccount:shop:pay",
    } | changes
    return {name: value for name, value in made.items() if value is not None}


def signed(key: RSAKey | ECKey | None = None, algorithm: str = "RS256", **changes: Any) -> str:
    key = key or rsa_key()
    header = {"alg": algorithm, "kid": key.kid}
    return jwt.encode(header, claims(**changes), key, algorithms=[algorithm], default_type=None)


def encoded(value: bytes) -> str:
    return base64.urlsafe_b64encode(value).decode().rstrip("=")


def forged(header: dict[str, Any], sign: Callable[[bytes], bytes]) -> str:
    """Return a token with this header, signed by hand: the library does not make such tokens."""
    text = ".".join(encoded(json.dumps(each).encode()) for each in (header, claims()))
    return f"{text}.{encoded(sign(text.encode()))}"


def by_rsa(text: bytes) -> bytes:
    """Sign with the API server's own key."""
    return rsa_key().private_key.sign(text, padding.PKCS1v15(), hashes.SHA256())


def by_public_key(text: bytes) -> bytes:
    """Sign with the public key as a shared secret."""
    return hmac.digest(rsa_key().as_pem(private=False), text, "sha256")


def nothing(_text: bytes) -> bytes:
    return b""


#: Keys that the operator cannot use hide no others.
UNUSABLE: tuple[dict[str, Any], ...] = (
    {"kty": "RSA"},
    {"kty": "RSA", "kid": "r", "n": "", "e": ""},
    {"kty": "EC", "kid": "e", "crv": "P-999", "x": "AA", "y": "AA"},
    {"kty": "EC", "kid": "p", "crv": "P-256", "x": "AA", "y": "AA"},
)


class ApiServer:
    """Publishes keys, or does not answer."""

    def __init__(self, *keys: RSAKey | ECKey) -> None:
        self.keys: tuple[RSAKey | ECKey, ...] = keys or (rsa_key(),)
        self.asked = 0
        self.error: ApiError | None = None

    async def document(self, path: str) -> bytes:
        if self.error is not None:
            raise self.error
        await asyncio.sleep(0.005)
        if path == "/.well-known/openid-configuration":
            return json.dumps({"issuer": ISSUER, "jwks_uri": "https://elsewhere/"}).encode()
        assert path == "/openid/v1/jwks"
        self.asked += 1
        published = [each.as_dict(private=False) | {"use": "sig"} for each in self.keys]
        return json.dumps({"keys": [*published, {"kty": "oct", "kid": "o", "k": "eA"}, *UNUSABLE]}).encode()


class Door:
    """A token reviewer that verifies by keys."""

    def __init__(self, *keys: RSAKey | ECKey) -> None:
        self.api = ApiServer(*keys)
        self.uids = {("shop", "pay"): "a1"}
        self.verifier = KeyVerifier(PublishedKeys(self.api), lambda *key: self.uids.get(key))
        self.ask = TokenReviewer(
            self.verifier,
            lambda *of: "pay" if of == ("shop", "pay") else None,
            lambda *of: of == ("shop", "pay", "pay-0", "p1"),
            issuer=ISSUER,
            at_once=KEY_REVIEWS,
        )

    async def authenticated(self, token: str) -> bool:
        return bool((await self.verifier.review_token(token, AUDIENCE))["authenticated"])


def test_tokens_of_workers_are_accepted() -> None:
    """They are signed by any published key, with RSA or with an elliptic curve."""

    async def scenario() -> None:
        door = Door(rsa_key(), NEXT)
        by_hand = forged({"alg": "RS256", "kid": "k1"}, by_rsa)  # so those below fail for their own reason
        for token in (signed(), signed(NEXT, "ES256"), by_hand):
            assert await door.ask(token) == Identity("pay-0", "pay", "shop/pay")
        assert door.api.asked == 1

    simulate(scenario())


def own_key_in_the_header() -> str:
    own = RSAKey.generate_key(2048, {"kid": "mine"})
    header = {"alg": "RS256", "kid": "mine", "jwk": own.as_dict(private=False), "jku": "https://mine"}
    return forged(header, lambda text: own.private_key.sign(text, padding.PKCS1v15(), hashes.SHA256()))


def changed_after_signing() -> str:
    head, _, signature = signed().split(".")
    return f"{head}.{encoded(json.dumps(claims(jti='2')).encode())}.{signature}"


INSIDE: dict[str, Any] = {
    "namespace": "shop",
    "pod": {"name": "pay-0", "uid": "p1"},
    "serviceaccount": {"name": "pay", "uid": "a1"},
}


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda: forged({"alg": "none", "kid": "k1"}, nothing), id="no algorithm and no signature"),
        pytest.param(lambda: forged({"alg": "none", "kid": "k1"}, by_rsa), id="no algorithm"),
        pytest.param(lambda: forged({"alg": "None", "kid": "k1"}, nothing), id="no algorithm, in other letters"),
        pytest.param(lambda: forged({"kid": "k1"}, by_rsa), id="the algorithm is missing"),
        pytest.param(lambda: forged({"alg": "HS256", "kid": "k1"}, by_public_key), id="HS256 with the public key"),
        pytest.param(lambda: forged({"alg": "ES256", "kid": "k1"}, by_rsa), id="another algorithm than the key's"),
        pytest.param(lambda: forged({"alg": "RS256", "kid": "k1"}, by_public_key), id="no signature of the key"),
        pytest.param(lambda: signed(rsa_key("another")), id="another key with the same id"),
        pytest.param(own_key_in_the_header, id="its own key in the header"),
        pytest.param(changed_after_signing, id="changed after signing"),
        pytest.param(lambda: forged({"alg": "RS256", "kid": "k1", "crit": ["x"], "x": 1}, by_rsa),
                     id="an unknown critical header"),
        pytest.param(lambda: forged({"alg": "RS256"}, by_rsa), id="no key id"),
        pytest.param(lambda: forged({"alg": "RS256", "kid": ["k1"]}, by_rsa), id="a key id that is no text"),
        pytest.param(lambda: signed(rsa_key(), "PS256"), id="an algorithm that API servers do not use"),
        pytest.param(lambda: signed(aud=["https://kubernetes.default.svc"]), id="another audience"),
        pytest.param(lambda: signed(aud=None), id="no audience"),
        pytest.param(lambda: signed(iss="https://elsewhere"), id="another issuer"),
        pytest.param(lambda: signed(iss=None), id="no issuer"),
        pytest.param(lambda: signed(exp=int(clock.unix_time()) - 61), id="expired"),
        pytest.param(lambda: signed(exp=None), id="without an end"),
        pytest.param(lambda: signed(exp="never"), id="with an end that is no time"),
        pytest.param(lambda: signed(nbf=int(clock.unix_time()) + 120), id="not yet valid"),
        pytest.param(lambda: signed(sub="system:serviceaccount:shop:other"), id="another subject"),
        pytest.param(lambda: signed(sub="system:serviceaccount:other:pay"), id="a subject of another namespace"),
        pytest.param(lambda: signed(**{"kubernetes.io": None}), id="bound to nothing"),
        pytest.param(lambda: signed(**{"kubernetes.io": INSIDE | {"pod": None}}), id="bound to no pod"),
        pytest.param(lambda: signed(**{"kubernetes.io": INSIDE | {"serviceaccount": {"name": "pay", "uid": "a0"}}}),
                     id="a deleted service account with the same name"),
    ],
)  # fmt: skip
def test_token_that_the_api_server_did_not_sign_for_a_worker_is_rejected(make: Callable[[], str]) -> None:
    """It is rejected by its verification, whatever its unverified claims say."""

    async def scenario() -> None:
        door = Door()
        assert await door.authenticated(signed())
        assert not await door.authenticated(make())
        assert await door.ask(make()) is None

    simulate(scenario())


def test_token_of_another_pod_is_nobodys() -> None:
    """The pod in the token is not, or no longer, the worker of that name."""

    async def scenario() -> None:
        door = Door()
        for pod in ({"name": "pay-0", "uid": "p0"}, {"name": "pay-1", "uid": "p1"}):
            assert await door.ask(signed(**{"kubernetes.io": INSIDE | {"pod": pod}})) is None

    simulate(scenario())


def test_nothing_is_accepted_while_the_keys_are_unknown() -> None:
    """The API server does not answer at first; workers retry and are accepted when it does."""

    async def scenario() -> None:
        door, mine = Door(), signed()
        door.api.error = Unavailable("away")
        with pytest.raises(Unavailable, match="away"):
            await door.ask(mine)
        door.api.error = None
        await asyncio.sleep(7)
        assert isinstance(await door.ask(mine), Identity)

    simulate(scenario())


def test_missing_right_is_named_with_its_cure() -> None:
    """Clusters may have removed the binding that lets all service accounts read the keys."""

    async def scenario() -> None:
        door = Door()
        door.api.error = Forbidden("GET /openid/v1/jwks: forbidden.")
        with pytest.raises(Unavailable, match="Bind the ClusterRole system:service-account-issuer-discovery"):
            await door.ask(signed())

    simulate(scenario())


def test_new_key_is_found_at_once_and_a_removed_one_stops_to_count() -> None:
    """The API server's keys rotate."""

    async def scenario() -> None:
        door = Door()
        assert await door.authenticated(signed())
        await asyncio.sleep(5)
        door.api.keys = (NEXT,)
        began = clock.monotonic()
        assert await door.authenticated(signed(NEXT, "ES256"))
        assert clock.monotonic() - began < 0.1
        assert not await door.authenticated(signed())

    simulate(scenario())


def test_removed_key_stops_to_count_without_tokens_of_another() -> None:
    """The keys are read again every five minutes, beside verifications."""

    async def scenario() -> None:
        door = Door()
        assert await door.authenticated(signed())
        door.api.keys = (NEXT,)
        await asyncio.sleep(299)
        assert await door.authenticated(signed())
        await asyncio.sleep(2)
        assert await door.authenticated(signed())  # and requests the keys
        await asyncio.sleep(2)
        assert not await door.authenticated(signed())

    simulate(scenario())


def test_known_keys_stay_valid_while_the_api_server_is_unavailable() -> None:
    """New workers are accepted during an outage."""

    async def scenario() -> None:
        door = Door()
        assert await door.authenticated(signed())
        door.api.error = Unavailable("away")
        for number in range(3):
            await asyncio.sleep(400)
            assert await door.authenticated(signed(jti=str(number)))

    simulate(scenario())


def test_flood_of_unknown_keys_makes_one_request_a_second_and_does_not_delay_workers() -> None:
    """5,000 tokens with another key each come from ten addresses."""

    async def outcome(door: Door, token: str, peer: str) -> Identity | Unavailable | None:
        try:
            return await door.ask(token, peer)
        except Unavailable as error:
            return error

    async def scenario() -> None:
        door = Door()
        assert await door.authenticated(signed())
        rest = signed(rsa_key("another")).split(".", 1)[1]
        heads = [encoded(json.dumps({"alg": "RS256", "kid": f"f{number}"}).encode()) for number in range(5_000)]
        flood = [
            asyncio.create_task(outcome(door, f"{head}.{rest}", f"10.0.0.{number % 10}"))
            for number, head in enumerate(heads)
        ]
        await asyncio.sleep(0)
        began, asked = clock.monotonic(), door.api.asked
        workers = [outcome(door, signed(jti=str(number)), f"10.0.1.{number}") for number in range(100)]
        found = await asyncio.gather(*workers)
        assert all(isinstance(each, Identity) for each in found)
        assert clock.monotonic() - began < 1.5
        assert not any(isinstance(each, Identity) for each in await asyncio.gather(*flood))
        assert door.api.asked - asked <= clock.monotonic() - began + 1

    simulate(scenario())
