"""TLS of a simulation: the virtual clock decides whether certificates are valid; OpenSSL only knows the machine's."""

from __future__ import annotations

import asyncio
import ssl
from asyncio import sslproto
from typing import TYPE_CHECKING, Any

from cryptography import x509

from millpond.protocol import clock

if TYPE_CHECKING:
    from tests.simulation.loop import VirtualLoop

__all__ = ("tls_protocol",)

#: X509_V_FLAG_NO_CHECK_TIME of OpenSSL, which Python has no name for.
_NO_CHECK_TIME = 0x200000


def tls_protocol(
    loop: VirtualLoop,
    protocol: asyncio.BaseProtocol,
    tls: ssl.SSLContext,
    *,
    waiter: asyncio.Future[Any] | None = None,
    server_side: bool = False,
    server_hostname: str | None = None,
) -> sslproto.SSLProtocol:
    """Return TLS between a connection and a protocol."""
    tls.verify_flags |= _NO_CHECK_TIME
    return _VirtualTls(loop, protocol, tls, waiter, server_side, server_hostname)


class _VirtualTls(sslproto.SSLProtocol):
    def _on_handshake_complete(self, handshake_exc: BaseException | None) -> None:
        super()._on_handshake_complete(handshake_exc or self._invalid_now())  # type: ignore[misc]

    def _invalid_now(self) -> ssl.SSLCertVerificationError | None:
        wrapped: Any = self._sslobj  # type: ignore[attr-defined]
        if wrapped.context.verify_mode is ssl.CERT_NONE:
            return None
        now = clock.now()
        for each in wrapped._sslobj.get_verified_chain():
            found = x509.load_pem_x509_certificate(each.public_bytes().encode())
            if not found.not_valid_before_utc <= now <= found.not_valid_after_utc:
                name = found.subject.rfc4514_string()
                return ssl.SSLCertVerificationError(f"certificate verify failed: at {now:%F %T} '{name}' is not valid")
        return None
