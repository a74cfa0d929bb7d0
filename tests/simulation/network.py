"""A network in the memory of one event loop, which controls ports, connections and the order of all bytes.

Connections have the semantics of TCP on one machine: bytes arrive in order and at once, a closed connection ends with
what was still under way, a writer waits for a reader that does not read. TLS works on top of it.
"""

from __future__ import annotations

import asyncio
import collections
import contextvars
import itertools
import ssl
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Self

from tests.simulation import processes
from tests.simulation.processes import Process
from tests.simulation.tls import tls_protocol

if TYPE_CHECKING:
    from tests.simulation.loop import VirtualLoop

__all__ = ("Listener", "MemoryTransport", "Network", "Socket")

HOST = "127.0.0.1"
_FIRST_PORT = 40_000
_HIGH_WATER, _LOW_WATER = 256 * 1024, 64 * 1024


class Socket:
    """A stand-in for a socket where a library needs one."""

    family = type = proto = 0

    def __init__(self, port: int) -> None:
        self.port = port

    def getsockname(self) -> tuple[str, int]:
        return HOST, self.port

    def close(self) -> None:
        """There is nothing to close."""

    def dup(self) -> Socket:
        """Return another one for the same port."""
        return self

    def listen(self, _backlog: int) -> None:
        """Return at once: it serves from the beginning."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...


class MemoryTransport(asyncio.Transport):
    """One end of a connection."""

    def __init__(self, loop: VirtualLoop, port: int) -> None:
        super().__init__({"peername": (HOST, port), "sockname": (HOST, port), "socket": None})
        self._loop = loop
        self._number = next(loop.numbers)
        self._context = contextvars.copy_context()
        self._process = processes.CURRENT.get()
        if self._process is not None:
            self._process.resources[self] = None
        loop.network.connections[self] = None
        self._protocol: asyncio.BaseProtocol | None = None
        self._peer: MemoryTransport | None = None
        self._inbox: collections.deque[bytes] = collections.deque()
        self._inbox_bytes = 0
        self._inbox_ends = False
        self._told_end = False
        self._reading = True
        self._pumping = False
        self._closing = False
        self._writes_paused = False
        self._wrote_eof = False
        self._high, self._low = _HIGH_WATER, _LOW_WATER

    def __hash__(self) -> int:
        return self._number  # sets of connections have the same order each time

    def __eq__(self, other: object) -> bool:
        return self is other

    # What protocols use.

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        assert self._protocol is not None
        return self._protocol

    def is_closing(self) -> bool:
        return self._closing

    def is_reading(self) -> bool:
        return self._reading and not self._closing

    def pause_reading(self) -> None:
        self._reading = False

    def resume_reading(self) -> None:
        self._reading = True
        self._pump_soon()

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._closing or not data:
            return
        peer = self._peer
        if peer is None or peer._closing:
            self._break()
            return
        peer._inbox.append(bytes(data))
        peer._inbox_bytes += len(data)
        peer._pump_soon()
        if peer._inbox_bytes > self._high and not self._writes_paused:
            self._writes_paused = True
            self.get_protocol().pause_writing()

    def writelines(self, lines: Any) -> None:
        self.write(b"".join(lines))

    def write_eof(self) -> None:
        if not self._wrote_eof and not self._closing:
            self._wrote_eof = True
            self._end_peer()

    def can_write_eof(self) -> bool:
        return True

    def get_write_buffer_size(self) -> int:
        return self._peer._inbox_bytes if self._peer is not None else 0

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return self._low, self._high

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high = _HIGH_WATER if high is None else high
        self._low = self._high // 4 if low is None else low

    def close(self) -> None:
        self._end(None)

    def abort(self) -> None:
        self._end(None)

    def _force_close(self, error: Exception | None) -> None:
        self._end(error)  # what TLS calls when it cannot go on

    def cut(self) -> None:
        """End the connection for the other side only, since this process was killed."""
        self._closing = True
        self._loop.network.connections.pop(self, None)
        self._inbox.clear()
        self._end_peer()

    # Inside.

    def connect(self, peer: MemoryTransport) -> None:
        """Create the two ends of a connection."""
        self._peer, peer._peer = peer, self

    def begin(self, protocol: asyncio.BaseProtocol) -> None:
        """Notify a protocol of its connection."""
        self._protocol = protocol
        protocol.connection_made(self)
        self._pump_soon()

    def _end(self, error: Exception | None) -> None:
        if self._closing:
            return
        self._closing = True
        self._inbox.clear()
        self._inbox_bytes = 0
        self._end_peer()
        if self._process is not None:
            self._process.resources.pop(self, None)
        self._loop.network.connections.pop(self, None)
        self._loop.call_soon(self._lost, error, context=self._context)

    def _lost(self, error: Exception | None) -> None:
        if self._protocol is not None:
            self._protocol.connection_lost(error)

    def _break(self) -> None:
        self._end(ConnectionResetError("the other side closed the connection"))

    def _end_peer(self) -> None:
        peer = self._peer
        if peer is not None and not peer._inbox_ends:
            peer._inbox_ends = True
            peer._pump_soon()

    def _pump_soon(self) -> None:
        if not self._pumping and self._protocol is not None:
            self._pumping = True
            self._loop.call_soon(self._pump, context=self._context)

    def _pump(self) -> None:
        self._pumping = False
        try:
            self._deliver()
        except Exception as error:
            self._loop.call_exception_handler(
                {"message": "Fatal error: a protocol failed", "exception": error, "transport": self}
            )
            self._end(error)

    def _deliver(self) -> None:
        while self._inbox and self._reading and not self._closing:
            data = b"".join(self._inbox) if len(self._inbox) > 1 else self._inbox[0]
            self._inbox.clear()
            self._inbox_bytes = 0
            self._relieve()
            self._give(data)
        if self._inbox_ends and not self._inbox and self._reading and not self._closing and not self._told_end:
            self._told_end = True
            protocol = self.get_protocol()
            assert isinstance(protocol, asyncio.Protocol | asyncio.BufferedProtocol)
            if not protocol.eof_received():
                self.close()

    def _relieve(self) -> None:
        peer = self._peer
        if peer is not None and peer._writes_paused and not peer._closing:
            peer._writes_paused = False
            self._loop.call_soon(peer._resume, context=peer._context)

    def _resume(self) -> None:
        if not self._closing:
            self.get_protocol().resume_writing()

    def _give(self, data: bytes) -> None:
        protocol = self._protocol
        if not isinstance(protocol, asyncio.BufferedProtocol):
            assert protocol is not None
            protocol.data_received(data)  # type: ignore[attr-defined]
            return
        view = memoryview(data)
        while view and not self._closing:
            buffer = memoryview(protocol.get_buffer(len(view)))
            size = min(len(buffer), len(view))
            buffer[:size] = view[:size]
            protocol.buffer_updated(size)
            view = view[size:]


class Listener(asyncio.AbstractServer):
    """An open port."""

    def __init__(
        self,
        loop: VirtualLoop,
        network: Network,
        factory: Callable[[], asyncio.BaseProtocol],
        port: int,
        tls: ssl.SSLContext | None,
    ) -> None:
        self.port = port
        self._loop = loop
        self._network = network
        self._factory = factory
        self._tls = tls
        self._context = contextvars.copy_context()
        self._process = processes.CURRENT.get()
        if self._process is not None:
            self._process.resources[self] = None

    @property
    def sockets(self) -> Sequence[Socket]:
        return (Socket(self.port),) if self.is_serving() else ()

    def get_loop(self) -> asyncio.AbstractEventLoop:
        return self._loop

    def is_serving(self) -> bool:
        return self._network.ports.get(self.port) is self

    async def start_serving(self) -> None:
        """Do nothing: it serves from the beginning."""

    async def serve_forever(self) -> None:
        await asyncio.Event().wait()

    def close(self) -> None:
        if self.is_serving():
            del self._network.ports[self.port]
        if self._process is not None:
            self._process.resources.pop(self, None)

    def close_clients(self) -> None:
        """Leave the connections open, as servers of Python 3.11 and 3.12 do, which have no such method."""

    def cut(self) -> None:
        """Close the port of a killed process."""
        self.close()

    async def wait_closed(self) -> None:
        """Return at once: it is closed."""

    def accept(self, client: MemoryTransport) -> None:
        """Create the other end of a connection once this process runs."""
        end = self._context.copy().run(MemoryTransport, self._loop, self.port)
        end.connect(client)
        self._loop.call_soon(self._begin, end, context=end._context)

    def _begin(self, end: MemoryTransport) -> None:
        protocol = self._factory()
        if self._tls is not None:
            protocol = tls_protocol(self._loop, protocol, self._tls, server_side=True)
        end.begin(protocol)


class Network:
    """The ports and connections of one loop."""

    def __init__(self) -> None:
        self.ports: dict[int, Listener] = {}
        self.connections: dict[MemoryTransport, None] = {}
        self._free = itertools.count(_FIRST_PORT)

    def end(self) -> None:
        """Cut all connections."""
        for connection in list(self.connections):
            connection.cut()

    def free_port(self) -> int:
        """Return a port that has not been used yet."""
        return next(self._free)

    def listen(
        self,
        loop: VirtualLoop,
        factory: Callable[[], asyncio.BaseProtocol],
        port: int | None,
        tls: ssl.SSLContext | None,
    ) -> Listener:
        """Open a port.

        Raises:
            OSError: it is in use.
        """
        port = port or self.free_port()
        if port in self.ports:
            raise OSError(98, f"port {port} is in use")
        self.ports[port] = Listener(loop, self, factory, port, tls)
        return self.ports[port]

    def connect(self, loop: VirtualLoop, port: int) -> MemoryTransport:
        """Return one end of a new connection to a port.

        Raises:
            ConnectionRefusedError: nobody listens there.
        """
        listener = self.ports.get(port)
        process = processes.CURRENT.get()
        if listener is None or not _alive(process):
            raise ConnectionRefusedError(111, f"Connect call failed ('{HOST}', {port})")
        end = MemoryTransport(loop, port)
        listener.accept(end)
        return end


def _alive(process: Process | None) -> bool:
    return process is None or process.alive
