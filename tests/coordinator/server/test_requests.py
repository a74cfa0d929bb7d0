"""Requests that are rejected: undecodable bodies, other protocol versions, wrong addresses."""

from __future__ import annotations

import io
import json

import msgspec
import pytest

from millpond.protocol import (
    Refusal,
    RefusalCode,
    encode,
)
from tests.coordinator.server.service import run, serving
from tests.coordinator.support import APP, heartbeat, running

BAD_BODIES = {
    "nothing": b"",
    "text": b"hello",
    "no utf-8": b"\xff\xfe\x00",
    "a list": b"[]",
    "fields missing": b'{"application": "delays"}',
    "a wrong type": b'{"application": "delays", "worker": "w0", "incarnation": 7, "sequence": 1, "topology_hash": "h"}',
    "an unknown role": encode(heartbeat(tasks=running("0_0"))).replace(b'"active"', b'"boss"'),
    "deep nesting": b"[" * 100_000,
}


@pytest.mark.parametrize("raw", BAD_BODIES.values(), ids=BAD_BODIES.keys())
def test_undecodable_requests_are_refused(raw: bytes) -> None:
    """The response has a message and status 400; nothing else changes, and the metric counts it."""

    async def scenario() -> None:
        async with serving() as service:
            path = f"/v1/applications/{APP}/workers/w0/heartbeat"
            status, body = await service.ask("POST", path, data=raw)
            assert status == 400
            refusal = msgspec.json.decode(body, type=Refusal)
            assert refusal.code is RefusalCode.BAD_REQUEST
            assert "w0" in refusal.message
            assert (await service.view()).members == ()
            _, metrics = await service.ask("GET", "/metrics")
            assert (
                b'heartbeats_total{application_id="delays",application_name="",application_namespace="",'
                b'outcome="bad_request"} 1.0' in metrics
            )

    run(scenario())


def test_later_protocol_version_is_refused_even_if_unreadable() -> None:
    """Every protocol version has the field `version`, and the message has both versions."""

    async def scenario() -> None:
        async with serving() as service:
            raw = b'{"version": 9, "application": {"id": "delays"}, "worker": ["w0"]}'
            refusal = await service.post(f"/v1/applications/{APP}/workers/w0/heartbeat", raw)
            assert refusal.code is RefusalCode.UNSUPPORTED_VERSION
            assert "version 9" in refusal.message
            assert "newer" in refusal.message

    run(scenario())


def test_addresses_that_lead_nowhere_are_refused_with_a_hint() -> None:
    """An unknown application, an unknown worker, a heartbeat at another worker's URL, too large a body."""

    async def scenario() -> None:
        async with serving() as service:
            refusal = await service.beat(heartbeat(application="other"))
            assert refusal.code is RefusalCode.UNKNOWN_APPLICATION
            assert "'other'" in refusal.message
            assert APP in refusal.message
            refusal = await service.beat(heartbeat("w0"), path=f"/v1/applications/{APP}/workers/w1/heartbeat")
            assert refusal.code is RefusalCode.BAD_REQUEST
            for action in ("gone", "drain"):
                status, body = await service.ask("POST", f"/v1/applications/{APP}/workers/w9/{action}")
                assert status == 404
                assert b"w9" in body
            big = io.BytesIO(b" " * (17 * 1024 * 1024))
            status, _ = await service.ask("POST", f"/v1/applications/{APP}/workers/w0/heartbeat", data=big)
            assert status == 413
            assert (await service.ask("GET", "/nothing"))[0] == 404
            assert await service.ask("GET", "/healthz") == (200, b"ok\n")
            assert json.loads((await service.ask("GET", "/v1/applications"))[1]) == [APP]

    run(scenario())
