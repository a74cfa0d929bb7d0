"""Whether the operator is alive and ready, and its figures, over HTTP.

The server lives in the event loop that does all the work: when that is blocked, nothing is answered, and the kubelet's
probe fails as it should. An API server that is away is no reason to be restarted.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, TypeAlias

from aiohttp import web

from .metrics import CONTENT_TYPE
from .work_queue import WorkQueue

__all__ = ("Check", "HealthServer", "stuck")

log = logging.getLogger(__name__)

Check: TypeAlias = Callable[[], str | None]
"""Says in one sentence what is wrong, or None."""


def stuck(queue: WorkQueue[Any], longest: timedelta) -> Check:
    """Finds a key that has been worked on for too long."""

    def check() -> str | None:
        running = queue.longest()
        if running is None or running[1] <= longest:
            return None
        return f"{running[0]} has been reconciled for {running[1].total_seconds():.0f} s, which should take seconds."

    return check


class HealthServer:
    """Answers `/healthz`, `/readyz` and `/metrics`.

    Args:
        metrics: gives the figures as text.
        alive: when one of them finds something, the process had better be restarted.
        ready: when one of them finds something, the process is not ready yet.
    """

    def __init__(self, metrics: Callable[[], bytes], alive: Sequence[Check] = (), ready: Sequence[Check] = ()) -> None:
        self.port = 0
        """Where it listens; 0 while it does not."""
        self._metrics = metrics
        self._alive = list(alive)
        self._ready = list(ready)
        self._runner: web.AppRunner | None = None

    def also_alive(self, check: Check) -> None:
        """Ask this too whether the process is alive."""
        self._alive.append(check)

    def also_ready(self, check: Check) -> None:
        """Ask this too whether the process is ready."""
        self._ready.append(check)

    async def start(self, host: str, port: int) -> None:
        """Listen.

        Args:
            host: address to listen on.
            port: 0 for any that is free.

        Raises:
            OSError: the address cannot be listened on.
        """
        application = web.Application()
        application.router.add_get("/healthz", self._healthz)
        application.router.add_get("/readyz", self._readyz)
        application.router.add_get("/metrics", self._exposed)
        self._runner = web.AppRunner(application, access_log=None)
        await self._runner.setup()
        site = web.TCPSite(self._runner, host, port)
        await site.start()
        self.port = int(self._runner.addresses[0][1])

    async def stop(self) -> None:
        """Listen no longer."""
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None
            self.port = 0

    async def _healthz(self, _request: web.Request) -> web.Response:
        return self._answer(self._alive)

    async def _readyz(self, _request: web.Request) -> web.Response:
        return self._answer(self._ready)

    def _answer(self, checks: Sequence[Check]) -> web.Response:
        troubles = [trouble for check in checks if (trouble := _asked(check)) is not None]
        for trouble in troubles:
            log.warning("A probe fails: %s", trouble)
        return web.Response(text="\n".join(troubles or ["ok"]) + "\n", status=503 if troubles else 200)

    async def _exposed(self, _request: web.Request) -> web.Response:
        return web.Response(body=self._metrics(), headers={"Content-Type": CONTENT_TYPE})


def _asked(check: Check) -> str | None:
    try:
        return check()
    except Exception as error:
        log.exception("A check failed.")
        return f"{getattr(check, '__name__', check)} failed: {error!r}."
