"""The status of a StreamApp: written when it says anything new, and events for what people should notice in it."""

from __future__ import annotations

import msgspec

from millpond_operator.controllers.events import EventRecorder
from millpond_operator.controllers.pass_context import ReconcilePass
from millpond_operator.controllers.preconditions import write_status
from millpond_operator.controllers.rollout.pod_problems import Problem
from millpond_operator.controllers.rollout.status import AppPhase, AppStatus, ConditionType, condition
from millpond_operator.kubernetes import Cache, Client, kinds
from millpond_operator.resources import StreamApp, selector

__all__ = ("Reporter", "changed")


class Reporter:
    """Writes statuses.

    Args:
        client: to write with.
        cache: learns what was written.
        events: for what is worth one.
        leader_epoch: of this operator; a status of a later leader is never written over.
    """

    def __init__(self, client: Client, cache: Cache, events: EventRecorder, leader_epoch: int) -> None:
        self._client = client
        self._cache = cache
        self._events = events
        self._leader_epoch = leader_epoch

    async def save(self, work: ReconcilePass, status: AppStatus, generation: int | None = None) -> None:
        """Write the status if it says anything new, and only over the one that was looked at.

        Args:
            work: has that.
            status: the new one.
            generation: that it is about; None for that of the StreamApp.
        """
        app = work.app
        status = msgspec.structs.replace(
            status,
            observed_generation=app.generation if generation is None else generation,
            selector=",".join(f"{key}={value}" for key, value in selector(app).items()),
            leader_epoch=work.status.leader_epoch,
        )
        if status == work.status:
            return
        # One that is ahead of the lease was written by nobody who led; it may not go back, and harms this application only.
        epoch = max(self._leader_epoch, work.status.leader_epoch)
        status = msgspec.structs.replace(status, leader_epoch=epoch)
        read = {"namespace": app.namespace, "name": app.name, "resourceVersion": app.resource_version}
        await write_status(self._client, self._cache, kinds.STREAM_APP, read, status.as_object())
        await self._tell_changes(app, work.status, status)
        work.status = status

    async def refuse(self, work: ReconcilePass, problem: Problem) -> None:
        """The application cannot be made as it is: Degraded says why, once."""
        status = msgspec.structs.replace(work.status, phase=work.status.phase or AppPhase.PENDING.value)
        elsewhere = "See the condition Degraded."
        for type, value, message in (
            (ConditionType.READY, "False", elsewhere),
            (ConditionType.PROGRESSING, "False", elsewhere),
            (ConditionType.DEGRADED, "True", problem.message),
            (ConditionType.STALLED, "True", elsewhere),
        ):
            status = changed(status, work, type, value, problem.reason, message)
        await self.save(work, status)

    async def _tell_changes(self, app: StreamApp, before: AppStatus, after: AppStatus) -> None:
        was, now = before.condition(ConditionType.DEGRADED), after.condition(ConditionType.DEGRADED)
        if (
            now is not None
            and now.status == "True"
            and (was is None or (was.status, was.reason) != (now.status, now.reason))
        ):
            await self._events.record(app, "Warning", now.reason, now.message)
        ready, was_ready = after.condition(ConditionType.READY), before.is_true(ConditionType.READY)
        if ready is not None and after.is_true(ConditionType.READY) and not was_ready:
            await self._events.record(app, "Normal", ready.reason, ready.message)
        outdated = after.condition(ConditionType.CREDENTIALS_OUTDATED)
        if outdated is not None and not before.is_true(ConditionType.CREDENTIALS_OUTDATED):
            await self._events.record(app, "Warning", outdated.reason, outdated.message)
        failing, failed = (
            after.condition(ConditionType.SNAPSHOTS_FAILING),
            before.condition(ConditionType.SNAPSHOTS_FAILING),
        )
        if failing is not None and (failed is None or failed.message != failing.message):
            await self._events.record(app, "Warning", failing.reason, failing.message)
        if after.is_true(ConditionType.SUSPENDED) and not before.is_true(ConditionType.SUSPENDED):
            await self._events.record(app, "Normal", "Suspended", "All workers have committed and ended.")


def changed(
    before: AppStatus, work: ReconcilePass, type: ConditionType, status: str, reason: str, message: str
) -> AppStatus:
    """The status with one condition changed."""
    made = condition(type, status, reason, message, before, work.app.generation, work.now)
    others = tuple(each for each in before.conditions if each.type != type)
    order = list(ConditionType)
    return msgspec.structs.replace(
        before,
        conditions=tuple(sorted((*others, made), key=lambda each: order.index(ConditionType(each.type)))),
    )
