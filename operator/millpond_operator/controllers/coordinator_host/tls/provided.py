"""A certificate of the coordinator that others create and renew, such as cert-manager: the operator only reads it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta

from millpond.errors import MillpondError
from millpond.protocol import clock
from millpond_operator.kubernetes import ApiError, Client, Forbidden, NotFound, kinds

from .certificates import Certificates, load
from .spread import Spread

__all__ = ("ProvidedCertificate", "Unusable", "handshake_error")

log = logging.getLogger(__name__)

_NAMES = ("tls.crt", "tls.key", "ca.crt")
_RETRY_S = 1.0
#: More than a handshake takes; each end may continue after it has finished.
_ROUNDS = 4
_CURE = "create it as cert-manager does, with tls.crt, tls.key and ca.crt, or set --certificate-source=managed."


class Unusable(MillpondError):
    """The Secret has no certificate that workers would accept."""


class ProvidedCertificate:
    """Serves the certificate of a Secret, and the next one as soon as it is there.

    A certificate of another authority is used when all workers have had time to load that authority, or when the
    current certificate expires.

    Args:
        client: reads the Secret.
        namespace: the namespace of the Secret.
        name: the name of the Secret.
        host: the host name by which workers reach the coordinator.
        spread: how long workers need to load a ConfigMap that was written.
        lacking: returns the names of the workers' ConfigMaps that do not contain an authority yet.
        on_change: called with the authorities, as PEM, when workers have to trust others than before.
        clock: returns the current time.

    Attributes:
        context: the server's SSL context, with the current certificate.
        trouble: why the Secret cannot be used, as one sentence; None when it can.
    """

    def __init__(  # noqa: PLR0913 - keyword-only where the meaning is not obvious
        self,
        client: Client,
        namespace: str,
        name: str,
        host: str,
        *,
        spread: timedelta,
        lacking: Callable[[str], Sequence[str]],
        on_change: Callable[[str], None],
        clock: Callable[[], datetime] = clock.now,
    ) -> None:
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.minimum_version = ssl.TLSVersion.TLSv1_2
        self.trouble: str | None = None
        self._client = client
        self._namespace, self._name, self._host = namespace, name, host
        self._spread = Spread(spread, lacking)
        self._on_change = on_change
        self._clock = clock
        self._current: Certificates | None = None
        self._following: Certificates | None = None

    @property
    def bundle(self) -> str:
        """The authorities that workers have to trust, as PEM; "" before `begin`."""
        both = (each.ca.rstrip("\n") + "\n" for each in (self._current, self._following) if each is not None)
        return "".join(dict.fromkeys(both))

    @property
    def expires(self) -> datetime | None:
        """When the current certificate expires; None before `begin`."""
        return None if self._current is None else self._current.expires

    def expiry(self) -> dict[str, datetime]:
        """Return when the authority and the certificate expire, as `Certificates.expiry`; empty before `begin`."""
        return {} if self._current is None else self._current.expiry()

    async def begin(self) -> None:
        """Load the certificate. Wait for it as long as it is missing or cannot be used."""
        while self._current is None:
            try:
                await self.look()
            except ApiError as error:
                self._report(str(error))
            if self._current is None:
                await asyncio.sleep(_RETRY_S)

    async def look(self) -> None:
        """Read the Secret again, and use what is new.

        Raises:
            ApiError: the Secret cannot be read; the current certificate stays in use.
        """
        now, before = self._clock(), self.bundle
        try:
            found = self._checked(await self._read())
        except Unusable as error:
            self._report(str(error))
            return
        self._report(None)
        if found != self._current:
            self._take(found, now)
        else:
            self._following = None
        if before and self.bundle != before:
            self._on_change(self.bundle)

    def _take(self, found: Certificates, now: datetime) -> None:
        """Use a new certificate, or have workers load its authority first."""
        current = self._current
        if current is not None and current.ca != found.ca and now < (current.expires or now):
            if self._following is None or self._following.ca != found.ca:
                log.warning("coordinator certificate: a new authority will replace the current one; workers get both")
                self._spread.restart()
                self._following = found
                return
            self._following = found
            if not self._spread.is_complete(found.ca, now):
                return
        load(self.context, found)
        self._current, self._following = found, None
        secret = f"{self._namespace}/{self._name}"
        log.info("coordinator certificate: using that of Secret %s, which expires at %s", secret, found.expires)

    async def _read(self) -> Certificates:
        what = f"Secret {self._namespace}/{self._name} for the coordinator's certificate"
        try:
            data = (await self._client.get(kinds.SECRET, self._namespace, self._name)).get("data") or {}
        except NotFound:
            raise Unusable(f"{what} does not exist: {_CURE}") from None
        except Forbidden as error:
            raise Unusable(f"{what} cannot be read ({error}): allow the operator's account to get it.") from error
        missing = [name for name in _NAMES if not data.get(name)]
        if missing:
            raise Unusable(f"{what} has no {' and no '.join(missing)}: {_CURE}")
        found = Certificates.of({name: data[name] for name in _NAMES})
        if found is None:
            raise Unusable(f"{what} has no PEM in {', '.join(_NAMES)}, which is no text: {_CURE}")
        return found

    def _checked(self, found: Certificates) -> Certificates:
        if found in (self._current, self._following):  # checked before
            return found
        reason = handshake_error(found, self._host)
        if reason is not None:
            raise Unusable(
                f"Workers would reject the certificate of Secret {self._namespace}/{self._name} ({reason}): it has to "
                f"be valid for {self._host}, and ca.crt has to contain the authority that signed it."
            )
        return found

    def _report(self, trouble: str | None) -> None:
        """Log a new reason why the Secret cannot be used, once."""
        if trouble is not None and trouble != self.trouble:
            kept = " The current certificate stays in use." if self._current is not None else ""
            log.error("coordinator certificate: %s%s", trouble, kept)
        self.trouble = trouble


def handshake_error(certificates: Certificates, host: str) -> str | None:
    """Return why a client that trusts the authority rejects a server with the certificate; None when it accepts it."""
    server, client = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        load(server, certificates)
        client.load_verify_locations(cadata=certificates.ca)
        to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
        ends = (
            client.wrap_bio(to_client, to_server, server_hostname=host),
            server.wrap_bio(to_server, to_client, server_side=True),
        )
        for end in ends * _ROUNDS:
            with contextlib.suppress(ssl.SSLWantReadError):
                end.do_handshake()
    except ssl.SSLCertVerificationError as error:
        return error.verify_message
    except (ssl.SSLError, ValueError) as error:
        return getattr(error, "reason", None) or str(error)
    return None
