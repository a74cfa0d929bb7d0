"""Authorization: tokens, rights, TLS."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from millpond.protocol import (
    Answer,
    Epoch,
    Refusal,
    RefusalCode,
)
from millpond_operator.coordinator import (
    CoordinatorServer,
    Identity,
    TokenFile,
)
from tests.coordinator.server.service import QUICK, certificate, run, serving, tokens, worker
from tests.coordinator.support import APP, connected, eventually, heartbeat


def test_a_token_speaks_for_its_own_worker_only(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """No token, an unknown one, another worker's, another application's: rejected; and no log contains any of them."""

    async def scenario() -> None:
        async with serving(authenticator=TokenFile(tokens(tmp_path))) as service:
            codes = {
                token: outcome.code if isinstance(outcome, Refusal) else None
                for token in (None, "", "wrong", "secret-of-w1", "secret-of-ops", "secret-of-w0")
                for outcome in [await service.beat(heartbeat("w0"), token)]
            }
            assert codes == {
                None: RefusalCode.UNAUTHORIZED,
                "": RefusalCode.UNAUTHORIZED,
                "wrong": RefusalCode.UNAUTHORIZED,
                "secret-of-w1": RefusalCode.FORBIDDEN,
                "secret-of-ops": RefusalCode.FORBIDDEN,
                "secret-of-w0": None,
            }
            outcome = await service.beat(heartbeat("w2"), "secret-of-w2")
            assert outcome.code is RefusalCode.FORBIDDEN
            # Who may not speak for a worker learns nothing of applications either.
            outcome = await service.beat(heartbeat("w9", application="guess"), "wrong")
            assert outcome.code is RefusalCode.UNAUTHORIZED

    with caplog.at_level(logging.DEBUG):
        run(scenario())
    assert "secret-of" not in caplog.text
    assert "wrong" not in caplog.text


def test_a_redirect_of_a_query_needs_a_token_and_passes_none_on(tmp_path: Path) -> None:
    """Who may not see the list of workers gets no address of one, and the address has no token in it."""

    async def scenario() -> None:
        async with serving(authenticator=TokenFile(tokens(tmp_path))) as service:
            await service.beat(heartbeat("w0", address="http://w0:8080"), "secret-of-w0")
            for token, expected in (("wrong", (401, "")), ("secret-of-ops", (307, "http://w0:8080/v1/stores"))):
                bearer = {"Authorization": f"Bearer {token}"}
                status, body, location = await service.ask_location("/v1/stores", headers=bearer)
                assert (status, location) == expected
                assert b"secret" not in body

    run(scenario())


def test_only_admins_drain_and_report_deaths(tmp_path: Path) -> None:
    """Workers' tokens may read, since workers forward queries; commands are for people and the operator."""

    async def scenario() -> None:
        async with serving(authenticator=TokenFile(tokens(tmp_path))) as service:
            await service.beat(heartbeat("w0"), "secret-of-w0")
            base = f"/v1/applications/{APP}"

            async def status(method: str, path: str, token: str | None) -> int:
                headers = {"Authorization": f"Bearer {token}"} if token else {}
                return (await service.ask(method, base + path, headers=headers))[0]

            for method, path in (
                ("POST", "/workers/w0/gone"),
                ("POST", "/workers/w0/drain"),
                ("DELETE", "/workers/w0/drain"),
            ):
                assert await status(method, path, None) == 401
                assert await status(method, path, "secret-of-w0") == 403
                assert await status(method, path, "secret-of-ops") == 200
            for path in ("/assignment", "/members"):
                assert await status("GET", path, None) == 401
                assert await status("GET", path, "secret-of-w0") == 200

    run(scenario())


def test_tls_works_with_a_private_authority(tmp_path: Path) -> None:
    """With its certificate authority the client connects; without it, or with another one, it does not, and reports
    why.
    """

    async def scenario() -> None:
        context, ca = certificate(tmp_path)
        (tmp_path / "other").mkdir()
        _, other = certificate(tmp_path / "other")
        token = tmp_path / "token"
        token.write_text("secret-of-w0")
        coordinator = CoordinatorServer(authenticator=TokenFile(tokens(tmp_path)))
        await coordinator.add(APP, QUICK)
        await coordinator.start(ssl_context=context)
        try:
            assert coordinator.url.startswith("https://")
            good = worker(coordinator.url, "w0", token_file=token, ca_file=ca)
            async with connected(good):
                await eventually(lambda: good.connected_at, "an answer")
            for wrong in (None, other):
                bad = worker(coordinator.url, "w0", token_file=token, ca_file=wrong)
                async with connected(bad):
                    await eventually(lambda bad=bad: bad.failures, "a failure")
                    assert bad.connected_at is None
            # The authority is replaced in place, as a rotation does.
            rotated = worker(coordinator.url, "w0", token_file=token, ca_file=other)
            async with connected(rotated):
                await eventually(lambda: rotated.failures, "a failure")
                other.write_bytes(ca.read_bytes())
                await eventually(lambda: rotated.connected_at, "an answer with the new certificates")
        finally:
            await coordinator.stop()

    run(scenario())


def test_an_authenticator_is_any_awaitable_function() -> None:
    """The operator passes its own."""

    async def scenario() -> None:
        async def everybody_is_w0(token: str | None, peer: str = "") -> Identity | None:
            return Identity(worker="w0")

        async with serving(authenticator=everybody_is_w0) as service:
            assert isinstance(await service.beat(heartbeat("w0")), Answer)
            assert (await service.beat(heartbeat("w1"))).code is RefusalCode.FORBIDDEN
            assert Epoch(1, 0) <= (await service.view()).epoch

    run(scenario())
