"""What there is of one StreamApp: its pods, and what its coordinator knows of its workers and tasks."""

from __future__ import annotations

import logging
from dataclasses import replace
from datetime import timedelta

from millpond_operator.controllers.coordinator_host.host import CoordinatorHost
from millpond_operator.controllers.pass_context import Key, ReconcilePass
from millpond_operator.controllers.rollout.decide import Existing
from millpond_operator.controllers.rollout.observation import (
    ObservedApp,
    ObservedPod,
    ordinal_of,
    pods_of,
    tasks_of,
    workers_of,
)
from millpond_operator.controllers.rollout.pod_problems import (
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

_TEMPLATE = "controller-revision-hash"
"""The label by which the StatefulSet's controller tells from which template it made a pod."""
#: A pod whose containers take longer to be made has trouble that only events tell of.
_CREATED_IN = timedelta(seconds=5)
#: So many missing pods are looked for one by one.
_MOST_STRANGERS = 5
_ASKED_EVERY = timedelta(minutes=1)
#: A worker finds a new coordinator, and has reported to it, in its session timeout and so long.
_REPORTED_IN = timedelta(seconds=5)


class Observer:
    """Looks at StreamApps for the reconciler.

    Args:
        client: to read events with.
        cache: everything else there is.
        hosting: the coordinator.
    """

    def __init__(self, client: Client, cache: Cache, hosting: CoordinatorHost) -> None:
        self._client = client
        self._cache = cache
        self._hosting = hosting
        self._progress = RestoreProgress()
        self._losses = LostWorkers()

    def existing(self, work: ReconcilePass) -> Existing | None:
        """The StatefulSet; None when it is still to be made."""
        app = work.app
        found = self._cache.get(kinds.STATEFUL_SET, app.namespace, app.name)
        if found is None or not owned_by(app, found):
            if not work.observed.pods or not work.status.target_revision:
                return None
            # It was deleted around its pods, to be made anew: what was under way goes on.
            return Existing(work.status.target_revision, work.observed.pods[-1].ordinal + 1, observed=False)
        metadata = found["metadata"]
        return Existing(
            metadata.get("labels", {}).get(REVISION, ""),
            found["spec"].get("replicas", 0),
            found.get("status", {}).get("observedGeneration", 0) >= metadata.get("generation", 0),
        )

    async def look(self, work: ReconcilePass) -> None:
        """See what there is of the application, for the pass to work with."""
        app, spec = work.app, work.app.spec
        raw = [
            pod
            for pod in self._cache.of_app(kinds.POD, app.namespace, app.name)
            if selector(app).items() <= (pod["metadata"].get("labels") or {}).items() and _is_workers(app, pod)
        ]
        changed = self._of_a_changed_template(work, raw)
        pods = tuple(
            replace(pod, revision=f"{pod.revision}, changed by hand") if pod.name in changed else pod
            for pod in pods_of(raw)
        )
        creating = {pod.name for pod in pods if pod.creating and not pod.terminating}
        told = await self._ask_why(work, [pod for pod in raw if pod["metadata"]["name"] in creating])
        pods = tuple(replace(pod, problem=pod.problem or told.get(pod.name)) for pod in pods)
        view = self._hosting.view(app)
        workers = workers_of(view, self._hosting.refused(app))
        served_for = work.now - (work.memory.served_since or work.now)
        informed = served_for > spec.session_timeout + _REPORTED_IN
        if not informed and pods:
            work.come_again(spec.session_timeout + _REPORTED_IN - served_for)
        work.observed = ObservedApp(
            pods,
            self._progress.noted((app.namespace, app.name), workers, work.now, spec.rollout.progress_deadline),
            tasks_of(view, spec.replicas, spec.standby_replicas, spec.acceptable_recovery_lag),
            informed,
            {} if view is None else view.owners,
            await self._ask_who_is_missing(work, raw),
        )
        self._miss(work)

    def _miss(self, work: ReconcilePass) -> None:
        """See who is gone that should be there."""
        app, spec, observed = work.app, work.app.spec, work.observed
        stops = app.deleting or spec.suspended
        leaving = {name for name in observed.workers if stops or ordinal_of(name) >= spec.replicas}
        work.events += self._losses.noted((app.namespace, app.name), observed, leaving)
        silent = {pod.name for pod in observed.pods if pod.name not in leaving and _is_silent(observed, pod)}
        if silent:
            pods = (
                replace(pod, problem=pod.problem or silence(pod.name, pod.node, str(spec.session_timeout)))
                if pod.name in silent
                else pod
                for pod in observed.pods
            )
            work.observed = replace(observed, pods=tuple(pods))

    def _of_a_changed_template(self, work: ReconcilePass, pods: list[Object]) -> set[str]:
        """The pods that were made while somebody had changed the template of the revision that they say they are of."""
        app = work.app
        there = self._cache.get(kinds.STATEFUL_SET, app.namespace, app.name)
        if there is None or not owned_by(app, there):
            return set()
        metadata, spec, status = there["metadata"], there["spec"], there.get("status", {})
        made_from = status.get("updateRevision")
        if not made_from or status.get("observedGeneration", 0) < metadata.get("generation", 0):
            return set()
        template = with_revision(work.template, work.revision)
        if not within(template, spec["template"]) or additions({"spec": {**spec, "template": template}}, there):
            return set()  # it is another revision's, or is not put back yet
        of_it = [
            (pod["metadata"]["name"], labels.get(_TEMPLATE))
            for pod in pods
            if (labels := pod["metadata"].get("labels") or {}).get(REVISION) == work.revision
        ]
        return {name for name, made in of_it if made not in {None, made_from}}

    async def _ask_why(self, work: ReconcilePass, pods: list[Object]) -> dict[str, Problem]:
        """Why the containers of pods are not made."""
        memory = work.memory
        if not pods:
            memory.asked_at, memory.told = None, {}
            return {}
        longest = max(work.now - instant(pod["metadata"].get("creationTimestamp", ""), work.now) for pod in pods)
        pause = _asked_again_in(longest)
        work.come_again(pause)
        if longest < _CREATED_IN:
            return {}
        if memory.asked_at is None or work.now - memory.asked_at >= pause:
            try:
                events, _ = await self._client.list(
                    kinds.EVENT, work.app.namespace, fields="involvedObject.kind=Pod,reason=FailedMount"
                )
                about = {event.get("involvedObject", {}).get("uid") for event in events}
                found = [await self._mount_problem(pod) for pod in pods if pod["metadata"]["uid"] in about]
            except ApiError as error:
                log.info("Events in %s cannot be read: %s", work.app.namespace, error)
                return {}
            memory.asked_at = work.now
            memory.told = {name: problem for name, problem in found if problem is not None}
        return memory.told

    async def _ask_who_is_missing(self, work: ReconcilePass, pods: list[Object]) -> dict[str, Problem]:
        """Why pods are not there that should be, by what the StatefulSet's controller told of them."""
        app, memory = work.app, work.memory
        there = self._cache.get(kinds.STATEFUL_SET, app.namespace, app.name)
        replicas = there["spec"].get("replicas", 0) if there is not None and owned_by(app, there) else 0
        made = {pod["metadata"]["name"] for pod in pods}
        absent = [name for ordinal in range(replicas) if (name := f"{app.name}-{ordinal}") not in made]
        if there is None or not absent:
            memory.missing_since, memory.missed_at, memory.missing = None, None, {}
            return {}
        memory.missing_since = memory.missing_since or work.now
        waited = work.now - memory.missing_since
        pause = _asked_again_in(waited)
        work.come_again(pause)
        if waited >= _CREATED_IN and (memory.missed_at is None or work.now - memory.missed_at >= pause):
            try:
                events, _ = await self._client.list(
                    kinds.EVENT, app.namespace, fields=f"involvedObject.uid={there['metadata']['uid']}"
                )
                found = {name: creation_problem(name, events) for name in absent}
                for name in [name for name, problem in found.items() if problem is None][:_MOST_STRANGERS]:
                    found[name] = await self._stranger(app, name)
            except ApiError as error:
                log.info("Why pods of %s are missing cannot be read: %s", work.name, error)
                return {}
            memory.missed_at = work.now
            memory.missing = {name: problem for name, problem in found.items() if problem is not None}
        return {name: problem for name, problem in memory.missing.items() if name not in made}

    async def _stranger(self, app: StreamApp, name: str) -> Problem | None:
        """A pod that has the name of one of the application's, and not its labels."""
        pods, _ = await self._client.list(kinds.POD, app.namespace, fields=f"metadata.name={name}")
        return unlabelled(name, selector(app), pods[0]["metadata"].get("labels") or {}) if pods else None

    async def _mount_problem(self, pod: Object) -> tuple[str, Problem | None]:
        """Why the volumes of a pod are not mounted, by all of its events: later ones say that they are after all."""
        metadata = pod["metadata"]
        events, _ = await self._client.list(
            kinds.EVENT, metadata["namespace"], fields=f"involvedObject.uid={metadata['uid']}"
        )
        return metadata["name"], mount_problem(pod, events)

    def forget(self, key: Key) -> None:
        """The application is gone."""
        self._progress.forget(key)
        self._losses.forget(key)


def _asked_again_in(waited: timedelta) -> timedelta:
    """How long until events are listed again, which is slow: the longer something takes, the less often."""
    return min(max(waited / 4, _CREATED_IN), _ASKED_EVERY)


def _is_silent(observed: ObservedApp, pod: ObservedPod) -> bool:
    """Whether the coordinator heard the worker of a pod before and hears it no more, though its container was ready last."""
    worker = observed.workers.get(pod.name)
    return pod.stands and worker is not None and not (worker.alive or worker.draining) and worker.refused is None


def _is_workers(app: StreamApp, pod: Object) -> bool:
    """Whether a pod is one of the StatefulSet's, be it of one that was deleted around it."""
    owner = next((each for each in pod["metadata"].get("ownerReferences") or () if each.get("controller")), None)
    if owner is not None and (owner["kind"], owner["name"]) != ("StatefulSet", app.name):
        return False
    name = str(pod["metadata"]["name"])
    return name == f"{app.name}-{ordinal_of(name)}"
