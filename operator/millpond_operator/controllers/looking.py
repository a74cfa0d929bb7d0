"""What there is of one StreamApp: its pods, and what its coordinator knows of its workers and tasks."""

from __future__ import annotations

import logging
from dataclasses import replace
from datetime import timedelta

from millpond_operator.kubernetes import ApiError, Cache, Client, Object, kinds
from millpond_operator.resources import REVISION, StreamApp, owned_by, selector

from .hosting import Hosting
from .observation import Observed, ordinal_of, pods_of, tasks_of, workers_of
from .passes import Key, Pass
from .problems import Problem, mount_problem
from .progress import Progress
from .rollout import Existing
from .status import instant

__all__ = ("Looker",)

log = logging.getLogger(__name__)

#: A pod whose containers take longer to be made has trouble that only events tell of.
_CREATED_IN = timedelta(seconds=5)
_ASKED_EVERY = timedelta(minutes=1)
#: A worker finds a new coordinator, and has reported to it, in its session timeout and so long.
_REPORTED_IN = timedelta(seconds=5)


class Looker:
    """Looks at StreamApps for the reconciler.

    Args:
        client: to read events with.
        cache: everything else there is.
        hosting: the coordinator.
    """

    def __init__(self, client: Client, cache: Cache, hosting: Hosting) -> None:
        self._client = client
        self._cache = cache
        self._hosting = hosting
        self._progress = Progress()

    def existing(self, work: Pass) -> Existing | None:
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

    async def look(self, work: Pass) -> None:
        """See what there is of the application, for the pass to work with."""
        app, spec = work.app, work.app.spec
        raw = [
            pod
            for pod in self._cache.of_app(kinds.POD, app.namespace, app.name)
            if selector(app).items() <= (pod["metadata"].get("labels") or {}).items() and _is_workers(app, pod)
        ]
        pods = pods_of(raw)
        creating = {pod.name for pod in pods if pod.creating and not pod.terminating}
        told = await self._ask_why(work, [pod for pod in raw if pod["metadata"]["name"] in creating])
        pods = tuple(replace(pod, problem=pod.problem or told.get(pod.name)) for pod in pods)
        view = self._hosting.view(app)
        workers = workers_of(view, self._hosting.refused(app))
        served_for = work.now - (work.memory.served_since or work.now)
        informed = served_for > spec.session_timeout + _REPORTED_IN
        if not informed and pods:
            work.come_again(spec.session_timeout + _REPORTED_IN - served_for)
        work.observed = Observed(
            pods,
            self._progress.noted((app.namespace, app.name), workers, work.now, spec.rollout.progress_deadline),
            tasks_of(view, spec.standby_replicas, spec.acceptable_recovery_lag),
            informed,
        )

    async def _ask_why(self, work: Pass, pods: list[Object]) -> dict[str, Problem]:
        """Why the containers of pods are not made. Events are slow to list: the longer it takes, the less often."""
        memory = work.memory
        if not pods:
            memory.asked_at, memory.told = None, {}
            return {}
        longest = max(work.now - instant(pod["metadata"].get("creationTimestamp", ""), work.now) for pod in pods)
        pause = min(max(longest / 4, _CREATED_IN), _ASKED_EVERY)
        work.come_again(pause)
        if longest < _CREATED_IN:
            return {}
        if memory.asked_at is None or work.now - memory.asked_at >= pause:
            try:
                events, _ = await self._client.list(
                    kinds.EVENT, work.app.namespace, fields="involvedObject.kind=Pod,reason=FailedMount"
                )
            except ApiError as error:
                log.info("Events in %s cannot be read: %s", work.app.namespace, error)
                return {}
            found = {pod["metadata"]["name"]: mount_problem(pod, events) for pod in pods}
            memory.asked_at = work.now
            memory.told = {name: problem for name, problem in found.items() if problem is not None}
        return memory.told

    def forget(self, key: Key) -> None:
        """The application is gone."""
        self._progress.forget(key)


def _is_workers(app: StreamApp, pod: Object) -> bool:
    """Whether a pod is one of the StatefulSet's, be it of one that was deleted around it."""
    owner = next((each for each in pod["metadata"].get("ownerReferences") or () if each.get("controller")), None)
    if owner is not None and (owner["kind"], owner["name"]) != ("StatefulSet", app.name):
        return False
    name = str(pod["metadata"]["name"])
    return name == f"{app.name}-{ordinal_of(name)}"
