"""A proxy before the API server that records a client's writes and injects the faults of networks and servers.

    with FaultProxy(background, api_server.admin, api_server.authority) as proxy:
        proxy.access.write_kubeconfig(path)           # for the client under test
        proxy.answer(409, times=3, match=on("statefulsets", "write"))
        proxy.silence_watches()

Faults last until `mend()`, or for the given number of requests. Of several that match a request the first one applies.
All methods may be called from any thread but the background's own.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
from collections.abc import Callable, Coroutine, Iterator, Mapping
from dataclasses import replace
from http import HTTPStatus
from typing import Any, Self
from urllib.parse import urlencode

import aiohttp
from aiohttp import web

from millpond.protocol import clock
from tests.cluster import calls
from tests.cluster.background import Background
from tests.cluster.calls import Call, Match, anything, is_write, on
from tests.cluster.certificates import Access, Authority
from tests.cluster.faults import Down, Fault, Forward, Held, Watch, WatchEnd, failure, relay

__all__ = ("FaultProxy", "Held", "WatchEnd", "on")

_HOST = "127.0.0.1"
_HOP = frozenset(
    {"connection", "keep-alive", "transfer-encoding", "host", "content-length", "upgrade", "te", "trailer"}
)


class _Abort(Exception):
    """Break the connection."""


class FaultProxy:
    """The proxy; it runs as long as the `with` block.

    Args:
        background: its event loop.
        upstream: the API server, and the user for requests without a token.
        authority: of the API server's certificate, and of the proxy's own.

    Attributes:
        access: for the client.
        calls: all requests, oldest first.
        halted: True when `halt_after` has stopped everything.
    """

    def __init__(self, background: Background, upstream: Access, authority: Authority) -> None:
        self.calls: list[Call] = []
        self.halted = False
        self._background = background
        self._upstream = upstream
        self._tls: ssl.SSLContext | None = None
        if upstream.url.startswith("https:"):
            self._tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            self._tls.load_cert_chain(authority.server("proxy", _HOST, "localhost"))
        self._faults: list[Fault] = []
        self._watches: dict[Watch, None] = {}
        self._silence: list[Match] = []
        self._holding = False
        self._down: Down | None = None
        self._writes_left: int | None = None
        self._then: Callable[[], Coroutine[Any, Any, object]] | None = None
        self._halting: asyncio.Task[object] | None = None
        self._counts: Match = anything
        self._one_write = asyncio.Lock()
        self._runner: web.AppRunner | None = None
        self._sessions: dict[bool, aiohttp.ClientSession] = {}
        self.access = upstream

    def __enter__(self) -> Self:
        self._background.call(self._start())
        return self

    def __exit__(self, *_: object) -> None:
        self._background.call(self._stop())

    # What was asked for.

    def writes(self, match: Match = anything) -> list[Call]:
        """The writes that the API server accepted, oldest first."""
        return [call for call in list(self.calls) if is_write(call) and 0 < call.status < 400 and match(call)]

    def forget(self) -> None:
        """Forget the recorded requests."""
        self.calls = []

    # Faults.

    def mend(self) -> None:
        """End all faults. Silent watches end, since their clients missed something."""
        self._background.call(self._mend())

    def halt_after(
        self, writes: int, then: Callable[[], Coroutine[Any, Any, object]] | None = None, match: Match = anything
    ) -> None:
        """Let so many writes through from now on and then nothing more, not even the response to the last one.

        Writes are serialized meanwhile, so that it is the same one each time. `halted` is True then; `resume` ends it.

        Args:
            writes: how many, at least one.
            then: started in the background, e.g. to kill the client.
            match: the writes that count.
        """
        assert writes > 0
        self.halted = False
        self._then, self._counts = then, match
        self._writes_left = writes

    def resume(self) -> None:
        """End `halt_after`."""
        self._writes_left, self._then = None, None
        self.halted = False

    def answer(
        self,
        status: int,
        *,
        times: int | None = 1,
        match: Match = is_write,
        retry_after: int | None = None,
        applied: bool = False,
    ) -> None:
        """Respond with an error.

        Args:
            status: of the response.
            times: for how many requests; None for all until `mend`.
            match: the requests.
            retry_after: seconds, as a header.
            applied: whether the API server gets the request all the same, so that the client does not know the outcome.
        """

        async def act(call: Call, forward: Forward) -> web.StreamResponse:
            if applied:
                await forward()
            headers = {"Retry-After": str(retry_after)} if retry_after is not None else {}
            return web.json_response(failure(status, call), status=status, headers=headers)

        self._faults.append(Fault(match, times, act))

    def lose_answers(self, *, times: int | None = 1, match: Match = is_write) -> None:
        """Let requests through, and break the connection instead of responding."""

        async def act(call: Call, forward: Forward) -> web.StreamResponse:
            await forward()
            raise _Abort

        self._faults.append(Fault(match, times, act))

    def delay(self, seconds: float, *, times: int | None = None, match: Match = anything) -> None:
        """Delay requests."""

        async def act(call: Call, forward: Forward) -> web.StreamResponse:
            await asyncio.sleep(seconds)
            return await forward()

        self._faults.append(Fault(match, times, act))

    def hold(self, match: Match = is_write) -> Held:
        """Hold back the next such request until it is released, whatever its client does meanwhile."""
        held = Held(self._background)

        async def act(call: Call, forward: Forward) -> web.StreamResponse:
            held.call = call
            await held.go.wait()
            return await forward()

        self._faults.append(Fault(match, 1, act))
        return held

    def stale_lists(self, version: str, match: Match = anything) -> None:
        """Answer lists and reads of objects as of a resource version, like a lagging API server.

        Versions are kept for about five minutes.
        """

        async def act(call: Call, forward: Forward) -> web.StreamResponse:
            return await forward(version)

        def read(call: Call) -> bool:
            whole = call.verb == "list" and "continue" not in call.query
            return bool(call.resource) and (whole or (call.verb == "get" and not call.subresource)) and match(call)

        self._faults.append(Fault(read, None, act))

    @contextlib.contextmanager
    def unreachable(self, *, hangs: bool = False) -> Iterator[None]:
        """Break all connections, also new ones; or let them hang, so that everything arrives late."""
        down = Down(hangs)
        self._down = down
        if hangs:
            self.hold_watches()
        else:
            self.end_watches(WatchEnd.RESET)
        try:
            yield
        finally:
            self._down = None
            self._background.loop.call_soon_threadsafe(down.over.set)
            if hangs:
                self.release_watches()

    # Watches.

    def watches(self, match: Match = anything) -> int:
        """Number of open watches."""
        return sum(match(watch.call) for watch in list(self._watches))

    def end_watches(self, how: WatchEnd = WatchEnd.RESET, match: Match = anything) -> None:
        """End open watches. Clients may start new ones."""

        async def end() -> None:
            for watch in list(self._watches):
                if match(watch.call):
                    watch.finish(how)

        self._background.call(end())

    def silence_watches(self, match: Match = anything, *, new: bool = True) -> None:
        """Keep watches open without delivering anything; with `new` those too that start before `mend`."""

        async def silence() -> None:
            for watch in list(self._watches):
                watch.silent = watch.silent or match(watch.call)
            if new:
                self._silence.append(match)

        self._background.call(silence())

    def hold_watches(self) -> None:
        """Hold back the events of watches, also of new ones, until `release_watches`."""
        self._background.call(self._open_watches(opened=False))

    def release_watches(self) -> None:
        """Deliver the events that were held back."""
        self._background.call(self._open_watches(opened=True))

    async def _open_watches(self, *, opened: bool) -> None:
        self._holding = not opened
        for watch in self._watches:
            watch.open.set() if opened else watch.open.clear()

    async def _mend(self) -> None:
        self._faults, self._silence = [], []
        self.resume()
        await self._open_watches(opened=True)
        for watch in self._watches:
            if watch.silent:
                watch.finish(WatchEnd.RESET)

    # Serving.

    async def _start(self) -> None:
        # A certificate would count for more than a token: who shows a token is asked for without one.
        for as_token in (False, True):
            upstream = replace(self._upstream, certificate_file=None) if as_token else self._upstream
            connector = aiohttp.TCPConnector(ssl=upstream.ssl_context(), limit=0)
            self._sessions[as_token] = aiohttp.ClientSession(
                upstream.url, connector=connector, auto_decompress=False, timeout=aiohttp.ClientTimeout(total=None)
            )
        app = web.Application(client_max_size=64 * 1024 * 1024)
        app.router.add_route("*", "/{path:.*}", self._serve)
        self._runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, _HOST, 0, ssl_context=self._tls).start()
        scheme = "http" if self._tls is None else "https"
        self.access = self._upstream.at(f"{scheme}://{_HOST}:{self._runner.addresses[0][1]}")

    async def _stop(self) -> None:
        for watch in self._watches:
            watch.finish(WatchEnd.RESET)
        assert self._runner is not None
        await self._runner.cleanup()
        for session in self._sessions.values():
            await session.close()

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        try:
            return await self._handle(request)
        except (_Abort, aiohttp.ClientError, ConnectionError):
            if request.transport is not None:
                request.transport.abort()
            raise asyncio.CancelledError from None  # nobody is there to be answered

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        agent = request.headers.get("User-Agent", "")
        call = calls.read(request.method, request.path, request.query, body, agent, clock.monotonic())
        self.calls.append(call)
        if self._down is not None and self._down.hangs:
            await self._down.over.wait()
        if self._down is not None or self.halted:
            raise _Abort

        async def forward(as_of: str | None = None) -> web.StreamResponse:
            if as_of is not None:
                return await self._as_of(as_of, request, call)
            if call.verb == "watch":
                return await self._watch(request, call)
            if is_write(call) and self._counts(call) and self._writes_left is not None:
                async with self._one_write:
                    return await self._counted(request, call, body)
            return await self._forward(request, call, body)

        for fault in self._faults:
            if fault.left != 0 and fault.match(call):
                if fault.left is not None:
                    fault.left -= 1
                return await fault.act(call, forward)
        return await forward()

    async def _counted(self, request: web.Request, call: Call, body: bytes) -> web.StreamResponse:
        if self.halted:
            raise _Abort
        response = await self._forward(request, call, body)
        if self._writes_left is not None and call.status < HTTPStatus.BAD_REQUEST:
            self._writes_left -= 1
            if self._writes_left == 0:
                self.halted = True
                for watch in self._watches:
                    watch.finish(WatchEnd.RESET)
                if self._then is not None:
                    self._halting = asyncio.create_task(self._then())
                raise _Abort
        return response

    def _headers(self, request: web.Request) -> dict[str, str]:
        headers = {name: value for name, value in request.headers.items() if name.lower() not in _HOP}
        if self._upstream.token is not None:
            headers.setdefault("Authorization", f"Bearer {self._upstream.token}")
        return headers

    def _session(self, headers: Mapping[str, str]) -> aiohttp.ClientSession:
        return self._sessions["Authorization" in headers]

    async def _forward(self, request: web.Request, call: Call, body: bytes) -> web.Response:
        # Shielded: a request that has left is not called back when its client is killed.
        return await asyncio.shield(self._ask(request.method, request.raw_path, call, body, self._headers(request)))

    async def _ask(self, method: str, path: str, call: Call, body: bytes, headers: dict[str, str]) -> web.Response:
        async with self._session(headers).request(method, path, data=body or None, headers=headers) as response:
            raw = await response.read()
            call.status = response.status
            given = {name: value for name, value in response.headers.items() if name.lower() not in _HOP}
            return web.Response(body=raw, status=response.status, headers=given)

    async def _watch(self, request: web.Request, call: Call) -> web.StreamResponse:
        headers = self._headers(request)
        async with self._session(headers).get(request.raw_path, headers=headers) as upstream:
            call.status = upstream.status
            given = {name: value for name, value in upstream.headers.items() if name.lower() not in _HOP}
            if upstream.status != HTTPStatus.OK:
                return web.Response(body=await upstream.read(), status=upstream.status, headers=given)
            response = web.StreamResponse(headers=given)
            response.enable_chunked_encoding()
            await response.prepare(request)
            watch = Watch(call)
            watch.silent = any(match(call) for match in self._silence)
            if self._holding:
                watch.open.clear()
            self._watches[watch] = None
            passing = asyncio.create_task(relay(watch, upstream, response))
            ends: set[asyncio.Future[Any]] = {passing, watch.end}
            try:
                await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
                how = watch.end.result() if watch.end.done() else WatchEnd.CLOSE
                if how is WatchEnd.RESET:
                    raise _Abort
                if how is WatchEnd.EXPIRED:
                    expired = {"type": "ERROR", "object": failure(410, call)}
                    await response.write(json.dumps(expired).encode() + b"\n")
                await response.write_eof()
                return response
            finally:
                self._watches.pop(watch, None)
                passing.cancel()
                await asyncio.gather(passing, return_exceptions=True)

    async def _as_of(self, version: str, request: web.Request, call: Call) -> web.Response:
        """A list as of a version. The API server has no history of single objects, but of a list of one it has."""
        query = {name: value for name, value in call.query.items() if not name.startswith("resourceVersion")}
        query |= {"resourceVersion": version, "resourceVersionMatch": "Exact"}
        path = request.path
        if call.name:
            path = path.rpartition("/")[0]
            query["fieldSelector"] = f"metadata.name={call.name}"
        response = await self._ask("GET", f"{path}?{urlencode(query)}", call, b"", self._headers(request))
        if not call.name or call.status != HTTPStatus.OK:
            return response
        assert isinstance(response.body, bytes)
        found = json.loads(response.body)
        if not found["items"]:
            return web.json_response(failure(404, call), status=404)
        kind = {"kind": found["kind"].removesuffix("List"), "apiVersion": found["apiVersion"]}
        return web.json_response({**kind, **found["items"][0]})
