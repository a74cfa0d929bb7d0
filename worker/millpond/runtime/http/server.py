"""The worker's HTTP side: one thread with an event loop, and the servers on it for everything the worker answers.

The worker's own loop is synchronous and never waits for a socket. What needs the network beside Kafka lives here:
metrics and health, queries, and the client of the coordinator, which `spawn` starts on the same event loop.
aiohttp is imported when the thread starts, so that building and testing a topology does not pay for it.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
import ssl
import threading
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from millpond.errors import ConfigError

if TYPE_CHECKING:
    from aiohttp import web

__all__ = ("Handler", "HttpServer", "HttpSite")

log = logging.getLogger(__name__)

T = TypeVar("T")

Handler = Callable[["web.Request"], Awaitable["web.StreamResponse"]]
"""Answers one request, on the event loop: it must not block."""

#: How long the end waits for answers that are under way, and for spawned coroutines to end after their cancellation.
_GRACE_S = 1.0
#: Of a request: it may have a key of a store in its path.
_LONGEST_LINE = 128 * 1024
#: A connection that nothing is asked on for so long is closed.
_KEPT_ALIVE_S = 75.0


class HttpSite:
    """An address and what is answered there.

    Attributes:
        host: the address to listen on.
        port: the port it listens on; 0 while it does not.
    """

    def __init__(
        self, server: HttpServer, host: str, port: int, tls: ssl.SSLContext | None = None, setting: str = "http.port"
    ) -> None:
        """Args:
        server: on whose thread it listens.
        host: the address to listen on.
        port: 0 for any free one; negative to serve nothing.
        tls: for HTTPS; None for HTTP.
        setting: that says which port.
        """
        self.host = host
        self.port = 0
        self._server = server
        self._wanted = port
        self._tls = tls
        self._setting = setting
        self._routes: list[tuple[str, str, Handler]] = []

    @property
    def url(self) -> str | None:
        """Where it listens, None while it does not."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'http' if self._tls is None else 'https'}://{host}:{self.port}" if self.port else None

    def route(self, method: str, path: str, handler: Handler) -> None:
        """Answer requests for a path (aiohttp's syntax: ``/v1/stores/{store}``). Before the start only."""
        self._server.check_not_started()
        self._routes.append((method, path, handler))

    def resource(self, opened: Callable[[], AbstractAsyncContextManager[object]]) -> None:
        """See `HttpServer.resource`."""
        self._server.resource(opened)

    async def listen(self, stack: AsyncExitStack) -> None:
        """Listen until the stack is left.

        Raises:
            ConfigError: the address cannot be listened on.
        """
        if self._wanted < 0:
            return
        from aiohttp import web

        application = web.Application()
        for method, path, handler in self._routes:
            application.router.add_route(method, path, handler)
        application.router.add_get("/{path:.*}", self._unknown)
        # What is under way at the end gets the grace, then its connection is closed.
        runner = web.AppRunner(
            application, access_log=None, handle_signals=False, shutdown_timeout=_GRACE_S, max_line_size=_LONGEST_LINE,
            keepalive_timeout=_KEPT_ALIVE_S,
        )  # fmt: skip
        stack.push_async_callback(runner.cleanup)
        await runner.setup()
        try:
            await web.TCPSite(runner, self.host, self._wanted, ssl_context=self._tls).start()
        except OSError as error:
            raise ConfigError(
                f"nothing can be served on {self.host}:{self._wanted} ({error.strerror or error}): set 'http.host' and "
                f"'{self._setting}' to an address of this machine that is free, or '{self._setting}' to 0 for any free "
                "port."
            ) from error
        self.port = runner.addresses[0][1]
        stack.callback(setattr, self, "port", 0)

    async def _unknown(self, _request: web.Request) -> web.StreamResponse:
        from aiohttp import web

        paths = " ".join(path for method, path, _ in self._routes if method == "GET")
        return web.Response(status=404, text=f"paths: {paths}\n")


class HttpServer:
    """A thread with an event loop, and a server on it; `site` adds further ones.

    Routes and resources are added before `start`. The thread runs even where nothing is served, for `spawn`.

    Attributes:
        main: where routes are added that no other site is named for.
    """

    def __init__(self, host: str, port: int) -> None:
        """Args:
        host: the address to listen on.
        port: 0 for any free one; negative to serve nothing.
        """
        self.main = HttpSite(self, host, port)
        self._sites = [self.main]
        self._resources: list[Callable[[], AbstractAsyncContextManager[object]]] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._over: asyncio.Event
        self._thread: threading.Thread | None = None
        self._spawned: set[asyncio.Task[Any]] = set()

    @property
    def port(self) -> int:
        """The port it listens on; 0 while it does not."""
        return self.main.port

    @property
    def url(self) -> str | None:
        """Where it listens, None while it does not."""
        return self.main.url

    def route(self, method: str, path: str, handler: Handler) -> None:
        """Answer requests for a path; see `HttpSite.route`."""
        self.main.route(method, path, handler)

    def site(self, host: str, port: int, tls: ssl.SSLContext | None, setting: str) -> HttpSite:
        """Listen at another address, too; see `HttpSite`. Before the start only."""
        self.check_not_started()
        self._sites.append(HttpSite(self, host, port, tls, setting))
        return self._sites[-1]

    def resource(self, opened: Callable[[], AbstractAsyncContextManager[object]]) -> None:
        """Enter a context on the event loop before the first request, and leave it after the last one.

        For what handlers share, such as a client's connections. Before the start only.
        """
        self.check_not_started()
        self._resources.append(opened)

    def start(self) -> None:
        """Start the thread, and return once requests are answered.

        Raises:
            ConfigError: the address cannot be listened on.
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
            its result to come; cancelling that cancels the coroutine.

        Raises:
            RuntimeError: the server does not run.
        """
        loop = self._loop
        if loop is None:
            coroutine.close()
            raise RuntimeError("the HTTP thread does not run: start() it first")
        return asyncio.run_coroutine_threadsafe(self._kept(coroutine), loop)

    def stop(self) -> None:
        """Stop listening, end what was spawned, and end the thread. Idempotent."""
        thread, self._thread = self._thread, None
        if thread is None:
            return
        loop = self._loop
        if loop is not None:
            loop.call_soon_threadsafe(self._over.set)
        thread.join()

    def check_not_started(self) -> None:
        """Refuse what comes after the start."""
        if self._thread is not None:
            raise RuntimeError("the HTTP thread runs already: routes and resources are added before its start")

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    # On the thread --------------------------------------------------------------------------------------------

    def _run(self, started: concurrent.futures.Future[None]) -> None:
        try:
            asyncio.run(self._live(started))
        except BaseException as error:
            if started.done():
                log.exception("the HTTP thread ended")
            else:
                started.set_exception(error)
        finally:
            self._loop = None

    async def _live(self, started: concurrent.futures.Future[None]) -> None:
        self._over = asyncio.Event()
        async with AsyncExitStack() as stack:
            for opened in self._resources:
                await stack.enter_async_context(opened())
            stack.push_async_callback(self._end_spawned)
            for site in self._sites:
                await site.listen(stack)
            self._loop = asyncio.get_running_loop()
            started.set_result(None)
            await self._over.wait()
            self._loop = None

    async def _kept(self, coroutine: Coroutine[Any, Any, T]) -> T:
        task = asyncio.current_task()
        assert task is not None
        self._spawned.add(task)
        try:
            return await coroutine
        except Exception:
            log.exception("a coroutine of the HTTP thread failed")
            raise
        finally:
            self._spawned.discard(task)

    async def _end_spawned(self) -> None:
        tasks = list(self._spawned)
        for task in tasks:
            task.cancel()
        if tasks:
            _, left = await asyncio.wait(tasks, timeout=_GRACE_S)
            for task in left:
                log.warning("a coroutine of the HTTP thread did not end: %r", task)
