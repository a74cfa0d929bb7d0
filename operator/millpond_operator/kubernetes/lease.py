"""The lease: election of a leader among several operators, and the time limit of its writes.

Clocks of different machines are never compared. A candidate takes the lease after it saw it unchanged for the lease's
duration; the leader stops writing earlier, counted from before it requested its last renewal. The clock continues while
the machine sleeps, so a process that was suspended for long notices that before it writes.
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
_MAX_TRANSITIONS = 2**31 - 1


@dataclass(frozen=True)
class LeaseOptions:
    """Durations."""

    duration: timedelta = timedelta(seconds=15)
    """A lease that was not renewed for this long may be taken."""
    renew_deadline: timedelta = timedelta(seconds=10)
    """A leader that could not renew for this long stops."""
    retry_period: timedelta = timedelta(seconds=2)
    """How often the leader renews, and a candidate tries."""


class Lease:
    """The leader election of one process.

    Args:
        client: a client without a guard, since the lease is written to become the leader.
        namespace: of the lease.
        identity: of this process; never used by another one.
        name: of the lease.
        options: durations.
        on_change: called with True when this process starts to lead, with False when it stops.
        clock: seconds; never goes back.

    Attributes:
        epoch: the epoch of this process as the leader, greater than that of every earlier leader; 0 if it never led.
    """

    def __init__(  # noqa: PLR0913 - keyword-only options
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
        """When the last successful renewal was requested."""
        self._observed: Object | None = None
        self._observed_at = 0.0

    @property
    def leads(self) -> bool:
        """Whether this process may write."""
        return self._held is not None and self._remaining_s() > 0

    def check(self) -> None:
        """Return only while this process leads.

        Raises:
            LeadershipLost: it does not lead, or cannot be sure.
        """
        if self._held is None:
            raise LeadershipLost(f"{self.identity} is not the leader: it must not write.")
        if self._remaining_s() <= 0:
            raise LeadershipLost(
                f"{self.identity} could not renew its lease for {self._options.renew_deadline.total_seconds():g} s: "
                "another operator may lead now, so it stops writing."
            )

    async def acquire(self, floor: int = 0) -> None:
        """Wait until this process leads.

        Args:
            floor: the new epoch is greater than this.

        Raises:
            Forbidden: the operator lacks permission for leases.
        """
        logged_holder = ""
        while True:
            trouble = None
            try:
                if await self._try_to_acquire(floor):
                    log.info("lease: %s leads with epoch %d", self.identity, self.epoch)
                    self._on_change(True)  # noqa: FBT003 - the only argument of the callback
                    return
                holder = _spec(self._observed).get("holderIdentity") or ""
                if holder != logged_holder:
                    log.info("lease: %s leads; %s waits", holder, self.identity)
                    logged_holder = holder
            except Conflict:
                trouble = None  # another candidate was faster
            except Forbidden:
                raise
            except ApiError as error:
                trouble = error
            if trouble is not None:
                log.warning("lease %s/%s: cannot acquire it; retrying: %s", self._namespace, self._name, trouble)
            await asyncio.sleep(self._options.retry_period.total_seconds() * random.uniform(0.75, 1.0))

    async def hold(self) -> None:
        """Renew the lease until that fails.

        Raises:
            LeadershipLost: another process leads, or the lease could not be renewed in time.
        """
        try:
            while True:
                await asyncio.sleep(min(self._options.retry_period.total_seconds(), max(0.0, self._remaining_s())))
                self.check()
                try:
                    # A request that hangs must leave time for another one.
                    async with asyncio.timeout(
                        min(self._remaining_s(), self._options.renew_deadline.total_seconds() / 2)
                    ):
                        await self._renew()
                except TimeoutError:
                    log.warning("lease: the renewal timed out; retrying for %.1f s", self._remaining_s())
                except LeadershipLost:
                    raise
                except ApiError as error:
                    log.warning("lease: the renewal failed; retrying for %.1f s: %s", self._remaining_s(), error)
        except LeadershipLost:
            self._lose()
            raise

    async def release(self) -> None:
        """Stop leading, and let another process lead at once. Does nothing if this process does not lead."""
        held = self._held
        if held is None:
            return
        leads = self._remaining_s() > 0
        self._lose()  # first, so that nothing is written from here on
        if leads:
            with contextlib.suppress(ApiError, LeadershipLost, TimeoutError):
                async with asyncio.timeout(self._options.renew_deadline.total_seconds() / 2):
                    await self._free_lease(held)

    async def _free_lease(self, held: Object) -> None:
        freed = {"holderIdentity": "", "leaseDurationSeconds": 1, "renewTime": _now()}
        try:
            await self._client.replace(LEASE, {**held, "spec": {**held["spec"], **freed}})
        except Conflict:  # a renewal whose response was lost, or a change of a label
            found = await self._client.get(LEASE, self._namespace, self._name)
            self._check_holder(found)
            await self._client.replace(LEASE, {**found, "spec": {**found["spec"], **freed}})

    async def _try_to_acquire(self, floor: int) -> bool:
        began = self._clock()
        try:
            found = await self._client.get(LEASE, self._namespace, self._name)
        except NotFound:
            began = self._clock()
            epoch = max(int(clock.unix_time()), floor + 1)
            self._holds(await self._client.create(LEASE, self._lease(epoch, transitions=0)), began)
            return True
        if self._observed is None or _version(found) != _version(self._observed):
            self._observed, self._observed_at = found, began
        spec = _spec(found)
        expired = began - self._observed_at >= float(spec.get("leaseDurationSeconds") or 0)
        if spec.get("holderIdentity") and not expired:
            return False
        # Epochs also follow the time, so that they do not go back after the lease was deleted.
        epoch = max(_epoch(found) + 1, int(clock.unix_time()), floor + 1)
        transitions = min(int(spec.get("leaseTransitions") or 0) + 1, _MAX_TRANSITIONS)
        wanted = self._lease(epoch, transitions)
        wanted["metadata"]["resourceVersion"] = _version(found)
        began = self._clock()
        self._holds(await self._client.replace(LEASE, wanted), began)
        return True

    async def _renew(self) -> None:
        assert self._held is not None
        began = self._clock()
        wanted = {**self._held, "spec": {**self._held["spec"], "renewTime": _now()}}
        try:
            self._holds(await self._client.replace(LEASE, wanted), began)
        except (Conflict, NotFound):
            # It was taken, deleted or only labelled, or an earlier renewal succeeded without a response.
            await self._renew_latest()

    async def _renew_latest(self) -> None:
        try:
            found = await self._client.get(LEASE, self._namespace, self._name)
        except NotFound:
            await self._create_again()
            return
        self._check_holder(found)
        began = self._clock()
        # Restore the duration: a changed one would delay candidates, or let one take the lease from this process.
        wanted = {**found, "spec": {**found["spec"], "leaseDurationSeconds": self._duration_s(), "renewTime": _now()}}
        self._holds(await self._client.replace(LEASE, wanted), began)

    async def _create_again(self) -> None:
        began = self._clock()
        transitions = int(_spec(self._held).get("leaseTransitions") or 0)
        try:
            self._holds(await self._client.create(LEASE, self._lease(self.epoch, transitions)), began)
            log.warning("lease %s/%s: was deleted; created it again", self._namespace, self._name)
        except AlreadyExists:
            self._check_holder(await self._client.get(LEASE, self._namespace, self._name))

    def _check_holder(self, found: Object) -> None:
        holder = _spec(found).get("holderIdentity")
        if holder != self.identity or _epoch(found) != self.epoch:
            raise LeadershipLost(f"{holder or 'No operator'} leads now: {self.identity} stops.")

    def _holds(self, lease: Object, began: float) -> None:
        self._held = lease
        self._renewed_at = began
        self.epoch = _epoch(lease)

    def _lose(self) -> None:
        if self._held is not None:
            self._held = None
            self._observed = None
            log.info("lease: %s no longer leads", self.identity)
            self._on_change(False)  # noqa: FBT003 - the only argument of the callback

    def _remaining_s(self) -> float:
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
