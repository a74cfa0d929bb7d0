"""The faults that a fault proxy applies to requests and watches."""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Protocol

import aiohttp
from aiohttp import web

from tests.cluster.background import Background
from tests.cluster.calls import Call, Match
from tests.cluster.waiting import wait_for

__all__ = ("Down", "Fault", "Forward", "Held", "Watch", "WatchEnd", "failure", "relay")

_REASONS = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    409: "Conflict",
    410: "Expired",
    422: "Invalid",
    429: "TooManyRequests",
    500: "InternalError",
    503: "ServiceUnavailable",
    504: "Timeout",
}


class Forward(Protocol):
    """Forward the request to the API server."""

    async def __call__(self, as_of: str | None = None) -> web.StreamResponse:
        """The response, now or as of a resource version."""


class WatchEnd(enum.StrEnum):
    """How a watch ends."""

    RESET = "reset"
    """The connection breaks."""
    CLOSE = "close"
    """As the API server itself ends watches every now and then."""
    EXPIRED = "expired"
    """With an error of status 410: the client has to list anew."""


class Held:
    """A request that is held back until it is released.

    Attributes:
        call: the request; None before it arrived.
    """

    def __init__(self, background: Background) -> None:
        self.call: Call | None = None
        self.go = asyncio.Event()
        self._background = background

    def await_arrival(self, seconds: float = 60.0) -> None:
        """Wait until the request arrived."""
        wait_for(lambda: self.call is not None, "a request comes that is to be held", seconds, poll_s=0.02)

    def release(self) -> None:
        """Forward it to the API server now."""
        self._background.loop.call_soon_threadsafe(self.go.set)


@dataclass
class Fault:
    match: Match
    left: int | None
    """Requests that it is still for; None for all."""
    act: Callable[[Call, Forward], Awaitable[web.StreamResponse]]


class Down:
    """Nothing gets through for a while."""

    def __init__(self, hangs: bool) -> None:
        self.hangs = hangs
        self.over = asyncio.Event()


class Watch:
    """An open watch."""

    def __init__(self, call: Call) -> None:
        self.call = call
        self.open = asyncio.Event()
        self.open.set()
        self.silent = False
        self.end: asyncio.Future[WatchEnd] = asyncio.get_running_loop().create_future()

    def finish(self, how: WatchEnd) -> None:
        if not self.end.done():
            self.end.set_result(how)


async def relay(watch: Watch, upstream: aiohttp.ClientResponse, response: web.StreamResponse) -> None:
    """Copy lines from the API server to its client."""
    buffered = b""
    async for chunk in upstream.content.iter_any():
        *lines, buffered = (buffered + chunk).split(b"\n")
        await watch.open.wait()
        if lines and not watch.silent:
            await response.write(b"\n".join(lines) + b"\n")
    if watch.silent:
        await asyncio.Event().wait()  # its end would be news, too


def failure(status: int, call: Call) -> dict[str, Any]:
    """An error in the form of the API server."""
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "reason": _REASONS.get(status, "Unknown"),
        "message": f"A fault of the test: {call.verb} {call.resource} {call.name}.",
        "code": status,
    }
