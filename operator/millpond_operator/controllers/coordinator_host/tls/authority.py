"""Whom workers trust: the coordinator's authority outlives its Secret, and changes only when workers know the next one.

Certificates are kept in a Secret, from which the next leader has them, and in the memory of the leader, which writes them
back when the Secret is deleted or damaged. An authority that is to take the place of another one, because that ends or
because somebody put it into the Secret, is kept beside it until all workers had the time to get both.
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

__all__ = ("CertificateAuthority", "Kept", "looked_after")

log = logging.getLogger(__name__)

_NEXT = "next-"
_TRIES = 5
_BACKOFF = Backoff(timedelta(milliseconds=100), timedelta(seconds=2))


@dataclass(frozen=True)
class Kept:
    """What is in the Secret."""

    current: Certificates
    """What the coordinator serves with."""
    following: Certificates | None = None
    """What it will serve with, by another authority."""

    @property
    def bundle(self) -> str:
        """The authorities that workers have to trust."""
        both = (self.current, self.following)
        return "".join(each.ca.rstrip("\n") + "\n" for each in both if each is not None)

    def as_data(self) -> dict[str, str]:
        """The data of a Secret."""
        return self.current.as_data() | (self.following.as_data(_NEXT) if self.following is not None else {})

    @classmethod
    def of(cls, secret: Object) -> Kept | None:
        """What is in a Secret, of use or not; None when nothing is."""
        data = secret.get("data") or {}
        current = Certificates.of(data)
        return None if current is None else cls(current, Certificates.of(data, _NEXT))


def looked_after(known: Kept | None, found: Kept | None, hosts: Sequence[str], now: datetime) -> Kept:
    """What should be kept.

    Args:
        known: what this process serves with; None when it has just begun to lead.
        found: what is in the Secret.
        hosts: the names of the coordinator.
        now: the time.
    """
    kept = (_begun(found, now) if known is None else _with_found(known, found, now)) or Kept(issued(hosts, now))
    current, following = kept.current, kept.following
    if not current.signs(now) and not current.serves(now):
        return Kept(following if following is not None else issued(hosts, now))
    if current.renewal_due(hosts, now) and current.signs(now):
        current = issued(hosts, now, current)
    if following is None and current.authority_due(now):  # while it serves, workers hear of the next one
        following = issued(hosts, now)
    return Kept(current, following)


def _begun(found: Kept | None, now: datetime) -> Kept | None:
    """What a leader begins with."""
    if found is None:
        return None
    following = found.following if found.following is not None and _whole(found.following, now) else None
    if found.current.signs(now) or found.current.serves(now):
        return Kept(found.current, following)
    return None if following is None else Kept(following)


def _with_found(known: Kept, found: Kept | None, now: datetime) -> Kept:
    """What this process knows, and what somebody else may have written."""
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
    """Looks after the certificates of one coordinator.

    Args:
        client: to read and write the Secret with.
        namespace: of the Secret.
        name: of the Secret.
        hosts: the names of the coordinator.
        spread: how long workers need to get what was written for them.
        lacking: names what was not yet written for workers that have to trust an authority.
        on_change: is told when workers have to trust others than before.
        clock: the time of day.

    Attributes:
        context: for a server, with the current certificate.
    """

    def __init__(
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
        self._spread = spread
        self._lacking = lacking
        self._on_change = on_change
        self._clock = clock
        self._kept: Kept | None = None
        self._known_since: datetime | None = None
        """When the following authority had been written for all workers."""
        self._told: tuple[str, ...] = ()

    @property
    def bundle(self) -> str:
        """The authorities that workers have to trust, PEM."""
        return "" if self._kept is None else self._kept.bundle

    async def begin(self) -> None:
        """Have a certificate.

        Raises:
            ApiError: the Secret can be neither read nor written.
        """
        for attempt in range(_TRIES):
            try:
                await self.look()
            except Conflict:  # another operator was a moment faster
                if attempt == _TRIES - 1:
                    raise
                await asyncio.sleep(_BACKOFF.wait_s(attempt + 1))
            else:
                return

    async def look(self) -> None:
        """See to what is due: write back, renew, and go on to the following authority.

        Raises:
            ApiError: the Secret cannot be read or written; what there is is served with.
        """
        try:
            secret: Object | None = await self._client.get(kinds.SECRET, self._namespace, self._name)
        except NotFound:
            secret = None
        now, before = self._clock(), self._kept
        kept = looked_after(before, None if secret is None else Kept.of(secret), self._hosts, now)
        if before is not None and kept.following is not None and self._is_known(kept.following, before, now):
            kept = looked_after(Kept(kept.following), None, self._hosts, now)
            log.warning("The coordinator has another authority from now on; all workers had the time to hear of it.")
        await self._write(secret, kept)
        self._use(kept)

    def _is_known(self, following: Certificates, before: Kept, now: datetime) -> bool:
        """Whether all workers had the time to get an authority."""
        if before.following is None or not following.same_authority(before.following):
            self._known_since = None
            return False
        lacking = tuple(self._lacking(following.ca))
        if lacking:
            self._known_since = None
            if lacking != self._told:
                log.info("The coordinator's next authority is not yet known to %s.", _some(lacking))
            self._told = lacking
            return False
        if self._known_since is None:
            self._known_since = now
        return now - self._known_since >= self._spread

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
            # The type of a Secret never changes.
            await self._client.replace(kinds.SECRET, wanted | {"type": secret.get("type", "Opaque")})
        log.info("The Secret %s/%s has the coordinator's certificate.", self._namespace, self._name)

    def _use(self, kept: Kept) -> None:
        before, self._kept = self._kept, kept
        if before is None or before.current != kept.current:
            load(self.context, kept.current)
        if before is not None and before.bundle != kept.bundle:
            if kept.following is not None:
                log.warning("The coordinator will have another authority; all workers are told of both.")
            self._on_change(kept.bundle)


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
