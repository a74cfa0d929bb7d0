"""The coordinator's certificate authority. It survives the loss of its Secret, and workers trust it before it is used.

Certificates are kept in a Secret for the next leader, and in the leader's memory, from which it restores the Secret
when that is deleted or damaged. An authority is replaced when it expires soon, or when another client writes another
one into the Secret. Both are kept side by side until all workers have had time to load both.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from millpond.backoff import Backoff
from millpond.protocol import clock
from millpond_operator.kubernetes import Client, Conflict, NotFound, Object, kinds

from .certificates import Certificates, issued, load
from .spread import Spread

__all__ = ("CertificateAuthority", "Kept", "looked_after")

log = logging.getLogger(__name__)

_NEXT = "next-"
_TRIES = 5
_BACKOFF = Backoff(timedelta(milliseconds=100), timedelta(seconds=2))


@dataclass(frozen=True)
class Kept:
    """The content of the Secret."""

    current: Certificates
    """The certificates in use."""
    following: Certificates | None = None
    """The next certificates, of another authority."""

    @property
    def bundle(self) -> str:
        """The authorities that workers have to trust, as PEM."""
        both = (self.current, self.following)
        return "".join(each.ca.rstrip("\n") + "\n" for each in both if each is not None)

    def as_data(self) -> dict[str, str]:
        """Return the data of the Secret."""
        return self.current.as_data() | (self.following.as_data(_NEXT) if self.following is not None else {})

    @classmethod
    def of(cls, secret: Object) -> Kept | None:
        """Return the content of a Secret, usable or not; None when it is empty."""
        data = secret.get("data") or {}
        current = Certificates.of(data)
        return None if current is None else cls(current, Certificates.of(data, _NEXT))


def looked_after(known: Kept | None, found: Kept | None, hosts: Sequence[str], now: datetime) -> Kept:
    """Return what the Secret should contain.

    Args:
        known: the certificates that this process uses; None when it has just begun to lead.
        found: the content of the Secret.
        hosts: the host names of the coordinator.
        now: the current time.
    """
    kept = (_begun(found, now) if known is None else _with_found(known, found, now)) or Kept(issued(hosts, now))
    current, following = kept.current, kept.following
    if not current.signs(now) and not current.serves(now):
        return Kept(following if following is not None else issued(hosts, now))
    if current.renewal_due(hosts, now) and current.signs(now):
        current = issued(hosts, now, current)
    if following is None and current.authority_due(now):  # while it is in use, workers load the next one
        following = issued(hosts, now)
    return Kept(current, following)


def _begun(found: Kept | None, now: datetime) -> Kept | None:
    """Return the certificates of a new leader; None when the Secret has nothing usable."""
    if found is None:
        return None
    following = found.following if found.following is not None and _whole(found.following, now) else None
    if found.current.signs(now) or found.current.serves(now):
        return Kept(found.current, following)
    return None if following is None else Kept(following)


def _with_found(known: Kept, found: Kept | None, now: datetime) -> Kept:
    """Return the certificates of this process, with an authority that another client wrote into the Secret."""
    if found is None or not _whole(found.current, now):
        return known
    if found.current.same_authority(known.current):
        return replace(known, current=found.current)
    if known.following is None or not found.current.same_authority(known.following):
        return replace(known, following=found.current)
    return known


def _whole(certificates: Certificates, now: datetime) -> bool:
    return certificates.signs(now) and certificates.serves(now)


class CertificateAuthority:
    """Creates, renews and replaces the certificates of one coordinator.

    Args:
        client: reads and writes the Secret.
        namespace: the namespace of the Secret.
        name: the name of the Secret.
        hosts: the host names of the coordinator.
        spread: how long workers need to load a ConfigMap that was written.
        lacking: returns the names of the workers' ConfigMaps that do not contain an authority yet.
        on_change: called with the authorities, as PEM, when workers have to trust others than before.
        clock: returns the current time.

    Attributes:
        context: the server's SSL context, with the current certificate.
    """

    def __init__(  # noqa: PLR0913 - keyword-only where the meaning is not obvious
        self,
        client: Client,
        namespace: str,
        name: str,
        hosts: Sequence[str],
        *,
        spread: timedelta,
        lacking: Callable[[str], Sequence[str]],
        on_change: Callable[[str], None],
        clock: Callable[[], datetime] = clock.now,
    ) -> None:
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.minimum_version = ssl.TLSVersion.TLSv1_2
        self._client = client
        self._namespace, self._name = namespace, name
        self._hosts = tuple(hosts)
        self._spread = Spread(spread, lacking)
        self._on_change = on_change
        self._clock = clock
        self._kept: Kept | None = None

    @property
    def trouble(self) -> str | None:
        """Why there is no certificate; None, since this authority creates what is missing."""
        return None

    @property
    def bundle(self) -> str:
        """The authorities that workers have to trust, as PEM; "" before `begin`."""
        return "" if self._kept is None else self._kept.bundle

    def expiry(self) -> dict[str, datetime]:
        """Return when the certificates in use expire: `authority` and `server`; empty before `begin`."""
        return {} if self._kept is None else self._kept.current.expiry()

    async def begin(self) -> None:
        """Load or create the certificates.

        Raises:
            ApiError: the Secret cannot be read or written.
        """
        for attempt in range(_TRIES):
            try:
                await self.look()
            except Conflict:  # another operator wrote it at the same moment
                if attempt == _TRIES - 1:
                    raise
                await asyncio.sleep(_BACKOFF.wait_s(attempt + 1))
            else:
                return

    async def look(self) -> None:
        """Restore the Secret, renew the certificate, or switch to the following authority, where it is due.

        Raises:
            ApiError: the Secret cannot be read or written; the current certificates stay in use.
        """
        try:
            secret: Object | None = await self._client.get(kinds.SECRET, self._namespace, self._name)
        except NotFound:
            secret = None
        now, before = self._clock(), self._kept
        kept = looked_after(before, None if secret is None else Kept.of(secret), self._hosts, now)
        if before is not None and kept.following is not None and self._is_known(kept.following, before, now):
            kept = looked_after(Kept(kept.following), None, self._hosts, now)
            log.warning("coordinator certificate: switched to the next authority, which all workers had time to load")
        await self._write(secret, kept)
        self._use(kept)

    def _is_known(self, following: Certificates, before: Kept, now: datetime) -> bool:
        """Return whether all workers have had time to load an authority."""
        if before.following is None or not following.same_authority(before.following):
            self._spread.restart()
            return False
        return self._spread.is_complete(following.ca, now)

    async def _write(self, secret: Object | None, kept: Kept) -> None:
        data = kept.as_data()
        if secret is not None and secret.get("data") == data:
            return
        wanted: Object = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {
                "name": self._name,
                "namespace": self._namespace,
                "labels": {"app.kubernetes.io/part-of": "millpond"},
            },
            "type": "Opaque",
            "data": data,
        }
        if secret is None:
            await self._client.create(kinds.SECRET, wanted)
        else:
            wanted["metadata"]["resourceVersion"] = secret["metadata"]["resourceVersion"]
            # The type of a Secret is immutable.
            await self._client.replace(kinds.SECRET, wanted | {"type": secret.get("type", "Opaque")})
        log.info("Secret %s/%s: wrote the coordinator's certificate", self._namespace, self._name)

    def _use(self, kept: Kept) -> None:
        before, self._kept = self._kept, kept
        if before is None or before.current != kept.current:
            load(self.context, kept.current)
        if before is not None and before.bundle != kept.bundle:
            if kept.following is not None:
                log.warning("coordinator certificate: a new authority will replace the current one; workers get both")
            self._on_change(kept.bundle)
