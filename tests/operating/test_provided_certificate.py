"""A certificate that others write, without an API server: missing, unusable, renewed, of another authority."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import ssl
from collections.abc import Callable, Coroutine
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from millpond_operator.controllers.coordinator_host.tls.certificates import Certificates, issued
from millpond_operator.controllers.coordinator_host.tls.provided import ProvidedCertificate, handshake_error
from millpond_operator.kubernetes import Forbidden, NotFound, Object, Unavailable
from tests.simulation.running import simulate

HOST = "millpond-coordinator.millpond-system.svc"
Scenario = Callable[[], Coroutine[Any, Any, None]]


def made(hosts: tuple[str, ...] = (HOST,), authority: Certificates | None = None, days_ago: int = 0) -> Certificates:
    """Return a certificate, made now or some days ago. OpenSSL has no clock but the machine's."""
    return issued(hosts, datetime.now(UTC) - timedelta(days=days_ago), authority)


def data_of(certificates: Certificates, *without: str) -> dict[str, str]:
    """Return the data of a Secret as cert-manager writes it."""
    return {name: text for name, text in certificates.as_data().items() if name not in {"ca.key", *without}}


class Secrets:
    """The Secret in the API server."""

    def __init__(self) -> None:
        self.data: dict[str, str] | None = None
        self.error: Exception | None = None

    async def get(self, *_: object) -> Object:
        if self.error is not None:
            raise self.error
        if self.data is None:
            raise NotFound("none")
        return {"data": self.data}


class Scene:
    """The leader's certificate and the time."""

    def __init__(self) -> None:
        self.secrets = Secrets()
        self.now = datetime.now(UTC)
        self.lacking: list[str] = []
        self.told: list[str] = []
        self.trust = ProvidedCertificate(
            self.secrets,  # type: ignore[arg-type]
            "millpond-system",
            "tls",
            HOST,
            spread=timedelta(minutes=3),
            lacking=lambda _: self.lacking,
            on_change=self.told.append,
            clock=lambda: self.now,
        )

    def serves(self, trusted: str) -> bool:
        """Return whether a worker that trusts these authorities accepts the coordinator."""
        client, to_server, to_client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), ssl.MemoryBIO(), ssl.MemoryBIO()
        client.load_verify_locations(cadata=trusted)
        worker = client.wrap_bio(to_client, to_server, server_hostname=HOST)
        server = self.trust.context.wrap_bio(to_server, to_client, server_side=True)
        try:
            for end in (worker, server) * 3:
                with contextlib.suppress(ssl.SSLWantReadError):
                    end.do_handshake()
        except ssl.SSLCertVerificationError:
            return False
        return True


@pytest.fixture(scope="module")
def ours() -> Certificates:
    return made()


def test_leader_waits_for_the_secret_and_says_so_once(ours: Certificates, caplog: pytest.LogCaptureFixture) -> None:
    """cert-manager may be slower than the operator."""

    async def scenario() -> None:
        scene = Scene()
        begins = asyncio.create_task(scene.trust.begin())
        await asyncio.sleep(60)
        assert not begins.done()
        assert scene.trust.trouble is not None
        assert "Secret millpond-system/tls for the coordinator's certificate does not exist" in scene.trust.trouble
        assert len([each for each in caplog.records if each.levelname == "ERROR"]) == 1
        scene.secrets.data = data_of(ours)
        await begins
        assert scene.trust.trouble is None
        assert scene.trust.expires == ours.expires
        assert scene.serves(scene.trust.bundle)
        assert not scene.told

    simulate(scenario())


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda ours: data_of(ours, "ca.crt"), "has no ca.crt"),
        (lambda ours: data_of(ours, "tls.key", "tls.crt"), "has no tls.crt and no tls.key"),
        (lambda _: data_of(made(("elsewhere.svc",))), "Hostname mismatch"),
        (lambda _: data_of(made(days_ago=200)), "certificate has expired"),
        (lambda ours: data_of(replace(ours, key=made().key)), "KEY_VALUES_MISMATCH"),
        (lambda ours: data_of(replace(ours, ca=made().ca)), "unable to get local issuer certificate"),
        (lambda ours: data_of(ours) | {"tls.crt": base64.b64encode(b"nothing").decode()}, "PEM"),
        (lambda ours: dict.fromkeys(data_of(ours), base64.b64encode(b"\x30\x82\xff").decode()), "is no text"),
    ],
)
def test_unusable_secret_is_one_sentence_and_the_certificate_in_use_stays(
    make: Callable[[Certificates], dict[str, str]], says: str, ours: Certificates
) -> None:
    """The sentence has the reason for which workers would reject it."""

    async def scenario() -> None:
        scene = Scene()
        scene.secrets.data = make(ours)
        await scene.trust.look()
        assert scene.trust.trouble is not None
        assert says in scene.trust.trouble
        assert "\n" not in scene.trust.trouble
        assert not scene.trust.bundle
        scene.secrets.data = data_of(ours)
        await scene.trust.look()
        bundle = scene.trust.bundle
        scene.secrets.data = make(ours)
        await scene.trust.look()
        assert scene.trust.trouble
        assert scene.trust.bundle == bundle
        assert scene.serves(bundle)

    simulate(scenario())


@pytest.mark.parametrize(
    ("error", "says"), [(Forbidden("no right"), "allow the operator's account"), (Unavailable("away"), "away")]
)
def test_secret_that_cannot_be_read_is_tried_again(error: Exception, says: str, ours: Certificates) -> None:
    """Nobody has to restart the operator."""

    async def scenario() -> None:
        scene = Scene()
        scene.secrets.error = error
        begins = asyncio.create_task(scene.trust.begin())
        await asyncio.sleep(5)
        assert says in (scene.trust.trouble or "")
        scene.secrets.error, scene.secrets.data = None, data_of(ours)
        await begins

    simulate(scenario())


def test_renewed_certificate_is_served_at_once(ours: Certificates) -> None:
    """Workers trust its authority already."""

    async def scenario() -> None:
        scene = Scene()
        scene.secrets.data = data_of(ours)
        await scene.trust.begin()
        bundle = scene.trust.bundle
        renewed = issued((HOST,), datetime.now(UTC) + timedelta(minutes=1), ours)
        scene.secrets.data = data_of(renewed)
        await scene.trust.look()
        assert scene.trust.expires == renewed.expires
        assert scene.trust.bundle == bundle
        assert scene.serves(bundle)
        assert not scene.told

    simulate(scenario())


def test_other_authority_waits_until_all_workers_trust_it(ours: Certificates) -> None:
    """At no time does a worker with a current ConfigMap meet a coordinator that it does not trust."""

    async def scenario() -> None:
        scene = Scene()
        scene.secrets.data = data_of(ours)
        await scene.trust.begin()
        other = made()
        scene.secrets.data = data_of(other)
        scene.lacking = ["shop/pay-coordinator"]
        for _ in range(20):
            await scene.trust.look()
            scene.now += timedelta(minutes=1)
            assert scene.serves(ours.ca)
        assert scene.told == [ours.ca + other.ca]
        scene.lacking = []
        await scene.trust.look()
        scene.now += timedelta(minutes=2)
        await scene.trust.look()
        assert scene.serves(ours.ca)
        scene.now += timedelta(minutes=1)
        await scene.trust.look()
        assert scene.serves(other.ca)
        assert not scene.serves(ours.ca)
        assert scene.told[1:] == [other.ca]

    simulate(scenario())


def test_other_authority_is_used_at_once_when_the_current_certificate_expires(ours: Certificates) -> None:
    """An expired certificate helps nobody."""

    async def scenario() -> None:
        scene = Scene()
        scene.secrets.data = data_of(ours)
        await scene.trust.begin()
        other = made()
        scene.secrets.data, scene.lacking = data_of(other), ["shop/pay-coordinator"]
        await scene.trust.look()
        assert scene.serves(ours.ca)
        scene.now += timedelta(days=91)
        await scene.trust.look()
        assert scene.serves(other.ca)

    simulate(scenario())


def test_check_is_the_handshake_of_a_worker(ours: Certificates) -> None:
    """So it rejects exactly what a worker rejects."""
    assert handshake_error(ours, HOST) is None
    assert "elsewhere" in (handshake_error(ours, "elsewhere") or "")
