"""The HTTP thread of a worker: an event loop with all HTTP servers and clients.

The worker's own loop is synchronous and never waits for a socket. This thread runs everything else that needs the
network: metrics and probes, queries, and the coordinator's client, which `spawn` starts on the same event loop.
aiohttp is imported when the thread starts, so that building and testing a topology does not need it.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
import socket
import ssl
import threading
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from millpond.errors import ConfigError
from millpond.forks import opened_here

if TYPE_CHECKING:
    from aiohttp import web

__all__ = ("Handler", "HttpServer", "HttpSite")

log: logging.Logger = logging.getLogger(__name__)

T = TypeVar("T")

Handler = Callable[["web.Request"], Awaitable["web.StreamResponse"]]
"""Answers one request on the event loop; it must not block."""

#: How long `stop` waits for running requests, and for cancelled coroutines.
_GRACE_S = 1.0
#: How long `stop` waits for the thread: for the grace periods of requests and of coroutines, and some work.
_END_S = 10.0
#: The longest request line, in bytes: its path may contain a key of a store.
_MAX_LINE_BYTES = 128 * 1024
#: Idle connections are closed after this time.
_KEEP_ALIVE_S = 75.0
#: The longest queue of connections that wait to be accepted.
_BACKLOG = 128


class HttpSite:
    """An address with its routes.

    Attributes:
        host: the address to listen on.
        port: the port that the site listens on; 0 while it does not listen.
    """

    def __init__(
        self, server: HttpServer, host: str, port: int, tls: ssl.SSLContext | None = None, setting: str = "http.port"
    ) -> None:
        """Create the site; the start of the server opens it.

        Args:
            server: the server whose thread the site runs on.
            host: the address to listen on.
            port: the port; 0 for any free port, negative for no server.
            tls: TLS context for HTTPS; None for HTTP.
            setting: name of the setting for the port, for messages.
        """
        self.host = host
        self.port: int = 0
        self._server = server
        self._configured_port = port
        self._tls = tls
        self._setting = setting
        self._routes: list[tuple[str, str, Handler]] = []

    @property
    def url(self) -> str | None:
        """The base URL; None while the site does not listen."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'http' if self._tls is None else 'https'}://{host}:{self.port}" if self.port else None

    def route(self, method: str, path: str, handler: Handler) -> None:
        """Answer requests for a path (aiohttp's syntax: ``/v1/stores/{store}``). Call it before the start."""
        self._server.check_not_started()
        self._routes.append((method, path, handler))

    def resource(self, opened: Callable[[], AbstractAsyncContextManager[object]]) -> None:
        """See `HttpServer.resource`."""
        self._server.resource(opened)

    async def listen(self, stack: AsyncExitStack) -> None:
        """Listen until the stack is closed.

        Raises:
            ConfigError: the address is not available.
        """
        if self._configured_port < 0:
            return
        from aiohttp import web

        application = web.Application()
        for method, path, handler in self._routes:
            application.router.add_route(method, path, handler)
        application.router.add_get("/{path:(?s:.*)}", self._unknown)
        # At the end, running requests get the grace period, then their connections are closed.
        runner = web.AppRunner(
            application, access_log=None, handle_signals=False, shutdown_timeout=_GRACE_S,
            max_line_size=_MAX_LINE_BYTES, keepalive_timeout=_KEEP_ALIVE_S,
        )  # fmt: skip
        stack.push_async_callback(runner.cleanup)
        await runner.setup()
        try:
            for opened in await _listening(self.host, self._configured_port):
                await web.SockSite(runner, opened, ssl_context=self._tls).start()
        except OSError as error:
            raise ConfigError(
                f"cannot listen on {self.host}:{self._configured_port} ({error.strerror or error}): set 'http.host' "
                f"and '{self._setting}' to a free address of this machine, or '{self._setting}' to 0 for any free port."
            ) from error
        self.port = runner.addresses[0][1]
        stack.callback(setattr, self, "port", 0)

    async def _unknown(self, _request: web.Request) -> web.StreamResponse:
        from aiohttp import web

        paths = " ".join(path for method, path, _ in self._routes if method == "GET")
        return web.Response(status=404, text=f"paths: {paths}\n")


async def _listening(host: str, port: int) -> list[socket.socket]:
    """Open a socket for each address of a host. Children of this process close them, so that its successor can listen.

    Raises:
        OSError: the host is unknown, or an address is not available.
    """
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    sockets: list[socket.socket] = []
    try:
        for family, address in dict.fromkeys((family, address[:2]) for family, _, _, _, address in found):
            sockets.append(opened_here(partial(socket.create_server, address, family=family, backlog=_BACKLOG)))
    except BaseException:
        for each in sockets:
            each.close()
        raise
    return sockets


class HttpServer:
    """A thread with an event loop and an HTTP server; `site` adds servers at other addresses.

    Routes and resources are added before `start`. The thread also runs without a server, for `spawn`.

    Attributes:
        main: the site of `host` and `port`.
    """

    def __init__(self, host: str, port: int) -> None:
        """Create the server; `start` starts it.

        Args:
            host: the address to listen on.
            port: the port; 0 for any free port, negative for no server.
        """
        self.main: HttpSite = HttpSite(self, host, port)
        self._sites = [self.main]
        self._resources: list[Callable[[], AbstractAsyncContextManager[object]]] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop_requested: asyncio.Event
        self._thread: threading.Thread | None = None
        self._spawned: set[asyncio.Task[Any]] = set()

    @property
    def port(self) -> int:
        """The port of the main site; 0 while it does not listen."""
        return self.main.port

    @property
    def url(self) -> str | None:
        """The base URL of the main site; None while it does not listen."""
        return self.main.url

    def route(self, method: str, path: str, handler: Handler) -> None:
        """Answer requests for a path; see `HttpSite.route`."""
        self.main.route(method, path, handler)

    def site(self, host: str, port: int, tls: ssl.SSLContext | None, setting: str) -> HttpSite:
        """Add a site at another address; see `HttpSite`. Call it before the start."""
        self.check_not_started()
        self._sites.append(HttpSite(self, host, port, tls, setting))
        return self._sites[-1]

    def resource(self, opened: Callable[[], AbstractAsyncContextManager[object]]) -> None:
        """Enter a context on the event loop before the first request, and exit it after the last one.

        Handlers can share such a resource, for example the connections of a client. Call it before the start.
        """
        self.check_not_started()
        self._resources.append(opened)

    def start(self) -> None:
        """Start the thread, and return when it answers requests.

        Raises:
            ConfigError: an address is not available.
        """
        self.check_not_started()
        started: concurrent.futures.Future[None] = concurrent.futures.Future()
        self._thread = threading.Thread(target=self._run, args=(started,), name="millpond-http", daemon=True)
        self._thread.start()
        try:
            started.result()
        except BaseException:
            self._thread.join()
            self._thread = None
            raise

    def spawn(self, coroutine: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
        """Run a coroutine on the event loop, from any thread; it is cancelled when the server stops.

        Returns:
            The future of its result. Cancelling it cancels the coroutine.

        Raises:
            RuntimeError: the server is not running.
        """
        loop = self._loop
        if loop is None:
            coroutine.close()
            raise RuntimeError("the HTTP thread is not running: call start() first")
        return asyncio.run_coroutine_threadsafe(_tracked(coroutine, self._spawned), loop)

    def stop(self) -> None:
        """Stop the servers, cancel spawned coroutines, and end the thread. Idempotent.

        A coroutine that does not end after its cancellation is told in the log; it does not hold up the caller.
        """
        thread, self._thread = self._thread, None
        if thread is None:
            return
        loop = self._loop
        if loop is not None:
            loop.call_soon_threadsafe(self._stop_requested.set)
        thread.join(_END_S)
        if thread.is_alive():
            # A daemon: it ends with the process, and nothing of the worker depends on it any more.
            log.warning("HTTP thread: a request or a coroutine does not end; nothing waits for it after %g s", _END_S)

    def check_not_started(self) -> None:
        """Raise RuntimeError if the thread is already running."""
        if self._thread is not None:
            raise RuntimeError("the HTTP thread is already running: add routes and resources before its start")

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    # In the thread

    def _run(self, started: concurrent.futures.Future[None]) -> None:
        try:
            asyncio.run(self._serve(started))
        except BaseException as error:
            if started.done():
                log.exception("HTTP thread: failed; it no longer answers requests and sends no heartbeats")
            else:
                started.set_exception(error)

    async def _serve(self, started: concurrent.futures.Future[None]) -> None:
        # Another thread may have been started before this one ends: the attributes are that one's then.
        loop, spawned = asyncio.get_running_loop(), set[asyncio.Task[Any]]()
        self._spawned = spawned
        self._stop_requested = stop_requested = asyncio.Event()
        async with AsyncExitStack() as stack:
            for opened in self._resources:
                await stack.enter_async_context(opened())
            stack.push_async_callback(_cancel, spawned)
            for site in self._sites:
                await site.listen(stack)
            self._loop = loop
            started.set_result(None)
            try:
                await stop_requested.wait()
            finally:
                if self._loop is loop:
                    self._loop = None


async def _tracked(coroutine: Coroutine[Any, Any, T], spawned: set[asyncio.Task[Any]]) -> T:
    task = asyncio.current_task()
    assert task is not None
    spawned.add(task)
    try:
        return await coroutine
    except Exception:
        log.exception("HTTP thread: a coroutine failed")
        raise
    finally:
        spawned.discard(task)


async def _cancel(spawned: set[asyncio.Task[Any]]) -> None:
    tasks = list(spawned)
    for task in tasks:
        task.cancel()
    if tasks:
        _, remaining = await asyncio.wait(tasks, timeout=_GRACE_S)
        for task in remaining:
            log.warning("HTTP thread: a coroutine did not end after its cancellation: %r", task)
