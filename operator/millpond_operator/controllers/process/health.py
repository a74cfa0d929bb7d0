"""The HTTP server for liveness, readiness, metrics and the console.

The server runs in the event loop that does all the work: when the loop is blocked, the kubelet's probe times out and
fails, as it should. An unreachable API server does not make the liveness probe fail: a restart would not help.

Clients need no token, so connections have limits (`http_connections`), and each carries one request.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, TypeAlias

from aiohttp import web
from aiohttp.typedefs import Handler

from millpond.console import ConsoleSource, add_console

from .http_connections import HttpConnections, HttpLimits
from .metrics import CONTENT_TYPE, MetricSnapshot
from .work_queue import WorkQueue, key_name

__all__ = ("Check", "HealthServer", "stuck")

log = logging.getLogger(__name__)

_BACKLOG = 128
_PROBES = frozenset({"/healthz", "/readyz"})
#: Limits of one request, which waits in memory until its headers are complete; aiohttp limits each of them to 8 KiB.
_MAX_HEADERS, _BODY_BUFFER_BYTES = 64, 16 * 1024
#: How long the body of a request is read, which no path needs.
_LINGER_S = 0.5

Check: TypeAlias = Callable[[], str | None]
"""A check that returns its failure in one sentence, or None."""


def stuck(queue: WorkQueue[Any], longest: timedelta) -> Check:
    """Return a check that fails while one key has been worked on for longer than `longest`."""

    def check() -> str | None:
        running = queue.longest()
        if running is None or running[1] <= longest:
            return None
        seconds = running[1].total_seconds()
        return f"The reconcile of {key_name(running[0])} has been running for {seconds:.0f} s, but should take seconds."

    return check


class HealthServer:
    """Answers `/healthz`, `/readyz` and `/metrics`, and serves the console.

    Args:
        metrics: reads the metrics.
        alive: liveness checks; the process should be restarted when one fails.
        ready: readiness checks; the process is not ready while one fails.
        console: the console's documents; None for no console.
        limits: limits of connections.
        closed: called with the reason when a connection is closed because of them.
    """

    def __init__(  # noqa: PLR0913 - keyword-only options
        self,
        metrics: Callable[[], MetricSnapshot],
        *,
        alive: Sequence[Check] = (),
        ready: Sequence[Check] = (),
        console: ConsoleSource | None = None,
        limits: HttpLimits | None = None,
        closed: Callable[[str], None] = lambda _reason: None,
    ) -> None:
        self.port = 0
        """The port it listens on; 0 while it does not listen."""
        self._metrics = metrics
        self._alive = list(alive)
        self._ready = list(ready)
        self._console = console
        self._connections = HttpConnections(limits or HttpLimits(), closed)
        self._runner: web.AppRunner | None = None
        self._listening: asyncio.AbstractServer | None = None

    @property
    def connections(self) -> int:
        """The number of open connections."""
        return len(self._connections)

    def also_alive(self, check: Check) -> None:
        """Add a liveness check."""
        self._alive.append(check)

    def also_ready(self, check: Check) -> None:
        """Add a readiness check."""
        self._ready.append(check)

    async def start(self, host: str, port: int) -> None:
        """Start the server.

        Args:
            host: the address to listen on.
            port: the port to listen on; 0 for any free one.

        Raises:
            OSError: the address is in use or is not one of this host's.
        """
        application = web.Application(middlewares=[self._note_request])
        application.on_response_prepare.append(_close_afterwards)
        application.router.add_get("/healthz", self._healthz)
        application.router.add_get("/readyz", self._readyz)
        application.router.add_get("/metrics", self._serve_metrics)
        if self._console is not None:
            add_console(application, self._console)
        # A handler is cancelled when its connection is closed, so that no work is done for nobody.
        self._runner = web.AppRunner(
            application,
            access_log=None,
            handler_cancellation=True,
            shutdown_timeout=1,
            lingering_time=_LINGER_S,
            auto_decompress=False,
            max_headers=_MAX_HEADERS,
            read_bufsize=_BODY_BUFFER_BYTES,
        )
        await self._runner.setup()
        assert self._runner.server is not None
        self._listening = await asyncio.get_running_loop().create_server(
            self._connections.protocol_factory(self._runner.server), host, port, backlog=_BACKLOG, reuse_address=True
        )
        self.port = int(self._listening.sockets[0].getsockname()[1])

    async def stop(self) -> None:
        """Stop the server."""
        self._connections.stop()
        if self._listening is not None:
            self._listening.close()
            self._listening = None
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None
            self.port = 0

    @web.middleware
    async def _note_request(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        self._connections.requested(request.protocol, document=request.path not in _PROBES)
        return await handler(request)

    async def _healthz(self, _request: web.Request) -> web.Response:
        return self._answer(self._alive)

    async def _readyz(self, _request: web.Request) -> web.Response:
        return self._answer(self._ready)

    def _answer(self, checks: Sequence[Check]) -> web.Response:
        failures = [failure for check in checks if (failure := _run(check)) is not None]
        for failure in failures:
            log.warning("probe: fails: %s", failure)
        return web.Response(text="\n".join(failures or ["ok"]) + "\n", status=503 if failures else 200)

    async def _serve_metrics(self, _request: web.Request) -> web.Response:
        metrics = self._metrics()
        # In another thread: with thousands of StreamApps it takes so long that heartbeats would wait.
        body = await asyncio.to_thread(metrics.encoded)
        return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE})


async def _close_afterwards(_request: web.Request, response: web.StreamResponse) -> None:
    """Close the connection after the response: no idle one is kept."""
    response.headers["Connection"] = "close"
    response.force_close()


def _run(check: Check) -> str | None:
    try:
        return check()
    except Exception as error:  # a check that cannot be run fails the probe instead of the server
        name = getattr(check, "__name__", check)
        log.exception("health check %s: raised an exception", name)
        return f"Health check {name} raised {error!r}."
