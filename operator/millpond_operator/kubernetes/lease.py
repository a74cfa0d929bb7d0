"""The lease: which of several operators leads, and when the one that did must stop believing it does.

Times of other machines are never compared. A candidate takes the lease when it has seen it unchanged for as long as the
lease says; the leader stops writing earlier than that, counted from before it asked for its last renewal. The clock goes
on while the machine sleeps, so a process that was frozen for long finds out before it writes.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from millpond.protocol import clock

from .client import Client, Object
from .errors import AlreadyExists, ApiError, Conflict, Forbidden, LeadershipLost, NotFound
from .kinds import LEASE

__all__ = ("EPOCH_ANNOTATION", "Lease", "LeaseOptions")

log = logging.getLogger(__name__)

EPOCH_ANNOTATION = "millpond.dev/leader-epoch"
_MOST_TRANSITIONS = 2**31 - 1


@dataclass(frozen=True)
class LeaseOptions:
    """How long things may take."""

    duration: timedelta = timedelta(seconds=15)
    """A lease that was not renewed for that long is anybody's."""
    renew_deadline: timedelta = timedelta(seconds=10)
    """A leader that could not renew for that long stops."""
    retry_period: timedelta = timedelta(seconds=2)
    """How often it is renewed, or tried for."""


class Lease:
    """One process's part in who leads.

    Args:
        client: has no guard: leadership is what it is to get.
        namespace: where the lease is.
        identity: of this process, and of no other one before or after it.
        name: of the lease.
        options: how long things may take.
        on_change: is told when this process begins to lead, and when it stops.
        clock: seconds that never go back.

    Attributes:
        epoch: of the leadership of this process, greater than that of any leader before; 0 while it never led.
    """

    def __init__(
        self,
        client: Client,
        namespace: str,
        identity: str,
        *,
        name: str = "millpond-operator",
        options: LeaseOptions | None = None,
        on_change: Callable[[bool], None] = lambda _leads: None,
        clock: Callable[[], float] = clock.boottime,
    ) -> None:
        self.epoch = 0
        self.identity = identity
        self._client = client
        self._namespace = namespace
        self._name = name
        self._options = options or LeaseOptions()
        self._on_change = on_change
        self._clock = clock
        self._held: Object | None = None
        """The lease as this process wrote it last; None while it does not lead."""
        self._renewed_at = 0.0
        """When the last renewal that succeeded was asked for."""
        self._seen: Object | None = None
        self._seen_at = 0.0

    @property
    def leads(self) -> bool:
        """Whether this process may write."""
        return self._held is not None and self._left_s() > 0

    def check(self) -> None:
        """Pass only while this process leads.

        Raises:
            LeadershipLost: it does not, or cannot know that it does.
        """
        if self._held is None:
            raise LeadershipLost(f"{self.identity} is not the leader: it writes nothing.")
        if self._left_s() <= 0:
            raise LeadershipLost(
                f"{self.identity} could not renew its lease for {self._options.renew_deadline.total_seconds():g} s: "
                "another operator may lead by now, so it writes nothing any more."
            )

    async def acquire(self, floor: int = 0) -> None:
        """Wait until this process leads.

        Args:
            floor: the new epoch is greater than that, whatever the lease says.

        Raises:
            Forbidden: this operator may not use leases.
        """
        told = ""
        while True:
            trouble = None
            try:
                if await self._try_to_acquire(floor):
                    log.info("%s leads, with epoch %d.", self.identity, self.epoch)
                    self._on_change(True)
                    return
                holder = _spec(self._seen).get("holderIdentity") or ""
                if holder != told:
                    log.info("%s leads; %s stands by.", holder, self.identity)
                    told = holder
            except Conflict:
                trouble = None  # another one was faster
            except Forbidden:
                raise
            except ApiError as error:
                trouble = error
            if trouble is not None:
                log.warning("The lease %s/%s cannot be had for now: %s", self._namespace, self._name, trouble)
            await asyncio.sleep(self._options.retry_period.total_seconds() * random.uniform(0.75, 1.0))

    async def hold(self) -> None:
        """Renew until that is not possible any more.

        Raises:
            LeadershipLost: another one leads, or nobody can say.
        """
        try:
            while True:
                await asyncio.sleep(min(self._options.retry_period.total_seconds(), max(0.0, self._left_s())))
                self.check()
                try:
                    # One request that hangs must leave time for another.
                    async with asyncio.timeout(min(self._left_s(), self._options.renew_deadline.total_seconds() / 2)):
                        await self._renew()
                except TimeoutError:
                    log.warning("The lease was not renewed in time, %.1f s are left.", self._left_s())
                except LeadershipLost:
                    raise
                except ApiError as error:
                    log.warning("The lease could not be renewed, %.1f s are left: %s", self._left_s(), error)
        except LeadershipLost:
            self._lose()
            raise

    async def release(self) -> None:
        """Stop leading, and let another one begin at once. Does nothing when this process does not lead."""
        held = self._held
        if held is None:
            return
        leads = self._left_s() > 0
        self._lose()  # first: from here on nothing is written
        if leads:
            with contextlib.suppress(ApiError, LeadershipLost, TimeoutError):
                async with asyncio.timeout(self._options.renew_deadline.total_seconds() / 2):
                    await self._let_go(held)

    async def _let_go(self, held: Object) -> None:
        freed = {"holderIdentity": "", "leaseDurationSeconds": 1, "renewTime": _now()}
        try:
            await self._client.replace(LEASE, {**held, "spec": {**held["spec"], **freed}})
        except Conflict:  # a renewal went through whose answer nobody waited for, or somebody labelled it
            found = await self._client.get(LEASE, self._namespace, self._name)
            self._own(found)
            await self._client.replace(LEASE, {**found, "spec": {**found["spec"], **freed}})

    async def _try_to_acquire(self, floor: int) -> bool:
        began = self._clock()
        try:
            found = await self._client.get(LEASE, self._namespace, self._name)
        except NotFound:
            began = self._clock()
            epoch = max(int(clock.unix_time()), floor + 1)
            self._took(await self._client.create(LEASE, self._lease(epoch, transitions=0)), began)
            return True
        if self._seen is None or _version(found) != _version(self._seen):
            self._seen, self._seen_at = found, began
        spec = _spec(found)
        expired = began - self._seen_at >= float(spec.get("leaseDurationSeconds") or 0)
        if spec.get("holderIdentity") and not expired:
            return False
        # Epochs follow the time too: a lease that is deleted and made anew does not begin before where it was.
        epoch = max(_epoch(found) + 1, int(clock.unix_time()), floor + 1)
        transitions = min(int(spec.get("leaseTransitions") or 0) + 1, _MOST_TRANSITIONS)
        wanted = self._lease(epoch, transitions)
        wanted["metadata"]["resourceVersion"] = _version(found)
        began = self._clock()
        self._took(await self._client.replace(LEASE, wanted), began)
        return True

    async def _renew(self) -> None:
        assert self._held is not None
        began = self._clock()
        wanted = {**self._held, "spec": {**self._held["spec"], "renewTime": _now()}}
        try:
            self._took(await self._client.replace(LEASE, wanted), began)
        except (Conflict, NotFound):
            # Somebody took it, deleted it or only labelled it, or a renewal that got no answer went through.
            await self._renew_what_is_there()

    async def _renew_what_is_there(self) -> None:
        try:
            found = await self._client.get(LEASE, self._namespace, self._name)
        except NotFound:
            await self._make_anew()
            return
        self._own(found)
        began = self._clock()
        # A lasting change of the duration would keep candidates waiting, or let one take the lease while this process leads.
        wanted = {**found, "spec": {**found["spec"], "leaseDurationSeconds": self._duration_s(), "renewTime": _now()}}
        self._took(await self._client.replace(LEASE, wanted), began)

    async def _make_anew(self) -> None:
        began = self._clock()
        transitions = int(_spec(self._held).get("leaseTransitions") or 0)
        try:
            self._took(await self._client.create(LEASE, self._lease(self.epoch, transitions)), began)
            log.warning("The lease %s/%s was deleted; it is there again.", self._namespace, self._name)
        except AlreadyExists:
            self._own(await self._client.get(LEASE, self._namespace, self._name))

    def _own(self, found: Object) -> None:
        holder = _spec(found).get("holderIdentity")
        if holder != self.identity or _epoch(found) != self.epoch:
            raise LeadershipLost(f"{holder or 'Nobody'} leads by now, so {self.identity} stops.")

    def _took(self, lease: Object, began: float) -> None:
        self._held = lease
        self._renewed_at = began
        self.epoch = _epoch(lease)

    def _lose(self) -> None:
        if self._held is not None:
            self._held = None
            self._seen = None
            log.info("%s does not lead any more.", self.identity)
            self._on_change(False)

    def _left_s(self) -> float:
        return self._renewed_at + self._options.renew_deadline.total_seconds() - self._clock()

    def _duration_s(self) -> int:
        return max(1, round(self._options.duration.total_seconds()))

    def _lease(self, epoch: int, transitions: int) -> Object:
        now = _now()
        return {
            "apiVersion": LEASE.api_version,
            "kind": LEASE.kind,
            "metadata": {
                "namespace": self._namespace,
                "name": self._name,
                "annotations": {EPOCH_ANNOTATION: str(epoch)},
            },
            "spec": {
                "holderIdentity": self.identity,
                "leaseDurationSeconds": self._duration_s(),
                "acquireTime": now,
                "renewTime": now,
                "leaseTransitions": transitions,
            },
        }


def _spec(lease: Object | None) -> dict[str, Any]:
    return (lease or {}).get("spec") or {}


def _version(lease: Object) -> str:
    return str(lease["metadata"].get("resourceVersion", ""))


def _epoch(lease: Object) -> int:
    annotations = lease["metadata"].get("annotations") or {}
    try:
        return int(annotations.get(EPOCH_ANNOTATION, 0))
    except ValueError:
        return 0


def _now() -> str:
    return clock.now().strftime("%Y-%m-%dT%H:%M:%S.%fZ")
