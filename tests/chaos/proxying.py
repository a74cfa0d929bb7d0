"""Connections that can be cut: a TCP proxy in front of each port, in a thread of the test.

A cut behaves like a network: bytes are held back in one direction or both, and arrive when it is over; or connections
are reset, and new ones too until it is over.
"""

from __future__ import annotations

import asyncio
import contextlib
import enum
import socket
import struct
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Self

__all__ = ("Cut", "Proxies", "Proxy")

_CHUNK = 256 * 1024
#: Turns of the loop before it ends: an accepted connection needs some until it is served.
_TURNS = 5
_NO_LINGER = struct.pack("ii", 1, 0)


class Cut(enum.StrEnum):
    """A kind of cut."""

    BOTH = "both"
    """All bytes are held back, and arrive afterwards."""
    UP = "up"
    """The client's bytes are held back; the server's arrive."""
    DOWN = "down"
    """The server's bytes are held back: it gets requests, but its answers do not arrive."""
    RESET = "reset"
    """Connections are reset, and new ones too."""


class Proxy:
    """Forwards connections to a port of this machine."""

    def __init__(self, loop: asyncio.AbstractEventLoop, target: Callable[[], int]) -> None:
        self._loop = loop
        self._target = target
        self._up, self._down = asyncio.Event(), asyncio.Event()
        self._open()
        self._resets = False
        self._writers: dict[asyncio.StreamWriter, None] = {}
        self.port = 0
        """Its port, once it is started."""
        self._server: asyncio.Server | None = None

    def _open(self) -> None:
        self._up.set()
        self._down.set()

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = int(self._server.sockets[0].getsockname()[1])

    def accept_no_more(self) -> None:
        """Close it, in the loop's thread. A server that closes at once loses connections that it just accepted."""
        for each in self._server.sockets if self._server is not None else ():
            self._loop.remove_reader(each.fileno())

    def stop(self) -> None:
        """In the loop's thread."""
        self._resets = True
        if self._server is not None:
            self._server.close()
        self._drop()

    def cut(self, how: Cut) -> None:
        """Cut the connections, from any thread; a new cut replaces the one before."""
        self._loop.call_soon_threadsafe(self._cut, how)

    def mend(self) -> None:
        """End the cut, from any thread."""
        self._loop.call_soon_threadsafe(self._cut, None)

    def black_hole(self) -> None:
        """Lose all bytes of the present connections, from any thread, without closing them; new connections work.

        A network does this when it forgets a connection, for example after the process behind a Kubernetes Service died
        with its node. Only silence tells the client.
        """
        self._loop.call_soon_threadsafe(self._black_hole)

    def _black_hole(self) -> None:
        self._up.clear()
        self._down.clear()
        self._up, self._down = asyncio.Event(), asyncio.Event()  # the present connections keep the cleared ones
        self._open()

    def _cut(self, how: Cut | None) -> None:
        self._open()
        self._resets = how is Cut.RESET
        if how is Cut.RESET:
            self._drop()
        if how in {Cut.BOTH, Cut.UP}:
            self._up.clear()
        if how in {Cut.BOTH, Cut.DOWN}:
            self._down.clear()

    def _drop(self) -> None:
        for writer in list(self._writers):
            _reset(writer)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._resets:
            _reset(writer)
            return
        try:
            back, forth = await asyncio.open_connection("127.0.0.1", self._target())
        except (OSError, asyncio.CancelledError):
            _reset(writer)
            return
        pair = (writer, forth)
        self._writers |= dict.fromkeys(pair)
        try:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.gather(self._pump(reader, forth, self._up), self._pump(back, writer, self._down))
        finally:
            for each in pair:
                self._writers.pop(each, None)
                each.close()

    @staticmethod
    async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, gate: asyncio.Event) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(_CHUNK):
                await gate.wait()
                writer.write(data)
                await writer.drain()
        await gate.wait()
        # When one side ends, the other one is closed.
        writer.close()


def _reset(writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        # SO_LINGER 0: closing sends a reset.
        if (connection := writer.get_extra_info("socket")) is not None:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
        writer.transport.abort()


class Proxies:
    """All proxies of a run, and their thread."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="proxies", daemon=True)
        self._proxies: list[Proxy] = []

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        async def end() -> None:
            for proxy in self._proxies:
                proxy.accept_no_more()
            for _ in range(
                _TURNS
            ):  # lets connections that were just accepted reach the state in which they can be closed
                await asyncio.sleep(0)
            for proxy in self._proxies:
                proxy.stop()
            for task in asyncio.all_tasks() - {asyncio.current_task()}:
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError, Exception):
                    await task
            for _ in range(_TURNS):  # lets closing connections end
                await asyncio.sleep(0)

        self._call(end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def before(self, target: Callable[[], int]) -> Proxy:
        """Return a proxy in front of a port, which is looked up for each connection."""

        async def made() -> Proxy:
            proxy = Proxy(self._loop, target)
            await proxy.start()
            return proxy

        proxy: Proxy = self._call(made())
        self._proxies.append(proxy)
        return proxy

    def _call(self, coroutine: Any) -> Any:
        future: Future[Any] = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        return future.result(60)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()
