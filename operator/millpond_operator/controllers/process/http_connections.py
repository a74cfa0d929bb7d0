"""The connections of the operator's HTTP port, and their limits.

Clients of this port have no tokens, so nobody can be told from anybody else but by address. A new connection is always
accepted: when there are too many, the oldest one of the address with most of them is closed. So neither another address
nor old connections of the same one keep a probe of the kubelet from its answer.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta

from millpond.protocol import clock
from millpond_operator.coordinator import AdmissionProtocol

__all__ = ("CLOSE_REASONS", "HttpConnections", "HttpLimits")

_SWEEP_S = 1.0
CLOSE_REASONS = ("connections", "documents", "header_timeout", "answer_timeout")
"""Why the server closes a connection before its client has the response."""


@dataclass(frozen=True, kw_only=True)
class HttpLimits:
    """The limits of connections. Each connection carries one request: no idle one is kept."""

    connections: int = 128
    """Connections in total."""
    documents: int = 8
    """Connections with a request for anything but a probe: a response about thousands of StreamApps has megabytes
    that stay in memory until the client has read them."""
    header_timeout: timedelta = timedelta(seconds=10)
    """The headers of the request have to arrive within this time."""
    answer_timeout: timedelta = timedelta(seconds=60)
    """The client has to have the whole response within this time of its connection."""


@dataclass(slots=True, eq=False)
class _Connection:
    peer: str
    transport: asyncio.Transport
    opened_at: float
    requested: bool = False
    """Whether the headers of the request have arrived."""
    document: bool = False
    """Whether the request is for anything but a probe."""


class HttpConnections:
    """Accepts connections, and closes those that are too many or too slow.

    Args:
        limits: the limits.
        closed: called with one of `CLOSE_REASONS` when a connection is closed.
    """

    def __init__(self, limits: HttpLimits, closed: Callable[[str], None]) -> None:
        self._limits = limits
        self._closed = closed
        self._open: dict[asyncio.BaseProtocol, _Connection] = {}
        self._sweeping: asyncio.TimerHandle | None = None
        self._stopped = False

    def __len__(self) -> int:
        return sum(not each.transport.is_closing() for each in self._open.values())

    def protocol_factory(self, make: Callable[[], asyncio.Protocol]) -> Callable[[], asyncio.BaseProtocol]:
        """Return the protocol factory for a listening socket, with the limits, and then the protocol of `make`."""
        return lambda: AdmissionProtocol(lambda transport: self.accept(transport, make))

    def accept(self, transport: asyncio.Transport, make: Callable[[], asyncio.Protocol]) -> asyncio.Protocol | None:
        """Return the protocol of a new connection; None while the server stops."""
        if self._stopped:
            return None
        if len(self._open) >= self._limits.connections:
            self._forget_closed()
            if len(self._open) >= self._limits.connections:
                self._close_oldest("connections", self._open)
        peer = str((transport.get_extra_info("peername") or ("",))[0])
        protocol = make()
        self._open[protocol] = _Connection(peer, transport, clock.monotonic())
        if self._sweeping is None:
            self._sweeping = asyncio.get_running_loop().call_later(_SWEEP_S, self._sweep)
        return protocol

    def requested(self, protocol: asyncio.BaseProtocol, *, document: bool) -> None:
        """Note that the headers of a request have arrived.

        Args:
            protocol: of the connection.
            document: whether the request is for anything but a probe.
        """
        connection = self._open.get(protocol)
        if connection is None:
            return
        connection.requested, connection.document = True, document
        if document:
            self._forget_closed()
            documents = {key: each for key, each in self._open.items() if each.document}
            if len(documents) > self._limits.documents:
                self._close_oldest("documents", documents)

    def stop(self) -> None:
        """Stop accepting connections, and stop closing slow ones."""
        self._stopped = True
        if self._sweeping is not None:
            self._sweeping.cancel()
            self._sweeping = None

    def _sweep(self) -> None:
        self._sweeping = None
        now = clock.monotonic()
        self._forget_closed()
        for key, each in list(self._open.items()):
            age = now - each.opened_at
            if not each.requested and age >= self._limits.header_timeout.total_seconds():
                self._close(key, "header_timeout")
            elif age >= self._limits.answer_timeout.total_seconds():
                self._close(key, "answer_timeout")
        if self._open:
            self._sweeping = asyncio.get_running_loop().call_later(_SWEEP_S, self._sweep)

    def _forget_closed(self) -> None:
        self._open = {key: each for key, each in self._open.items() if not each.transport.is_closing()}

    def _close_oldest(self, reason: str, among: Mapping[asyncio.BaseProtocol, _Connection]) -> None:
        """Close the oldest of some connections, of the address with most of them."""
        ((most, _),) = Counter(each.peer for each in among.values()).most_common(1)
        self._close(next(key for key, each in among.items() if each.peer == most), reason)

    def _close(self, key: asyncio.BaseProtocol, reason: str) -> None:
        self._closed(reason)
        self._open.pop(key).transport.abort()
