"""Decides about a connection before anything else uses memory and CPU time for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

__all__ = ("AdmissionProtocol",)


class AdmissionProtocol(asyncio.Protocol):
    """The first protocol of a connection: it passes the connection on, or closes it.

    Args:
        accept: returns the protocol of a new connection; None when it has to be closed.
        outer: returns the protocol around that one, such as TLS.
    """

    def __init__(
        self,
        accept: Callable[[asyncio.Transport], asyncio.Protocol | None],
        outer: Callable[[asyncio.Protocol], asyncio.BaseProtocol] = lambda inner: inner,
    ) -> None:
        self._accept = accept
        self._outer = outer

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Pass the connection on, or close it."""
        assert isinstance(transport, asyncio.Transport)
        inner = self._accept(transport)
        if inner is None:
            transport.abort()
            return
        outer = self._outer(inner)
        transport.set_protocol(outer)
        outer.connection_made(transport)
