"""Snapshots that a StreamApp asks for: by its schedule, or because replaying a changelog would take too long."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import datetime, timedelta

import msgspec

from millpond.protocol import Role, View
from millpond_operator.controllers.pass_context import ReconcilePass
from millpond_operator.controllers.rollout.problems import Problem
from millpond_operator.controllers.rollout.status import Bootstrapped, instant, timestamp
from millpond_operator.kubernetes import AlreadyExists, Cache, Client, Forbidden, Invalid, kinds
from millpond_operator.resources import Bootstrap, StreamApp, bootstrap_name, owned_by, scheduled_bootstrap
from millpond_operator.resources.cron import CronSchedule, ScheduleInvalid

from .status import BootstrapPhase, BootstrapStatus

__all__ = ("SnapshotSchedules", "offsets_of", "replay_s")

log = logging.getLogger(__name__)

_REPLAY_RATE = 150_000
"""The changelog records that a worker replays per second. Workers assume the same until they have measured it."""
_CHECK_INTERVAL = timedelta(minutes=1)
_REJECTED_RETRY = timedelta(seconds=30)


class SnapshotSchedules:
    """Creates StateBootstraps that are due.

    The name of each follows from its due time. So an operator that starts after a kill finds a StateBootstrap that was
    created but is not in the status yet.

    Args:
        client: creates StateBootstraps; its responses go to the cache.
        cache: the known objects.
    """

    def __init__(self, client: Client, cache: Cache) -> None:
        self._client = client
        self._cache = cache

    async def keep_up(self, work: ReconcilePass, view: View | None) -> Bootstrapped | None:
        """Create a StateBootstrap that is due, and set in the pass why it cannot be created.

        Args:
            work: the pass.
            view: the coordinator's view of the application; None when it does not serve it.

        Returns:
            The new state for the status; None when the StreamApp asks for no snapshots.

        Raises:
            ApiError: the API server did not answer; retry later.
        """
        app, wanted, now = work.app, work.app.spec.bootstrap, work.now
        if wanted is None or wanted.spark is None:
            return None
        work.snapshot_problem = self._failure(app)
        named = f"{wanted.schedule} {wanted.time_zone}" if wanted.schedule is not None else ""
        state = work.status.bootstrap or Bootstrapped(since=timestamp(now), schedule=named)
        if state.schedule != named:  # missed times of the former schedule do not count
            state = msgspec.structs.replace(state, since=timestamp(now), schedule=named)
        schedule = None
        if wanted.schedule is not None:
            try:
                schedule = CronSchedule(wanted.schedule, wanted.time_zone)
            except ScheduleInvalid as error:
                work.snapshot_problem = Problem("ScheduleInvalid", str(error), persistent=True)
        due = None if schedule is None else schedule.latest(instant(state.since, now), now)
        offsets = offsets_of(view)
        if due is None and self._replay_exceeds(work, wanted, state, offsets):
            due = now
        if any(not status.finished for status in self._own(app).values()):
            due = None  # it is created after the current one has ended
        if due is not None and not app.spec.suspended:
            # A task that no worker reports now, as after a change of leaders, keeps its former offset.
            reached = {**state.offsets, **offsets} if wanted.when_replay_exceeds is not None else {}
            state = await self._create(work, state, due, reached)
        elif due is not None:  # the state has not changed since the workers ended
            state = msgspec.structs.replace(state, since=timestamp(due))
        upcoming = None if schedule is None else schedule.after(now)
        if upcoming is not None:
            work.requeue(upcoming - now)
        return msgspec.structs.replace(state, next="" if upcoming is None else timestamp(upcoming))

    async def _create(
        self, work: ReconcilePass, state: Bootstrapped, due: datetime, offsets: Mapping[str, int]
    ) -> Bootstrapped:
        app, name = work.app, bootstrap_name(work.app, due)
        try:
            created = await self._client.create(kinds.STATE_BOOTSTRAP, scheduled_bootstrap(app, due))
        except AlreadyExists:
            pass  # by an operator that ended before it could save that
        except (Forbidden, Invalid) as error:
            message = f"StateBootstrap '{name}' cannot be created: {error}"
            work.snapshot_problem = Problem("Rejected", message, persistent=True)
            work.requeue(_REJECTED_RETRY)
            return state
        else:
            self._cache.put(kinds.STATE_BOOTSTRAP, created)
            log.info("StateBootstrap %s/%s: created, since a snapshot is due", app.namespace, name)
            work.events.append(("Normal", "SnapshotDue", f"StateBootstrap '{name}' was created."))
        return msgspec.structs.replace(state, since=timestamp(due), newest=name, offsets=dict(offsets))

    def _replay_exceeds(
        self, work: ReconcilePass, wanted: Bootstrap, state: Bootstrapped, offsets: Mapping[str, int]
    ) -> bool:
        if wanted.when_replay_exceeds is None:
            return False
        work.requeue(_CHECK_INTERVAL)
        return replay_s(offsets, state.offsets) > wanted.when_replay_exceeds.total_seconds()

    def _failure(self, app: StreamApp) -> Problem | None:
        """Return why the last StateBootstrap that ended failed; None when it succeeded."""
        ended = {name: status for name, status in self._own(app).items() if status.finished}
        if not ended:
            return None
        name, status = max(ended.items(), key=lambda each: (each[1].finished_at, each[0]))
        if status.phase != BootstrapPhase.FAILED:
            return None
        return Problem("SnapshotFailed", f"StateBootstrap '{name}' failed: {status.message}", persistent=True)

    def _own(self, app: StreamApp) -> dict[str, BootstrapStatus]:
        return {
            raw["metadata"]["name"]: BootstrapStatus.of(raw.get("status"))
            for raw in self._cache.of_app(kinds.STATE_BOOTSTRAP, app.namespace, app.name)
            if owned_by(app, raw)
        }


def offsets_of(view: View | None) -> dict[str, int]:
    """Return the changelog offsets of active tasks, summed over the stores of each task."""
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
    """Return how many seconds the longest replay of a task from a snapshot would take.

    Args:
        offsets: the current offsets of tasks.
        then: their offsets when the snapshot began; a task without one is replayed from the beginning.
    """
    return max((offset - then.get(task, 0) for task, offset in offsets.items()), default=0) / _REPLAY_RATE
