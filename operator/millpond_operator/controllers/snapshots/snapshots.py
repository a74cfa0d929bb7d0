"""Snapshots: one Job at a time for each application, from StateBootstraps as they stand.

Level-based as the rest of the operator is: what has to be done follows from the StateBootstraps, their Jobs and these Jobs' pods.
A Job is made once and has a deterministic name. Its pods retry, end in time and are suspended by the Job's own fields. A Job is
given the time after which Kubernetes deletes it only once its end stands in the status, so no end is missed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import msgspec

from millpond.protocol import clock
from millpond_operator.controllers.events import EventRecorder
from millpond_operator.controllers.pass_context import Key, sooner
from millpond_operator.controllers.preconditions import read_again, write_status
from millpond_operator.controllers.rollout.pod_problems import Problem
from millpond_operator.controllers.rollout.status import instant, timestamp
from millpond_operator.kubernetes import (
    ApiError,
    Cache,
    Client,
    Conflict,
    Forbidden,
    Invalid,
    NotFound,
    Object,
    kinds,
)
from millpond_operator.resources import (
    InvalidStateBootstrap,
    InvalidStreamApp,
    StateBootstrap,
    StreamApp,
    parse,
    parse_bootstrap,
    snapshot_job_name,
)

from .objects import ObjectNameTaken, SnapshotObjects, controller_uid
from .outcomes import ended_as, failure_of, not_created, pod_failure, result_of, waits_for
from .status import BootstrapPhase, BootstrapStatus, told_as

__all__ = ("Bootstraps",)

log = logging.getLogger(__name__)

_JOB_STAYS_S = 3600
#: So long after a Job or a pod was made, events are asked for why it does not start; and again after so long.
_STARTS_IN, _ASKED_EVERY = timedelta(seconds=10), timedelta(seconds=15)
_REJECTED_AGAIN = timedelta(seconds=30)


@dataclass(frozen=True)
class _Found:
    """A StateBootstrap, and what there is of it."""

    bootstrap: StateBootstrap
    status: BootstrapStatus
    job: Object | None
    pods: Sequence[Object]

    @property
    def active(self) -> bool:
        """Whether its Job may have pods."""
        return self.job is not None and ended_as(self.job) is None and not self.job["spec"].get("suspend", False)


class Bootstraps:
    """Looks after the StateBootstraps of one application after the other.

    Args:
        client: to write with; its answers go to the cache.
        cache: what there is.
        events: for what is worth one.
        leader_epoch: of this operator.
        clock: the time of day.
    """

    def __init__(
        self,
        client: Client,
        cache: Cache,
        events: EventRecorder,
        leader_epoch: int,
        clock: Callable[[], datetime] = clock.now,
    ) -> None:
        self._client = client
        self._cache = cache
        self._events = events
        self._objects = SnapshotObjects(client, cache, leader_epoch)
        self._clock = clock

    async def __call__(self, key: Key) -> timedelta | None:
        """One pass over all StateBootstraps that name a StreamApp, which need not be there.

        Returns:
            After which time to come again even though nothing is heard; None for never.

        Raises:
            ApiError: something could not be written or read; come again later.
        """
        found, again = [], None
        for raw in self._cache.of_app(kinds.STATE_BOOTSTRAP, *key):
            try:
                found.append(self._found(parse_bootstrap(raw)))
            except InvalidStateBootstrap as error:  # nothing but other definitions make a difference
                log.warning("%s", error)
        if not found:
            return None
        app, missing = self._app(key)
        turn = _turn(found) if missing is None else None
        # Whoever has to stop comes first: one works at a time.
        for each in sorted(found, key=lambda one: one is turn):
            again = sooner(again, await self._pass(each, app, missing, turn))
        return again

    def _app(self, key: Key) -> tuple[StreamApp | None, Problem | None]:
        raw = self._cache.get(kinds.STREAM_APP, *key)
        if raw is None or "deletionTimestamp" in raw["metadata"]:
            return None, Problem(
                "StreamAppMissing",
                f"There is no StreamApp '{key[1]}' in the namespace {key[0]}: create it, or delete this StateBootstrap.",
            )
        try:
            return parse(raw), None
        except InvalidStreamApp as error:
            return None, Problem("StreamAppInvalid", str(error))

    def _found(self, bootstrap: StateBootstrap) -> _Found:
        job = self._cache.get(kinds.JOB, bootstrap.namespace, snapshot_job_name(bootstrap))
        if job is not None and controller_uid(job) != bootstrap.uid:
            job = None
        pods = [
            pod
            for pod in self._cache.of_app(kinds.POD, bootstrap.namespace, bootstrap.spec.stream_app)
            if job is not None and controller_uid(pod) == job["metadata"]["uid"]
        ]
        return _Found(bootstrap, BootstrapStatus.of(bootstrap.status), job, pods)

    async def _pass(
        self, found: _Found, app: StreamApp | None, missing: Problem | None, turn: _Found | None
    ) -> timedelta | None:
        bootstrap, status = found.bootstrap, found.status
        if bootstrap.deleting:
            return None
        if status.finished:
            return await self._finished(found)
        if found.job is not None and (end := ended_as(found.job)) is not None:
            await self._end(found, *end)
            return timedelta(0)
        if bootstrap.spec.suspend:
            await self._halt(found)
            await self._tell(found, BootstrapPhase.SUSPENDED, "Suspended", "Set spec.suspend to false to go on.")
            return None
        if app is None:
            assert missing is not None
            event = ("Warning", missing.reason)
            await self._tell(found, BootstrapPhase.PENDING, missing.reason, missing.message, event=event)
            return None
        if found is not turn:
            await self._halt(found)
            assert turn is not None  # this one could have it
            told = f"StateBootstrap '{turn.bootstrap.name}' of the same StreamApp comes first."
            await self._tell(found, BootstrapPhase.PENDING, "Waits", told)
            return None
        return await self._run(found, app)

    async def _run(self, found: _Found, app: StreamApp) -> timedelta | None:
        """See that its Job goes on."""
        bootstrap, job, look_again = found.bootstrap, found.job, None
        if job is None and found.status.job:
            await self._events.record(
                bootstrap, "Warning", "JobDeleted", "Its Job was deleted before it ended: it starts again."
            )
        try:
            if job is None:
                job = await self._objects.make(app, bootstrap)
            elif "deletionTimestamp" in job["metadata"]:
                return None  # another one is made when it is gone
            else:
                job = await self._adjusted(bootstrap, job)
                restored, look_again = await self._objects.restore(app, bootstrap, self._clock())
                for each in restored:
                    told = f"{each} was deleted while the Job runs: it is made again."
                    await self._events.record(bootstrap, "Warning", "Restored", told)
        except (Invalid, Forbidden, ObjectNameTaken) as error:
            told, event = f"{error} It is tried again.", ("Warning", "Rejected")
            await self._tell(found, BootstrapPhase.PENDING, "Rejected", told, event=event)
            return _REJECTED_AGAIN
        problem, again = await self._trouble(job, found.pods)
        if problem is None:
            problem = Problem("Running", f"Job '{job['metadata']['name']}' makes the snapshot.")
        status = msgspec.structs.replace(
            found.status,
            job=job["metadata"]["uid"],
            started_at=found.status.started_at or timestamp(self._clock()),
            failures=int(job.get("status", {}).get("failed") or 0),
        )
        await self._tell(
            found, BootstrapPhase.RUNNING, problem.reason, problem.message, status, event=("Normal", "Started")
        )
        return sooner(again, look_again)

    async def _adjusted(self, bootstrap: StateBootstrap, job: Object) -> Object:
        """The Job with what of it may change; its pods are as they were when it was made."""
        spec = bootstrap.spec
        wanted = {
            "suspend": spec.suspend,
            "activeDeadlineSeconds": max(1, int(spec.deadline.total_seconds())),
            "backoffLimit": spec.backoff_limit,
        }
        return await self._changed(job, {key: value for key, value in wanted.items() if job["spec"].get(key) != value})

    async def _halt(self, found: _Found) -> None:
        """Let the pods of its Job end."""
        if found.active:
            assert found.job is not None
            await self._changed(found.job, {"suspend": True})

    async def _changed(self, job: Object, spec: dict[str, Any]) -> Object:
        if not spec:
            return job
        metadata = job["metadata"]
        patch = {"metadata": {"resourceVersion": metadata["resourceVersion"]}, "spec": spec}
        try:
            answer = await self._client.patch(kinds.JOB, metadata["namespace"], metadata["name"], patch)
        except (Conflict, NotFound):
            await read_again(self._client, self._cache, kinds.JOB, metadata["namespace"], metadata["name"])
            raise
        self._cache.put(kinds.JOB, dict(answer))
        return answer

    async def _trouble(self, job: Object, pods: Sequence[Object]) -> tuple[Problem | None, timedelta | None]:
        """Why it does not get on, and when to look again."""
        now = self._clock()
        live = [pod for pod in pods if pod.get("status", {}).get("phase") in {None, "Pending", "Running"}]
        if any(pod.get("status", {}).get("phase") == "Running" for pod in live):
            return None, None
        failed = pod_failure(pods)
        if failed is not None and not live:
            return Problem(failed.reason, f"{failed.message} It is tried again."), None
        about = live[-1] if live else job
        since = instant(about["metadata"].get("creationTimestamp") or "", now)
        if now - since < _STARTS_IN:
            return None, since + _STARTS_IN - now
        try:
            uid = about["metadata"]["uid"]
            events, _ = await self._client.list(
                kinds.EVENT, job["metadata"]["namespace"], fields=f"involvedObject.uid={uid}"
            )
        except ApiError as error:
            log.info("Events about %s cannot be read: %s", about["metadata"]["name"], error)
            return None, _ASKED_EVERY
        return (waits_for(about, events) if live else not_created(job, events)), _ASKED_EVERY

    async def _end(self, found: _Found, how: str, reason: str) -> None:
        """Write down what became of its Job."""
        bootstrap, job = found.bootstrap, found.job
        assert job is not None
        status = msgspec.structs.replace(
            found.status,
            job=job["metadata"]["uid"],
            started_at=found.status.started_at or job["status"].get("startTime", ""),
            finished_at=timestamp(self._clock()),
            failures=int(job["status"].get("failed") or 0),
        )
        if how == "Failed":
            problem = failure_of(bootstrap, reason, found.pods)
            await self._tell(
                found, BootstrapPhase.FAILED, problem.reason, problem.message, status, event=("Warning", problem.reason)
            )
            return
        result = result_of(found.pods)
        message = "The snapshot is made."
        if result is not None:
            message = f"Snapshot {result.version} is made: {result.rows:,} rows in {result.seconds:.0f} s."
            if result.table_count is not None:
                message += f" {result.table_count} tables are written to {bootstrap.spec.catalog}."
            status = msgspec.structs.replace(status, **msgspec.structs.asdict(result))
        await self._tell(found, BootstrapPhase.SUCCEEDED, "Made", message, status, event=("Normal", "Made"))

    async def _finished(self, found: _Found) -> timedelta | None:
        """Let the Job go after a while, and the StateBootstrap when it is to."""
        bootstrap, job = found.bootstrap, found.job
        if job is not None and "deletionTimestamp" not in job["metadata"]:
            await self._changed(
                job, {} if "ttlSecondsAfterFinished" in job["spec"] else {"ttlSecondsAfterFinished": _JOB_STAYS_S}
            )
        now = self._clock()
        left = (
            instant(found.status.finished_at, now) + timedelta(seconds=bootstrap.spec.ttl_seconds_after_finished) - now
        )
        if left > timedelta(0):
            return left
        await self._client.delete(kinds.STATE_BOOTSTRAP, bootstrap.namespace, bootstrap.name, uid=bootstrap.uid)
        self._events.forget(kinds.STATE_BOOTSTRAP, bootstrap.namespace, bootstrap.name)
        return None

    async def _tell(
        self,
        found: _Found,
        phase: BootstrapPhase,
        reason: str,
        message: str,
        status: BootstrapStatus | None = None,
        event: tuple[str, str] | None = None,
    ) -> None:
        """Write the status if it says anything new, and only over the one that was looked at; an event with a new phase."""
        bootstrap = found.bootstrap
        made = told_as(status or found.status, phase, reason, message, bootstrap.generation, self._clock())
        if made == found.status:
            return
        read = {
            "namespace": bootstrap.namespace,
            "name": bootstrap.name,
            "resourceVersion": bootstrap.resource_version,
        }
        await write_status(self._client, self._cache, kinds.STATE_BOOTSTRAP, read, msgspec.to_builtins(made))
        if found.status.phase != phase.value or (phase is BootstrapPhase.PENDING and found.status.message != message):
            type, word = event or ("Normal", reason)
            await self._events.record(bootstrap, type, word, message)


def _turn(found: Sequence[_Found]) -> _Found | None:
    """The one that may work: who works already, else the oldest."""
    waiting = [
        each
        for each in found
        if not each.bootstrap.deleting
        and not each.bootstrap.spec.suspend
        and not each.status.finished
        and not (each.job is not None and ended_as(each.job) is not None)
    ]
    return min(waiting, key=lambda each: (not each.active, each.bootstrap.created, each.bootstrap.name), default=None)
