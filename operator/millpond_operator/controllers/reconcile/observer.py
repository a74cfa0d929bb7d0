"""Observes one StreamApp: its pods, and its workers and tasks as the coordinator knows them."""

from __future__ import annotations

import logging
from dataclasses import replace
from datetime import timedelta

from millpond_operator.controllers.coordinator_host.host import CoordinatorHost
from millpond_operator.controllers.pass_context import Key, ReconcilePass
from millpond_operator.controllers.rollout.model import Existing
from millpond_operator.controllers.rollout.observation import (
    ObservedApp,
    ObservedPod,
    ordinal_of,
    pods_of,
    tasks_of,
    workers_of,
)
from millpond_operator.controllers.rollout.problems import (
    Problem,
    creation_problem,
    mount_problem,
    silence,
    unlabelled,
)
from millpond_operator.controllers.rollout.restore_progress import RestoreProgress
from millpond_operator.controllers.rollout.status import instant
from millpond_operator.kubernetes import ApiError, Cache, Client, Object, kinds
from millpond_operator.resources import REVISION, StreamApp, additions, owned_by, selector, with_revision, within

from .lost_workers import LostWorkers

__all__ = ("Observer",)

log = logging.getLogger(__name__)

_TEMPLATE_HASH = "controller-revision-hash"
"""The label of a pod with the hash of the template from which the StatefulSet controller created it."""
#: How long the creation of a pod or its containers takes without problems. After that, events are read.
_CREATION_TIME = timedelta(seconds=5)
#: How many missing pods are searched for by name.
_MAX_SEARCHED = 5
#: The longest interval between two reads of events.
_MAX_EVENT_INTERVAL = timedelta(minutes=1)
#: How long after its session timeout a worker may need to find and report to a new coordinator.
_REPORT_TIME = timedelta(seconds=5)


class Observer:
    """Observes StreamApps for the reconciler.

    Args:
        client: reads events.
        cache: the known objects.
        hosting: the coordinator.
    """

    def __init__(self, client: Client, cache: Cache, hosting: CoordinatorHost) -> None:
        self._client = client
        self._cache = cache
        self._host = hosting
        self._restore_progress = RestoreProgress()
        self._lost_workers = LostWorkers()

    def existing(self, work: ReconcilePass) -> Existing | None:
        """Return the StatefulSet; None when it has not been created yet."""
        app = work.app
        found = self._cache.get(kinds.STATEFUL_SET, app.namespace, app.name)
        if found is None or not owned_by(app, found):
            if not work.observed.pods or not work.status.target_revision:
                return None
            # It was deleted without its pods, to be recreated: a rollout in progress continues.
            return Existing(work.status.target_revision, work.observed.pods[-1].ordinal + 1, observed=False)
        metadata = found["metadata"]
        return Existing(
            metadata.get("labels", {}).get(REVISION, ""),
            found["spec"].get("replicas", 0),
            found.get("status", {}).get("observedGeneration", 0) >= metadata.get("generation", 0),
        )

    async def observe(self, work: ReconcilePass) -> None:
        """Set `work.observed`."""
        app, spec = work.app, work.app.spec
        raw = [
            pod
            for pod in self._cache.of_app(kinds.POD, app.namespace, app.name)
            if selector(app).items() <= (pod["metadata"].get("labels") or {}).items() and _is_workers(app, pod)
        ]
        changed = self._with_changed_template(work, raw)
        pods = tuple(
            replace(pod, revision=f"{pod.revision}, changed by hand") if pod.name in changed else pod
            for pod in pods_of(raw)
        )
        creating = {pod.name for pod in pods if pod.creating and not pod.terminating}
        mount_problems = await self._mount_problems(work, [pod for pod in raw if pod["metadata"]["name"] in creating])
        pods = tuple(replace(pod, problem=pod.problem or mount_problems.get(pod.name)) for pod in pods)
        view = self._host.view(app)
        workers = workers_of(view, self._host.rejected(app))
        served_for = work.now - (work.memory.served_since or work.now)
        informed = served_for > spec.session_timeout + _REPORT_TIME
        if not informed and pods:
            work.requeue(spec.session_timeout + _REPORT_TIME - served_for)
        work.observed = ObservedApp(
            pods,
            self._restore_progress.noted((app.namespace, app.name), workers, work.now, spec.rollout.progress_deadline),
            tasks_of(
                view,
                pods,
                spec.replicas - len(work.status.drained),
                spec.standby_replicas,
                spec.acceptable_recovery_lag,
            ),
            informed,
            {} if view is None else view.owners,
            await self._missing_problems(work, raw),
        )
        self._observe_losses(work)

    def _observe_losses(self, work: ReconcilePass) -> None:
        """Add events about lost workers, and the problem of silent ones."""
        app, spec, observed = work.app, work.app.spec, work.observed
        stops = app.deleting or spec.suspended
        leaving = {name for name in observed.workers if stops or ordinal_of(name) >= spec.replicas}
        work.events += self._lost_workers.noted((app.namespace, app.name), observed, leaving)
        silent = {pod.name for pod in observed.pods if pod.name not in leaving and _is_silent(observed, pod)}
        if silent:
            pods = (
                replace(pod, problem=pod.problem or silence(pod.name, pod.node, str(spec.session_timeout)))
                if pod.name in silent
                else pod
                for pod in observed.pods
            )
            work.observed = replace(observed, pods=tuple(pods))

    def _with_changed_template(self, work: ReconcilePass, pods: list[Object]) -> set[str]:
        """Return the pods that were created while another client had changed the template of their revision."""
        app = work.app
        existing = self._cache.get(kinds.STATEFUL_SET, app.namespace, app.name)
        if existing is None or not owned_by(app, existing):
            return set()
        metadata, spec, status = existing["metadata"], existing["spec"], existing.get("status", {})
        current_hash = status.get("updateRevision")
        if not current_hash or status.get("observedGeneration", 0) < metadata.get("generation", 0):
            return set()
        template = with_revision(work.template, work.revision)
        if not within(template, spec["template"]) or additions({"spec": {**spec, "template": template}}, existing):
            return set()  # it is another revision's, or is still changed
        hashes = [
            (pod["metadata"]["name"], labels.get(_TEMPLATE_HASH))
            for pod in pods
            if (labels := pod["metadata"].get("labels") or {}).get(REVISION) == work.revision
        ]
        return {name for name, template_hash in hashes if template_hash not in {None, current_hash}}

    async def _mount_problems(self, work: ReconcilePass, pods: list[Object]) -> dict[str, Problem]:
        """Return why the containers of pods are not created, by name of the pod."""
        memory = work.memory
        if not pods:
            memory.mounts_checked_at, memory.mount_problems = None, {}
            return {}
        longest = max(work.now - instant(pod["metadata"].get("creationTimestamp", ""), work.now) for pod in pods)
        interval = _event_interval(longest)
        work.requeue(interval)
        if longest < _CREATION_TIME:
            return {}
        if memory.mounts_checked_at is None or work.now - memory.mounts_checked_at >= interval:
            try:
                events, _ = await self._client.list(
                    kinds.EVENT, work.app.namespace, fields="involvedObject.kind=Pod,reason=FailedMount"
                )
                about = {event.get("involvedObject", {}).get("uid") for event in events}
                found = [await self._mount_problem(pod) for pod in pods if pod["metadata"]["uid"] in about]
            except ApiError as error:
                log.info("StreamApp %s: cannot read the events about its pods: %s", work.name, error)
                return {}
            memory.mounts_checked_at = work.now
            memory.mount_problems = {name: problem for name, problem in found if problem is not None}
        return memory.mount_problems

    async def _missing_problems(self, work: ReconcilePass, pods: list[Object]) -> dict[str, Problem]:
        """Return why pods are missing, by name of the pod, from the events about the StatefulSet."""
        app, memory = work.app, work.memory
        existing = self._cache.get(kinds.STATEFUL_SET, app.namespace, app.name)
        replicas = existing["spec"].get("replicas", 0) if existing is not None and owned_by(app, existing) else 0
        created = {pod["metadata"]["name"] for pod in pods}
        missing = [name for ordinal in range(replicas) if (name := f"{app.name}-{ordinal}") not in created]
        if existing is None or not missing:
            memory.missing_since, memory.missing_checked_at, memory.missing_problems = None, None, {}
            return {}
        memory.missing_since = memory.missing_since or work.now
        waited = work.now - memory.missing_since
        interval, checked_at = _event_interval(waited), memory.missing_checked_at
        work.requeue(interval)
        if waited >= _CREATION_TIME and (checked_at is None or work.now - checked_at >= interval):
            try:
                events, _ = await self._client.list(
                    kinds.EVENT, app.namespace, fields=f"involvedObject.uid={existing['metadata']['uid']}"
                )
                found = {name: creation_problem(name, events) for name in missing}
                for name in [name for name, problem in found.items() if problem is None][:_MAX_SEARCHED]:
                    found[name] = await self._unlabelled(app, name)
            except ApiError as error:
                log.info("StreamApp %s: cannot read the events about missing pods: %s", work.name, error)
                return {}
            memory.missing_checked_at = work.now
            memory.missing_problems = {name: problem for name, problem in found.items() if problem is not None}
        return {name: problem for name, problem in memory.missing_problems.items() if name not in created}

    async def _unlabelled(self, app: StreamApp, name: str) -> Problem | None:
        """Return the problem of a pod with the name of a worker but not its labels; None when there is no such pod."""
        pods, _ = await self._client.list(kinds.POD, app.namespace, fields=f"metadata.name={name}")
        return unlabelled(name, selector(app), pods[0]["metadata"].get("labels") or {}) if pods else None

    async def _mount_problem(self, pod: Object) -> tuple[str, Problem | None]:
        """Return a pod's name and why its volumes are not mounted. All events count: later ones may report success."""
        metadata = pod["metadata"]
        events, _ = await self._client.list(
            kinds.EVENT, metadata["namespace"], fields=f"involvedObject.uid={metadata['uid']}"
        )
        return metadata["name"], mount_problem(pod, events)

    def forget(self, key: Key) -> None:
        """Forget a deleted StreamApp."""
        self._restore_progress.forget(key)
        self._lost_workers.forget(key)


def _event_interval(waited: timedelta) -> timedelta:
    """Return the interval between two reads of events, which are slow: it grows with the time that passed."""
    return min(max(waited / 4, _CREATION_TIME), _MAX_EVENT_INTERVAL)


def _is_silent(observed: ObservedApp, pod: ObservedPod) -> bool:
    """Return whether the worker of a pod stopped sending heartbeats although its container was ready last."""
    worker = observed.workers.get(pod.name)
    known = worker is not None and not (worker.alive or worker.draining) and worker.rejection is None
    return pod.containers_ready and known


def _is_workers(app: StreamApp, pod: Object) -> bool:
    """Return whether a pod belongs to the StatefulSet, or to a former one that was deleted without its pods."""
    owner = next((each for each in pod["metadata"].get("ownerReferences") or () if each.get("controller")), None)
    if owner is not None and (owner["kind"], owner["name"]) != ("StatefulSet", app.name):
        return False
    name = str(pod["metadata"]["name"])
    return name == f"{app.name}-{ordinal_of(name)}"
