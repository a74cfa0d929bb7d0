"""Reconciles StateBootstraps: one Job at a time for each application.

Reconciling is level-based: what to do follows from the StateBootstraps, their Jobs and the pods of these. A Job is
created once and has a deterministic name. Retries, the deadline and suspending are fields of the Job. Its
`ttlSecondsAfterFinished` is set only after its outcome is saved in the status, so that no outcome is lost.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import msgspec

from millpond.protocol import clock
from millpond_operator.controllers.allowed import Allowed
from millpond_operator.controllers.events import EventRecorder
from millpond_operator.controllers.pass_context import Key, sooner
from millpond_operator.controllers.preconditions import read_again, write_status
from millpond_operator.controllers.rollout.problems import Problem
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
    Surroundings,
    parse,
    parse_bootstrap,
    snapshot_job_name,
)

from .objects import ObjectNameTaken, SnapshotObjects, controller_uid
from .outcomes import ended_as, failure_of, not_created, pod_failure, result_of, waits_for
from .status import BootstrapPhase, BootstrapStatus, updated

__all__ = ("Bootstraps",)

log = logging.getLogger(__name__)

_JOB_TTL_S = 3600
#: How long a Job or a pod may take to start before events are read, and how often they are read then.
_START_TIME, _EVENT_INTERVAL = timedelta(seconds=10), timedelta(seconds=15)
_REJECTED_RETRY = timedelta(seconds=30)
_ANYTHING = Allowed()


@dataclass(frozen=True)
class _Found:
    """A StateBootstrap with its Job and pods."""

    bootstrap: StateBootstrap
    status: BootstrapStatus
    job: Object | None
    pods: Sequence[Object]

    @property
    def active(self) -> bool:
        """Whether its Job may have pods."""
        return self.job is not None and ended_as(self.job) is None and not self.job["spec"].get("suspend", False)


class Bootstraps:
    """Reconciles the StateBootstraps of applications.

    Args:
        client: writes objects; its responses go to the cache.
        cache: the known objects.
        events: records events.
        surroundings: the epoch of this operator's leadership, and the role of drivers that have executors.
        clock: returns the current time.
        allowed: what StreamApps and StateBootstraps may use.
    """

    def __init__(  # noqa: PLR0913 - its collaborators; all but two have to be given
        self,
        client: Client,
        cache: Cache,
        events: EventRecorder,
        surroundings: Surroundings,
        clock: Callable[[], datetime] = clock.now,
        allowed: Allowed = _ANYTHING,
    ) -> None:
        self._allowed = allowed
        self._client = client
        self._cache = cache
        self._events = events
        self._objects = SnapshotObjects(client, cache, surroundings.leader_epoch, surroundings.snapshot_driver_role)
        self._clock = clock

    async def __call__(self, key: Key) -> timedelta | None:
        """Make one pass over all StateBootstraps that name a StreamApp, which need not exist.

        Returns:
            After which time another pass is due; None to wait for a change.

        Raises:
            ApiError: the API server rejected a request or did not answer; retry later.
        """
        found, requeue_after = [], None
        for raw in self._cache.of_app(kinds.STATE_BOOTSTRAP, *key):
            try:
                found.append(self._found(parse_bootstrap(raw)))
            except InvalidStateBootstrap as error:  # only a change of it or of the CRD helps
                log.warning("%s", error)
        if not found:
            return None
        app, missing = self._app(key)
        allowed = [each for each in found if self._allowed.problem_of_snapshot(each.bootstrap) is None]
        next_one = _next(allowed) if missing is None else None
        # Only one runs at a time, so those that have to stop come first.
        for each in sorted(found, key=lambda one: one is next_one):
            requeue_after = sooner(requeue_after, await self._pass(each, app, missing, next_one))
        return requeue_after

    def _app(self, key: Key) -> tuple[StreamApp | None, Problem | None]:
        raw = self._cache.get(kinds.STREAM_APP, *key)
        if raw is None or "deletionTimestamp" in raw["metadata"]:
            return None, Problem(
                "StreamAppMissing",
                f"StreamApp '{key[1]}' does not exist in the namespace {key[0]}: create it, or delete this "
                "StateBootstrap.",
            )
        try:
            app = parse(raw)
        except InvalidStreamApp as error:
            return None, Problem("StreamAppInvalid", str(error))
        problem = self._allowed.problem(app)
        return (app, None) if problem is None else (None, problem)

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
        self, found: _Found, app: StreamApp | None, missing: Problem | None, next_one: _Found | None
    ) -> timedelta | None:
        bootstrap, status = found.bootstrap, found.status
        if bootstrap.deleting:
            return None
        if status.finished:
            return await self._finished(found)
        if found.job is not None and (end := ended_as(found.job)) is not None:
            await self._save_outcome(found, *end)
            return timedelta(0)
        if bootstrap.spec.suspend:
            await self._suspend(found)
            await self._save(found, BootstrapPhase.SUSPENDED, "Suspended", "Set spec.suspend to false to continue.")
            return None
        if app is None:
            assert missing is not None
            event = ("Warning", missing.reason)
            await self._save(found, BootstrapPhase.PENDING, missing.reason, missing.message, event=event)
            return None
        if (problem := self._allowed.problem_of_snapshot(bootstrap)) is not None:
            await self._suspend(found)
            await self._save(
                found, BootstrapPhase.PENDING, problem.reason, problem.message, event=("Warning", problem.reason)
            )
            return None
        if found is not next_one:
            await self._suspend(found)
            assert next_one is not None  # at least this one could be it
            message = f"Waiting for StateBootstrap '{next_one.bootstrap.name}' of the same StreamApp, which runs first."
            await self._save(found, BootstrapPhase.PENDING, "Waits", message)
            return None
        return await self._run(found, app)

    async def _run(self, found: _Found, app: StreamApp) -> timedelta | None:
        """Create the Job, or restore it and its objects where they differ."""
        bootstrap, job, check_after = found.bootstrap, found.job, None
        if job is None and found.status.job:
            await self._events.record(
                bootstrap, "Warning", "JobDeleted", "The Job was deleted before it ended; a new Job starts."
            )
        try:
            if job is None:
                job = await self._objects.create(app, bootstrap)
            elif "deletionTimestamp" in job["metadata"]:
                return None  # a new one is created once it is deleted
            else:
                job = await self._adjust(bootstrap, job)
                restored, check_after = await self._objects.restore(app, bootstrap, self._clock())
                for each in restored:
                    message = f"{each} was deleted while the Job was running; the operator restored it."
                    await self._events.record(bootstrap, "Warning", "Restored", message)
        except (Invalid, Forbidden, ObjectNameTaken) as error:
            message, event = f"{error} The operator retries.", ("Warning", "Rejected")
            await self._save(found, BootstrapPhase.PENDING, "Rejected", message, event=event)
            return _REJECTED_RETRY
        problem, requeue_after = await self._start_problem(job, found.pods)
        if problem is None:
            problem = Problem("Running", f"Job '{job['metadata']['name']}' is creating the snapshot.")
        status = msgspec.structs.replace(
            found.status,
            job=job["metadata"]["uid"],
            started_at=found.status.started_at or timestamp(self._clock()),
            failures=int(job.get("status", {}).get("failed") or 0),
        )
        await self._save(
            found, BootstrapPhase.RUNNING, problem.reason, problem.message, status, event=("Normal", "Started")
        )
        return sooner(requeue_after, check_after)

    async def _adjust(self, bootstrap: StateBootstrap, job: Object) -> Object:
        """Update the mutable fields of the Job. Its pod template stays as it was created."""
        spec = bootstrap.spec
        wanted = {
            "suspend": spec.suspend,
            "activeDeadlineSeconds": max(1, int(spec.deadline.total_seconds())),
            "backoffLimit": spec.backoff_limit,
        }
        return await self._patch(job, {key: value for key, value in wanted.items() if job["spec"].get(key) != value})

    async def _suspend(self, found: _Found) -> None:
        """Suspend the Job, so that its pods end."""
        if found.active:
            assert found.job is not None
            await self._patch(found.job, {"suspend": True})

    async def _patch(self, job: Object, spec: dict[str, Any]) -> Object:
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

    async def _start_problem(self, job: Object, pods: Sequence[Object]) -> tuple[Problem | None, timedelta | None]:
        """Return why no pod of the Job runs, and after which time to check again."""
        now = self._clock()
        live = [pod for pod in pods if pod.get("status", {}).get("phase") in {None, "Pending", "Running"}]
        if any(pod.get("status", {}).get("phase") == "Running" for pod in live):
            return None, None
        failed = pod_failure(pods)
        if failed is not None and not live:
            return Problem(failed.reason, f"{failed.message} The Job retries."), None
        about = live[-1] if live else job
        since = instant(about["metadata"].get("creationTimestamp") or "", now)
        if now - since < _START_TIME:
            return None, since + _START_TIME - now
        try:
            uid = about["metadata"]["uid"]
            events, _ = await self._client.list(
                kinds.EVENT, job["metadata"]["namespace"], fields=f"involvedObject.uid={uid}"
            )
        except ApiError as error:
            metadata = about["metadata"]
            log.info(
                "%s %s/%s: cannot read its events: %s", about["kind"], metadata["namespace"], metadata["name"], error
            )
            return None, _EVENT_INTERVAL
        return (waits_for(about, events) if live else not_created(job, events)), _EVENT_INTERVAL

    async def _save_outcome(self, found: _Found, outcome: str, reason: str) -> None:
        """Save the outcome of the Job in the status."""
        bootstrap, job = found.bootstrap, found.job
        assert job is not None
        status = msgspec.structs.replace(
            found.status,
            job=job["metadata"]["uid"],
            started_at=found.status.started_at or job["status"].get("startTime", ""),
            finished_at=timestamp(self._clock()),
            failures=int(job["status"].get("failed") or 0),
        )
        if outcome == "Failed":
            problem = failure_of(bootstrap, reason, found.pods)
            await self._save(
                found, BootstrapPhase.FAILED, problem.reason, problem.message, status, event=("Warning", problem.reason)
            )
            return
        result = result_of(found.pods)
        message = "The snapshot is complete."
        if result is not None:
            message = f"Snapshot {result.version} is complete: {result.rows:,} rows in {result.seconds:.0f} s."
            if result.table_count is not None:
                message += f" {result.table_count} tables were written to {bootstrap.spec.catalog}."
            status = msgspec.structs.replace(status, **msgspec.structs.asdict(result))
        await self._save(found, BootstrapPhase.SUCCEEDED, "Made", message, status, event=("Normal", "Made"))

    async def _finished(self, found: _Found) -> timedelta | None:
        """Let Kubernetes delete the Job in an hour; delete the StateBootstrap after its `ttlSecondsAfterFinished`."""
        bootstrap, job = found.bootstrap, found.job
        if job is not None and "deletionTimestamp" not in job["metadata"]:
            await self._patch(
                job, {} if "ttlSecondsAfterFinished" in job["spec"] else {"ttlSecondsAfterFinished": _JOB_TTL_S}
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

    async def _save(  # noqa: PLR0913 - the fields of a condition
        self,
        found: _Found,
        phase: BootstrapPhase,
        reason: str,
        message: str,
        status: BootstrapStatus | None = None,
        event: tuple[str, str] | None = None,
    ) -> None:
        """Write the status if it changed, and only over the version that was read; record an event with a new phase."""
        bootstrap = found.bootstrap
        new = updated(status or found.status, phase, reason, message, bootstrap.generation, self._clock())
        if new == found.status:
            return
        read = {
            "namespace": bootstrap.namespace,
            "name": bootstrap.name,
            "resourceVersion": bootstrap.resource_version,
        }
        await write_status(self._client, self._cache, kinds.STATE_BOOTSTRAP, read, msgspec.to_builtins(new))
        if found.status.phase != phase.value or (phase is BootstrapPhase.PENDING and found.status.message != message):
            type, event_reason = event or ("Normal", reason)
            await self._events.record(bootstrap, type, event_reason, message)


def _next(found: Sequence[_Found]) -> _Found | None:
    """Return the StateBootstrap that may run: the one that runs already, else the oldest; None when none waits."""
    waiting = [
        each
        for each in found
        if not each.bootstrap.deleting
        and not each.bootstrap.spec.suspend
        and not each.status.finished
        and not (each.job is not None and ended_as(each.job) is not None)
    ]
    return min(waiting, key=lambda each: (not each.active, each.bootstrap.created, each.bootstrap.name), default=None)
