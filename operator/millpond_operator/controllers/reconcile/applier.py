"""Applies a decision: applies manifests that differ, deletes pods, keeps pod templates, enlarges volumes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable

from millpond.errors import MillpondError
from millpond.protocol import clock
from millpond_operator.controllers.preconditions import over
from millpond_operator.controllers.rollout.model import Decision
from millpond_operator.controllers.rollout.observation import ObservedPod
from millpond_operator.controllers.rollout.problems import Problem
from millpond_operator.kubernetes import ApiError, Cache, Client, Conflict, Kind, NotFound, Object, kinds
from millpond_operator.resources import (
    APP,
    APP_UID,
    StreamApp,
    Surroundings,
    children,
    cleanup_job,
    cleanup_name,
    content,
    digest,
    finish,
    fixed_differences,
    made_for,
    owned_by,
    same,
    stateful_set,
    was_applied,
)

from .drift import Drift
from .revision_templates import RevisionTemplates
from .volumes import VolumeGrowth

__all__ = ("Applier", "NameTaken")

log = logging.getLogger(__name__)

_KINDS = {
    kind.kind: kind
    for kind in (
        kinds.SERVICE_ACCOUNT,
        kinds.CONFIG_MAP,
        kinds.SERVICE,
        kinds.POD_DISRUPTION_BUDGET,
        kinds.NETWORK_POLICY,
        kinds.STATEFUL_SET,
        kinds.CONTROLLER_REVISION,
        kinds.JOB,
    )
}


class NameTaken(MillpondError):
    """An object that the application needs exists, but does not belong to it.

    Args:
        kind: the kind of the object.
        name: the name of the object.
        leaving: whether the object is about to be deleted by Kubernetes.
    """

    def __init__(self, kind: str, name: str, *, leaving: bool) -> None:
        super().__init__(
            f"{kind} '{name}' of a deleted StreamApp still exists: wait until Kubernetes has deleted it."
            if leaving
            else f"{kind} '{name}' exists and does not belong to this StreamApp: delete it, or give the StreamApp "
            "another name."
        )
        self.kind = kind
        self.leaving = leaving


class Applier:
    """Applies the objects of StreamApps.

    Args:
        client: writes objects; its responses go to the cache.
        cache: the known objects.
        surroundings: the data of manifests that is not in the StreamApp.
        clock: returns monotonic seconds.
    """

    def __init__(
        self, client: Client, cache: Cache, surroundings: Surroundings, clock: Callable[[], float] = clock.monotonic
    ) -> None:
        self._client = client
        self._cache = cache
        self._surroundings = surroundings
        self._problems: dict[tuple[str, str], Problem] = {}
        self._outcomes: dict[tuple[str, str], dict[tuple[str, str], tuple[str, str]]] = {}
        """Digests of manifests that the API server changes, and of the resulting objects."""
        self.drift = Drift(client, cache, clock)
        """Undoes changes by other clients."""
        self.templates = RevisionTemplates(client, cache, self.apply)
        """The pod templates of revisions."""
        self.volumes = VolumeGrowth(client, cache, clock)
        """The growth of volumes."""

    def use_surroundings(self, surroundings: Surroundings) -> None:
        """Use other surroundings from the next manifest on."""
        self._surroundings = surroundings

    def forget(self, namespace: str, name: str) -> None:
        """Forget a deleted StreamApp."""
        self._problems.pop((namespace, name), None)
        self._outcomes.pop((namespace, name), None)
        for part in (self.drift, self.templates, self.volumes):
            part.forget(namespace, name)

    def problem(self, app: StreamApp) -> Problem | None:
        """Return why objects of an application differ from their manifests; None when no difference was seen."""
        return self._problems.get((app.namespace, app.name)) or self.drift.problem(app)

    async def check_names(self, app: StreamApp) -> None:
        """Check that every object that the application needs is its own or does not exist.

        Applying a foreign object would take it over. Foreign objects are not watched, so the API server is asked while
        the application's own object does not exist.

        Raises:
            NameTaken: an object does not belong to the application.
            ApiError: an object cannot be read.
        """
        wanted = [(_KINDS[each["kind"]], each["metadata"]["name"]) for each in children(app, self._surroundings)]
        wanted += [(kinds.STATEFUL_SET, app.name), (kinds.STREAM_ASSIGNMENT, app.name)]
        found = await asyncio.gather(*(self._find(app, kind, name) for kind, name in wanted))
        for (kind, name), existing in zip(wanted, found, strict=True):
            if existing is not None and not owned_by(app, existing):
                raise NameTaken(kind.kind, name, leaving=_is_leaving(app, existing))
        job = self._cache.get(kinds.JOB, app.namespace, cleanup_name(app))
        if job is not None and _is_of_former(app, job) and not _is_over(job):
            # The cleanup Job of the former StreamApp would delete the topics of this one.
            raise NameTaken(kinds.JOB.kind, cleanup_name(app), leaving=True)

    async def children(self, app: StreamApp) -> None:
        """Apply all objects that do not depend on the rollout.

        Raises:
            NameTaken: an object does not belong to the application.
            ApiError: an object cannot be applied.
        """
        for manifest in children(app, self._surroundings):
            await self.apply(app, manifest)

    async def stateful_set(self, app: StreamApp, decision: Decision, wanted: Object, revision: str) -> bool:
        """Apply the StatefulSet with the decided template and replicas.

        Args:
            app: the StreamApp.
            decision: the decision.
            wanted: the template that the StreamApp wants now.
            revision: the revision of `wanted`.

        Returns:
            Whether it exists now; False when it has to be deleted first, to be recreated.

        Raises:
            NameTaken: it does not belong to the application.
            ApiError: it cannot be applied.
        """
        existing = self._cache.get(kinds.STATEFUL_SET, app.namespace, app.name)
        if existing is not None and not owned_by(app, existing):
            raise NameTaken(kinds.STATEFUL_SET.kind, app.name, leaving=_is_leaving(app, existing))
        template = self.templates.decided(app, decision, wanted, revision)
        manifest = stateful_set(app, template, decision.revision, decision.replicas, keep_volumes=decision.keep_volumes)
        if existing is not None:
            await self.templates.keep_good(app, existing, decision)
            if self._must_recreate(app, manifest, existing):
                if "deletionTimestamp" not in existing["metadata"]:
                    log.info(
                        "StatefulSet %s/%s: recreating it without ending its pods, since immutable fields changed",
                        app.namespace,
                        app.name,
                    )
                    uid = existing["metadata"]["uid"]
                    await self._client.delete(
                        kinds.STATEFUL_SET, app.namespace, app.name, uid=uid, propagation="Orphan"
                    )
                return False
            if "deletionTimestamp" in existing["metadata"]:
                return False
        await self.apply(app, manifest)
        return True

    async def delete(self, app: StreamApp, pods: Iterable[ObservedPod]) -> None:
        """Delete pods, if they are still the observed ones.

        Raises:
            Conflict: a pod was replaced meanwhile.
            ApiError: a pod cannot be deleted.
        """
        for pod in pods:
            log.info("Pod %s/%s: deleting the pod of revision %s", app.namespace, pod.name, pod.revision)
            ending = await self._client.delete(kinds.POD, app.namespace, pod.name, uid=pod.uid)
            if ending is not None:
                self._cache.put(kinds.POD, ending)

    def cleanup_job(self, app: StreamApp) -> Object | None:
        """Return the Job that deletes the application's topics and group in Kafka; None when there is none."""
        job = self._cache.get(kinds.JOB, app.namespace, cleanup_name(app))
        return job if job is not None and made_for(app, job) else None

    async def start_cleanup(self, app: StreamApp, known_good: str) -> None:
        """Start the Job that deletes the application's internal topics and consumer group in Kafka.

        Args:
            app: the StreamApp.
            known_good: the revision that has the Job's image and settings. If its template does not exist, the
                specification of the StreamApp has them.

        Raises:
            NameTaken: the Job of a former StreamApp of this name still exists.
            ApiError: it cannot be started.
        """
        job = self._cache.get(kinds.JOB, app.namespace, cleanup_name(app))
        if job is not None and _is_of_former(app, job):
            name, uid = job["metadata"]["name"], job["metadata"]["uid"]
            if await self._client.delete(kinds.JOB, app.namespace, name, uid=uid, propagation="Background") is not None:
                raise NameTaken(kinds.JOB.kind, name, leaving=True)
            self._cache.remove(kinds.JOB, job)
        await self.apply(app, cleanup_job(app, self.templates.available(app, known_good)))

    async def apply(self, app: StreamApp, manifest: Object) -> None:
        """Apply one manifest if that changes the object.

        Raises:
            NameTaken: the object does not belong to the application.
            ApiError: it cannot be applied.
        """
        kind = _KINDS[manifest["kind"]]
        name = manifest["metadata"]["name"]
        existing = self._cache.get(kind, app.namespace, name)
        if existing is not None:
            if not made_for(app, existing):
                raise NameTaken(kind.kind, name, leaving=_is_leaving(app, existing))
            existing = await self.drift.remove_additions(app, kind, manifest, existing)
            if same(manifest, existing):
                if kind is kinds.STATEFUL_SET:
                    self.templates.note_clean(app, existing)
                return
            if self._is_known_outcome(app, manifest, existing):
                return
            if was_applied(manifest, existing):
                self.drift.report_revert(app, kind, manifest, existing)
        answer = await self._write(app, kind, finish(manifest, self._surroundings.leader_epoch), existing)
        self._note_outcome(app, manifest, answer)

    def _is_known_outcome(self, app: StreamApp, manifest: Object, existing: Object) -> bool:
        """Return whether this object is the result of applying this manifest before: doing it again changes nothing."""
        outcomes = self._outcomes.get((app.namespace, app.name), {})
        key = (manifest["kind"], manifest["metadata"]["name"])
        return outcomes.get(key) == (digest(manifest), content(existing))

    def _note_outcome(self, app: StreamApp, manifest: Object, answer: Object) -> None:
        key, which = (app.namespace, app.name), (manifest["kind"], manifest["metadata"]["name"])
        if same(manifest, answer):
            self._outcomes.get(key, {}).pop(which, None)
            return
        outcomes = self._outcomes.setdefault(key, {})
        if which not in outcomes:
            log.warning(
                "%s %s/%s: differs from the applied manifest, because the API server or a webhook changed it",
                which[0],
                app.namespace,
                which[1],
            )
        outcomes[which] = (digest(manifest), content(answer))

    async def _find(self, app: StreamApp, kind: Kind, name: str) -> Object | None:
        existing = self._cache.get(kind, app.namespace, name)
        if existing is not None:
            return existing
        try:
            existing = await self._client.get(kind, app.namespace, name)
        except NotFound:
            return None
        if owned_by(app, existing):
            await self._add_to_cache(app, kind, existing)
        return existing

    async def _add_to_cache(self, app: StreamApp, kind: Kind, found: Object) -> None:
        """Add the application's own object to the cache, and restore the label by which watches select it."""
        metadata = found["metadata"]
        if (metadata.get("labels") or {}).get(APP) != app.name:
            labelled: Object = {"metadata": {"labels": {APP: app.name}, "resourceVersion": metadata["resourceVersion"]}}
            found = await self._client.patch(kind, app.namespace, metadata["name"], labelled)
        self._cache.put(kind, found)

    async def _write(self, app: StreamApp, kind: Kind, object: Object, existing: Object | None) -> Object:
        """Apply over the version that was read, so that a former leader cannot overwrite a later version."""
        try:
            answer = await self._client.apply(kind, over(object, existing))
        except ApiError as error:
            found = await self._read_again(app, kind, object)
            if isinstance(error, Conflict) and found is not None and not made_for(app, found):
                raise NameTaken(kind.kind, found["metadata"]["name"], leaving=_is_leaving(app, found)) from error
            raise
        self._cache.put(kind, answer)
        return answer

    async def _read_again(self, app: StreamApp, kind: Kind, object: Object) -> Object | None:
        """Update the cache after a rejected write, which may have followed from an outdated object."""
        metadata = object["metadata"]
        try:
            items, version = await self._client.list(
                kind, metadata["namespace"], fields=f"metadata.name={metadata['name']}"
            )
        except ApiError:
            return None
        if items and made_for(app, items[0]):
            await self._add_to_cache(app, kind, items[0])
        elif self._cache.version(kind, metadata["namespace"], metadata["name"]) <= int(version or 0):
            known = self._cache.get(kind, metadata["namespace"], metadata["name"])
            if known is not None:
                self._cache.remove(kind, known, version)
        return items[0] if items else None

    def _must_recreate(self, app: StreamApp, manifest: Object, existing: Object) -> bool:
        """Return whether the StatefulSet has to be deleted and created again, since immutable fields differ.

        Not when it was applied just so: it would be recreated without end.
        """
        key, different = (app.namespace, app.name), fixed_differences(manifest, existing)
        if not different or not was_applied(manifest, existing):
            self._problems.pop(key, None)
            return bool(different)
        self._problems[key] = Problem(
            "StatefulSetDiffers",
            f"StatefulSet '{app.name}' differs from what was applied ({', '.join(different)}): the API server or a "
            "webhook changes it. Set spec.state to what the StatefulSet has, or find out who changes it.",
            persistent=True,
        )
        return False


def _is_leaving(app: StreamApp, object: Object) -> bool:
    """Return whether Kubernetes will delete an object: it is being deleted, or its owner, of this name, was deleted."""
    metadata = object["metadata"]
    owners = metadata.get("ownerReferences") or ()
    return "deletionTimestamp" in metadata or any(
        (each["kind"], each["name"]) == ("StreamApp", app.name) for each in owners
    )


def _is_of_former(app: StreamApp, job: Object) -> bool:
    """Return whether a Job was created for a deleted StreamApp of the same name."""
    labels = job["metadata"].get("labels") or {}
    return labels.get(APP) == app.name and labels.get(APP_UID, app.uid) != app.uid


def _is_over(job: Object) -> bool:
    conditions = job.get("status", {}).get("conditions") or ()
    return any(each.get("type") in {"Complete", "Failed"} and each.get("status") == "True" for each in conditions)
