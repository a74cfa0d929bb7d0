"""The connection of workers to the coordinator's assignment, over TLS with the current authority."""

from __future__ import annotations

import asyncio
import ssl
from datetime import UTC, datetime
from pathlib import Path

import pytest
from aiohttp import web

from millpond.protocol import Epoch, View, encode
from millpond.queries.directory import open_assignment
from millpond_operator.controllers.coordinator_host.tls.certificates import Certificates, issued


def _context(directory: Path, certificates: Certificates) -> ssl.SSLContext:
    chain, key = directory / "tls.crt", directory / "tls.key"
    chain.write_text(certificates.certificate)
    key.write_text(certificates.key)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(chain, key)
    return context


def test_replaced_authority_is_trusted_without_a_restart(tmp_path: Path) -> None:
    """The file is reread when it changes; if it is broken for a moment, the last one stays in use."""

    async def scenario() -> None:
        view = encode(View("delays", Epoch()))

        async def answer(_: web.Request) -> web.Response:
            return web.Response(body=view)

        old, new = (issued(("localhost",), datetime.now(UTC)) for _ in range(2))
        trusted = tmp_path / "ca.crt"
        trusted.write_text(old.ca)
        urls = []
        app = web.Application()
        app.router.add_get("/v1/applications/delays/assignment", answer)
        runner = web.AppRunner(app)
        await runner.setup()
        try:
            for certificates in (old, new):
                site = web.TCPSite(runner, "localhost", 0, ssl_context=_context(tmp_path, certificates))
                await site.start()
                urls.append(f"https://localhost:{runner.addresses[-1][1]}")
            async with (
                open_assignment(urls[0], "delays", ca_file=trusted) as before,
                open_assignment(urls[1], "delays", ca_file=trusted) as after,
            ):
                assert (await before()).application == "delays"
                with pytest.raises(OSError, match="certificate"):
                    await after()
                trusted.write_text(old.ca + new.ca)
                assert (await after()).application == "delays"
                trusted.write_text("-----BEGIN")
                assert (await after()).application == "delays"
        finally:
            await runner.cleanup()

    asyncio.run(scenario())
