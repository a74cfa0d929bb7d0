"""The connections of a coordinator, and their limits.

A new connection costs its address one credit, which is returned when it presents a valid token. Random tokens, idle
connections and failing handshakes therefore have one common limit: the credits of the address. Connections with a valid
token are limited by worker. The limits do not depend on unverified data of the client.
"""

from __future__ import annotations

import asyncio
import ssl
from asyncio import sslproto
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from millpond.protocol import clock

from .first_protocol import AdmissionProtocol
from .limits import Limits
from .token_bucket import TokenBuckets

__all__ = ("Connections",)

_SWEEP_S = 1.0


@dataclass(slots=True, eq=False)
class _Connection:
    peer: str
    transport: asyncio.Transport
    """The transport below TLS."""
    opened_at: float
    worker: object = None
    """The worker of the valid token that it presented; None before it presents one."""


class Connections:
    """Accepts connections, and closes those that stay without a valid token.

    Args:
        limits: the limits; None for none.
        rejected: called with the reason when a connection is closed or not accepted.
    """

    def __init__(self, limits: Limits | None, rejected: Callable[[str], None]) -> None:
        self._limits = limits or Limits()
        self._unlimited = limits is None
        self._rejected = rejected
        self._credits = TokenBuckets(self._limits.strangers_per_second, self._limits.strangers_burst)
        self._open: dict[asyncio.BaseProtocol, _Connection] = {}
        self._of_worker: dict[object, list[_Connection]] = {}
        self._sweeping: asyncio.TimerHandle | None = None
        self._stopped = False

    def __len__(self) -> int:
        return sum(not each.transport.is_closing() for each in self._open.values())

    def protocol_factory(
        self, make: Callable[[], asyncio.Protocol], tls: ssl.SSLContext | None
    ) -> Callable[[], asyncio.BaseProtocol]:
        """Return the protocol factory for a listening socket, with the limits, TLS, and then the protocol of `make`."""

        def with_tls(inner: asyncio.Protocol) -> asyncio.BaseProtocol:
            if tls is None:
                return inner
            loop = asyncio.get_running_loop()
            return _SmallBufferTls(loop, inner, tls, None, server_side=True)  # type: ignore[arg-type]

        return lambda: AdmissionProtocol(lambda transport: self.accept(transport, make), with_tls)

    def accept(self, transport: asyncio.Transport, make: Callable[[], asyncio.Protocol]) -> asyncio.Protocol | None:
        """Return the protocol of a new connection; None when it has to be closed."""
        if self._stopped:
            return None  # accepted while the server was closing
        if self._unlimited:
            return make()
        peer = str((transport.get_extra_info("peername") or ("",))[0])
        if not self._credits.spend(peer):
            self._rejected("peer_connections")
            return None
        if len(self._open) >= self._limits.connections:
            self._sweep()
            if len(self._open) >= self._limits.connections and not self._close_oldest_stranger():
                self._rejected("connections")
                return None
        protocol = make()
        self._open[protocol] = _Connection(peer, transport, clock.monotonic())
        if self._sweeping is None:
            self._sweeping = asyncio.get_running_loop().call_later(_SWEEP_S, self._sweep_regularly)
        return protocol

    def authenticated(self, protocol: asyncio.BaseProtocol, worker: object) -> bool:
        """Note that a connection presented a valid token; return whether its worker may have one more connection.

        Args:
            protocol: of the connection.
            worker: the worker that the token belongs to.
        """
        connection = self._open.get(protocol)
        if connection is None or connection.worker == worker:
            return True
        mine = [each for each in self._of_worker.get(worker, ()) if not each.transport.is_closing()]
        if len(mine) >= self._limits.connections_per_worker:
            self._rejected("worker_connections")
            return False
        if connection.worker is None:
            self._credits.give_back(connection.peer)
        connection.worker = worker
        self._of_worker[worker] = [*mine, connection]
        return True

    def known(self, protocol: asyncio.BaseProtocol) -> bool:
        """Return whether a connection presented a valid token, or need not."""
        connection = self._open.get(protocol)
        return connection is None or connection.worker is not None

    def stop(self) -> None:
        """Stop accepting connections, and stop closing idle ones."""
        self._stopped = True
        if self._sweeping is not None:
            self._sweeping.cancel()
            self._sweeping = None

    def _sweep_regularly(self) -> None:
        self._sweeping = None
        opened_before = clock.monotonic() - self._limits.stranger_timeout.total_seconds()
        for each in self._open.values():
            if each.worker is None and each.opened_at <= opened_before and not each.transport.is_closing():
                self._rejected("idle_connection")
                each.transport.abort()
        self._sweep()
        if self._open:
            self._sweeping = asyncio.get_running_loop().call_later(_SWEEP_S, self._sweep_regularly)

    def _sweep(self) -> None:
        """Forget connections that have ended."""
        self._open = {key: each for key, each in self._open.items() if not each.transport.is_closing()}
        self._of_worker = {}
        for each in self._open.values():
            if each.worker is not None:
                self._of_worker.setdefault(each.worker, []).append(each)

    def _close_oldest_stranger(self) -> bool:
        """Close the oldest connection without a token, of the address with most; return whether there was one."""
        strangers = {key: each for key, each in self._open.items() if each.worker is None}
        if not strangers:
            return False
        (most, _), *_ = Counter(each.peer for each in strangers.values()).most_common(1)
        key, oldest = next((key, each) for key, each in strangers.items() if each.peer == most)
        self._rejected("connections")
        oldest.transport.abort()
        del self._open[key]
        return True


class _SmallBufferTls(sslproto.SSLProtocol):
    """TLS with a buffer of one record. The event loop's has 256 KiB for every connection, even an idle one."""

    max_size = 16 * 1024
