"""The connections of a coordinator: how many there may be, and what each one costs.

A new connection takes a credit of its address and gets it back when it shows a valid token. So random tokens, connections
that say nothing and handshakes that lead to nothing are one thing, and all of them are bounded: an address gets as many
as it has credits. Connections of workers are bounded by worker. Nothing here trusts what the other side says of itself.
"""

from __future__ import annotations

import asyncio
import ssl
from asyncio import sslproto
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from millpond.protocol import clock

from .limits import Limits
from .token_bucket import Allowance

__all__ = ("Connections",)

_SWEEP_S = 1.0


@dataclass(slots=True, eq=False)
class _Connection:
    peer: str
    transport: asyncio.Transport
    """Below TLS."""
    opened_at: float
    worker: object = None
    """The worker whose valid token came over it; None before there was one."""


class Connections:
    """Lets connections in, and closes those that stay without a reason.

    Args:
        limits: how many; None for any number.
        refused: is told why a connection was closed or not let in.
    """

    def __init__(self, limits: Limits | None, refused: Callable[[str], None]) -> None:
        self._limits = limits or Limits()
        self._unlimited = limits is None
        self._refused = refused
        self._credits = Allowance(self._limits.strangers_per_second, self._limits.strangers_burst)
        self._open: dict[asyncio.BaseProtocol, _Connection] = {}
        self._of_worker: dict[object, list[_Connection]] = {}
        self._sweeping: asyncio.TimerHandle | None = None
        self._stopped = False

    def __len__(self) -> int:
        return sum(not each.transport.is_closing() for each in self._open.values())

    def guarded(
        self, make: Callable[[], asyncio.Protocol], tls: ssl.SSLContext | None
    ) -> Callable[[], asyncio.BaseProtocol]:
        """A factory of protocols for a listening socket, in place of `make` and of the event loop's own TLS."""
        return lambda: _Entrance(self, make, tls)

    def admit(self, transport: asyncio.Transport, make: Callable[[], asyncio.Protocol]) -> asyncio.Protocol | None:
        """A connection was accepted: its protocol, or None when it may not stay."""
        if self._stopped:
            return None  # it was accepted while the server closed, which does not know of it
        if self._unlimited:
            return make()
        peer = str((transport.get_extra_info("peername") or ("",))[0])
        if not self._credits.spend(peer):
            self._refused("peer_connections")
            return None
        if len(self._open) >= self._limits.connections:
            self._sweep()
            if len(self._open) >= self._limits.connections and not self._displace():
                self._refused("connections")
                return None
        protocol = make()
        self._open[protocol] = _Connection(peer, transport, clock.monotonic())
        if self._sweeping is None:
            self._sweeping = asyncio.get_running_loop().call_later(_SWEEP_S, self._sweep_regularly)
        return protocol

    def vouch(self, protocol: asyncio.BaseProtocol, worker: object) -> bool:
        """A connection showed a valid token; whether its worker may have one more.

        Args:
            protocol: of the connection.
            worker: whose token it was.
        """
        connection = self._open.get(protocol)
        if connection is None or connection.worker == worker:
            return True
        mine = [each for each in self._of_worker.get(worker, ()) if not each.transport.is_closing()]
        if len(mine) >= self._limits.connections_per_worker:
            self._refused("worker_connections")
            return False
        if connection.worker is None:
            self._credits.give_back(connection.peer)
        connection.worker = worker
        self._of_worker[worker] = [*mine, connection]
        return True

    def known(self, protocol: asyncio.BaseProtocol) -> bool:
        """Whether a connection showed a valid token, or need not."""
        connection = self._open.get(protocol)
        return connection is None or connection.worker is not None

    def stop(self) -> None:
        """Let nobody in, and look after nothing any more."""
        self._stopped = True
        if self._sweeping is not None:
            self._sweeping.cancel()
            self._sweeping = None

    def _sweep_regularly(self) -> None:
        self._sweeping = None
        late = clock.monotonic() - self._limits.stranger_timeout.total_seconds()
        for each in self._open.values():
            if each.worker is None and each.opened_at <= late and not each.transport.is_closing():
                self._refused("idle_connection")
                each.transport.abort()
        self._sweep()
        if self._open:
            self._sweeping = asyncio.get_running_loop().call_later(_SWEEP_S, self._sweep_regularly)

    def _sweep(self) -> None:
        """Forget the connections that have ended."""
        self._open = {key: each for key, each in self._open.items() if not each.transport.is_closing()}
        self._of_worker = {}
        for each in self._open.values():
            if each.worker is not None:
                self._of_worker.setdefault(each.worker, []).append(each)

    def _displace(self) -> bool:
        """Close the oldest stranger of the address that has the most of them; whether there is one."""
        strangers = {key: each for key, each in self._open.items() if each.worker is None}
        if not strangers:
            return False
        (most, _), *_ = Counter(each.peer for each in strangers.values()).most_common(1)
        key, oldest = next((key, each) for key, each in strangers.items() if each.peer == most)
        self._refused("connections")
        oldest.transport.abort()
        del self._open[key]
        return True


class _Entrance(asyncio.Protocol):
    """Asks whether a connection may stay before anything is spent on it."""

    def __init__(
        self, connections: Connections, make: Callable[[], asyncio.Protocol], tls: ssl.SSLContext | None
    ) -> None:
        self._connections = connections
        self._make = make
        self._tls = tls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Hand the connection on, or close it."""
        assert isinstance(transport, asyncio.Transport)
        inner = self._connections.admit(transport, self._make)
        if inner is None:
            transport.abort()
            return
        outer: asyncio.BaseProtocol = inner
        if self._tls is not None:
            loop = asyncio.get_running_loop()
            outer = _SlimTls(loop, inner, self._tls, None, server_side=True)  # type: ignore[arg-type]
        transport.set_protocol(outer)
        outer.connection_made(transport)


class _SlimTls(sslproto.SSLProtocol):
    """TLS with a buffer of one record: that of the event loop has 256 KiB for every connection, however idle."""

    max_size = 16 * 1024
