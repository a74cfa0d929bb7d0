"""Which snapshots a StreamApp asks for by itself: by its schedule, or because a replay would take too long."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import datetime, timedelta

import msgspec

from millpond.protocol import Role, View
from millpond_operator.controllers.pass_context import ReconcilePass
from millpond_operator.controllers.rollout.pod_problems import Problem
from millpond_operator.controllers.rollout.status import Bootstrapped, instant, timestamp
from millpond_operator.kubernetes import AlreadyExists, Cache, Client, Forbidden, Invalid, kinds
from millpond_operator.resources import Bootstrap, StreamApp, bootstrap_name, owned_by, scheduled_bootstrap

from .cron import CronSchedule, ScheduleInvalid
from .status import BootstrapPhase, BootstrapStatus

__all__ = ("SnapshotSchedules", "offsets_of", "replay_s")

log = logging.getLogger(__name__)

_REPLAYED_PER_S = 150_000
"""Changelog records that a worker replays in a second, as workers assume it as well until they have measured it."""
_LOOKS_AGAIN = timedelta(minutes=1)
_REJECTED_AGAIN = timedelta(seconds=30)


class SnapshotSchedules:
    """Makes StateBootstraps that are due.

    Each has a name that follows from its moment: an operator that is killed between making it and writing that down finds it
    made.

    Args:
        client: to make them with; its answers go to the cache.
        cache: what there is.
    """

    def __init__(self, client: Client, cache: Cache) -> None:
        self._client = client
        self._cache = cache

    async def keep_up(self, work: ReconcilePass, view: View | None) -> Bootstrapped | None:
        """Make what is due, and tell in the pass why something is not made.

        Args:
            work: the pass.
            view: what the coordinator knows of the application, None when it does not serve it.

        Returns:
            What the status has to say from now on; None when the StreamApp asks for nothing.

        Raises:
            ApiError: it cannot be made; come again later.
        """
        app, wanted, now = work.app, work.app.spec.bootstrap, work.now
        if wanted is None or wanted.spark is None:
            return None
        work.snapshots = self._failure(app)
        named = f"{wanted.schedule} {wanted.time_zone}" if wanted.schedule is not None else ""
        told = work.status.bootstrap or Bootstrapped(since=timestamp(now), schedule=named)
        if told.schedule != named:  # what another schedule would have been due before is not made up for
            told = msgspec.structs.replace(told, since=timestamp(now), schedule=named)
        schedule = None
        if wanted.schedule is not None:
            try:
                schedule = CronSchedule(wanted.schedule, wanted.time_zone)
            except ScheduleInvalid as error:
                work.snapshots = Problem("ScheduleInvalid", str(error), settled=True)
        due = None if schedule is None else schedule.latest(instant(told.since, now), now)
        offsets = offsets_of(view)
        if due is None and self._replay_exceeds(work, wanted, told, offsets):
            due = now
        if any(not status.finished for status in self._own(app).values()):
            due = None  # it is made up for when the one before has ended
        if due is not None and not app.spec.suspended:
            # A task that no worker reports at the moment, as after this operator began, has got as far as it was before.
            reached = {**told.offsets, **offsets} if wanted.when_replay_exceeds is not None else {}
            told = await self._make(work, told, due, reached)
        elif due is not None:  # nothing has changed since the workers ended
            told = msgspec.structs.replace(told, since=timestamp(due))
        upcoming = None if schedule is None else schedule.after(now)
        if upcoming is not None:
            work.come_again(upcoming - now)
        return msgspec.structs.replace(told, next="" if upcoming is None else timestamp(upcoming))

    async def _make(
        self, work: ReconcilePass, told: Bootstrapped, due: datetime, offsets: Mapping[str, int]
    ) -> Bootstrapped:
        app, name = work.app, bootstrap_name(work.app, due)
        try:
            made = await self._client.create(kinds.STATE_BOOTSTRAP, scheduled_bootstrap(app, due))
        except AlreadyExists:
            pass  # by an operator that ended before it could write that down
        except (Forbidden, Invalid) as error:
            work.snapshots = Problem("Rejected", f"StateBootstrap '{name}' cannot be made: {error}", settled=True)
            work.come_again(_REJECTED_AGAIN)
            return told
        else:
            self._cache.put(kinds.STATE_BOOTSTRAP, made)
            log.info("StateBootstrap %s/%s is made.", app.namespace, name)
            work.events.append(("Normal", "SnapshotDue", f"StateBootstrap '{name}' is made."))
        return msgspec.structs.replace(told, since=timestamp(due), newest=name, offsets=dict(offsets))

    def _replay_exceeds(
        self, work: ReconcilePass, wanted: Bootstrap, told: Bootstrapped, offsets: Mapping[str, int]
    ) -> bool:
        if wanted.when_replay_exceeds is None:
            return False
        work.come_again(_LOOKS_AGAIN)
        return replay_s(offsets, told.offsets) > wanted.when_replay_exceeds.total_seconds()

    def _failure(self, app: StreamApp) -> Problem | None:
        """Why the last one that ended failed; None when it did not."""
        ended = {name: status for name, status in self._own(app).items() if status.finished}
        if not ended:
            return None
        name, status = max(ended.items(), key=lambda each: (each[1].finished_at, each[0]))
        if status.phase != BootstrapPhase.FAILED:
            return None
        return Problem("SnapshotFailed", f"StateBootstrap '{name}' failed: {status.message}", settled=True)

    def _own(self, app: StreamApp) -> dict[str, BootstrapStatus]:
        return {
            raw["metadata"]["name"]: BootstrapStatus.of(raw.get("status"))
            for raw in self._cache.of_app(kinds.STATE_BOOTSTRAP, app.namespace, app.name)
            if owned_by(app, raw)
        }


def offsets_of(view: View | None) -> dict[str, int]:
    """The changelog offsets that active tasks have reached, summed over the stores of each task."""
    if view is None:
        return {}
    return {
        task: report.offset
        for member in view.members
        if member.alive
        for task, report in member.tasks.items()
        if report.role is Role.ACTIVE and report.offset > 0
    }


def replay_s(offsets: Mapping[str, int], then: Mapping[str, int]) -> float:
    """How long the longest replay of a task would take that begins from a snapshot, in seconds.

    Args:
        offsets: that tasks have reached.
        then: that they had reached when the snapshot was begun; what is not in there is replayed from its beginning.
    """
    return max((offset - then.get(task, 0) for task, offset in offsets.items()), default=0) / _REPLAYED_PER_S
