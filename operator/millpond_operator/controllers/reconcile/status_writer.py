"""Writes the status of a StreamApp when it changes, and events for changes that people should notice."""

from __future__ import annotations

import msgspec

from millpond_operator.controllers.events import EventHistory, EventRecorder
from millpond_operator.controllers.pass_context import ReconcilePass
from millpond_operator.controllers.preconditions import write_status
from millpond_operator.controllers.rollout.problems import Problem
from millpond_operator.controllers.rollout.status import AppPhase, AppStatus, ConditionType, condition
from millpond_operator.kubernetes import Cache, Client, kinds
from millpond_operator.resources import StreamApp, selector

__all__ = ("StatusWriter", "changed")

_TYPES = frozenset(each.value for each in ConditionType)


class StatusWriter:
    """Writes statuses.

    Args:
        client: writes statuses.
        cache: gets the written objects.
        events: records events about changes.
        leader_epoch: the epoch of this operator's leadership; a status of a later leader is never overwritten.
        history: gets each change of a condition.
    """

    def __init__(
        self, client: Client, cache: Cache, events: EventRecorder, leader_epoch: int, history: EventHistory
    ) -> None:
        self._client = client
        self._cache = cache
        self._events = events
        self._leader_epoch = leader_epoch
        self._history = history

    async def save(self, work: ReconcilePass, status: AppStatus, generation: int | None = None) -> None:
        """Write the status if it changed, and only over the version that the pass has read.

        Args:
            work: the pass.
            status: the new status.
            generation: the observed generation; None for that of the StreamApp.

        Raises:
            ApiError: it was not written; `Conflict` and `NotFound` when the StreamApp had changed.
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
        # No leader wrote an epoch above the Lease's. The CRD forbids lowering it, so it stays; it affects only this
        # StreamApp.
        epoch = max(self._leader_epoch, work.status.leader_epoch)
        status = msgspec.structs.replace(status, leader_epoch=epoch)
        read = {"namespace": app.namespace, "name": app.name, "resourceVersion": app.resource_version}
        await write_status(self._client, self._cache, kinds.STREAM_APP, read, status.as_object(), _TYPES)
        self._note_transitions(app, work.status, status)
        await self._record_changes(app, work.status, status)
        work.status = status

    async def reject(self, work: ReconcilePass, problem: Problem) -> None:
        """Write the conditions of a StreamApp that cannot be applied as it is: Degraded says why.

        Raises:
            ApiError: they were not written.
        """
        status = msgspec.structs.replace(work.status, phase=work.status.phase or AppPhase.PENDING.value)
        see_degraded = "See the condition Degraded."
        for type, value, message in (
            (ConditionType.READY, "False", see_degraded),
            (ConditionType.PROGRESSING, "False", see_degraded),
            (ConditionType.DEGRADED, "True", problem.message),
            (ConditionType.STALLED, "True", see_degraded),
        ):
            status = changed(work, status, type, value, problem.reason, message)
        await self.save(work, status)

    def _note_transitions(self, app: StreamApp, before: AppStatus, after: AppStatus) -> None:
        """Note each condition whose status changed, for the console."""
        was = {each.type: each.status for each in before.conditions}
        now = {each.type: each for each in after.conditions}
        for each in after.conditions:
            if each.status != was.get(each.type):
                self._history.add(app, each.reason, f"{each.type} became {each.status}: {each.message}")
        for type in was.keys() - now.keys():
            self._history.add(app, type, f"{type} no longer applies.")

    async def _record_changes(self, app: StreamApp, before: AppStatus, after: AppStatus) -> None:
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
        limited, was_limited = (
            after.condition(ConditionType.SCALING_LIMITED),
            before.condition(ConditionType.SCALING_LIMITED),
        )
        if limited is not None and (was_limited is None or was_limited.reason != limited.reason):
            await self._events.record(app, "Warning", limited.reason, limited.message)
        if after.is_true(ConditionType.SUSPENDED) and not before.is_true(ConditionType.SUSPENDED):
            await self._events.record(app, "Normal", "Suspended", "All workers have committed and ended.")


def changed(  # noqa: PLR0913 - the fields of a condition
    work: ReconcilePass, before: AppStatus, type: ConditionType, status: str, reason: str, message: str
) -> AppStatus:
    """Return a status with one condition changed."""
    made = condition(type, status, reason, message, before, work.app.generation, work.now)
    others = tuple(each for each in before.conditions if each.type != type)
    order = list(ConditionType)
    return msgspec.structs.replace(
        before,
        conditions=tuple(sorted((*others, made), key=lambda each: order.index(ConditionType(each.type)))),
    )
