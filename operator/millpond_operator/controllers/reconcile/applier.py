"""Making it so: manifests applied where they differ, pods deleted, revisions kept, volumes grown."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from millpond.errors import MillpondError
from millpond.protocol import clock
from millpond_operator.controllers.preconditions import over
from millpond_operator.controllers.rollout.decide import Decision
from millpond_operator.controllers.rollout.observation import ObservedPod
from millpond_operator.controllers.rollout.pod_problems import Problem
from millpond_operator.kubernetes import (
    ApiError,
    Cache,
    Client,
    Conflict,
    Forbidden,
    Invalid,
    Kind,
    NotFound,
    Object,
    kinds,
)
from millpond_operator.resources import (
    APP,
    APP_UID,
    REVISION,
    StreamApp,
    Surroundings,
    children,
    claim_growth,
    claim_of,
    cleanup_job,
    cleanup_name,
    content,
    controller_revision,
    digest,
    finish,
    fixed_differences,
    foreign_managers,
    made_for,
    owned_by,
    revision_name,
    same,
    stateful_set,
    template_of,
    was_applied,
)

from .drift import Drift

__all__ = ("Applier", "NameTaken")

log = logging.getLogger(__name__)

#: How long a volume that was refused to grow is left alone, unless the StreamApp changes; and how many refusals are
#: enough to see that there is something to tell.
_GROWS_AGAIN_S = 50.0
_MOST_REFUSALS = 3
#: A StatefulSet that the API server does not make as it was told would be made anew for ever.
_SET = "StatefulSet"

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
    """An object that the application needs exists, and is not the application's."""

    def __init__(self, kind: str, name: str, *, leaving: bool) -> None:
        super().__init__(
            f"{kind} '{name}' is of a StreamApp that was deleted: it goes by itself."
            if leaving
            else f"{kind} '{name}' exists and does not belong to this StreamApp: delete it, or give the StreamApp another name."
        )
        self.kind = kind
        self.leaving = leaving


@dataclass(frozen=True)
class _Refusal:
    """A volume that cannot grow."""

    wanted: str
    """What was asked for, and by which StreamApp."""
    at: float
    problem: Problem


class Applier:
    """Applies what is wanted of one application after the other.

    Args:
        client: to write with; its answers go to the cache.
        cache: what there is.
        surroundings: what manifests need to know.
        clock: any that only goes forward, in seconds.
    """

    def __init__(
        self, client: Client, cache: Cache, surroundings: Surroundings, clock: Callable[[], float] = clock.monotonic
    ) -> None:
        self._client = client
        self._cache = cache
        self._surroundings = surroundings
        self._clock = clock
        self._refusals: dict[tuple[str, str], dict[str, _Refusal]] = {}
        """By application, and by the claim's uid."""
        self._troubles: dict[tuple[str, str], Problem] = {}
        self._outcomes: dict[tuple[str, str], dict[tuple[str, str], tuple[str, str]]] = {}
        """By application, and by kind and name: manifests of which the API server makes something else, and what."""
        self._clean: dict[tuple[str, str], str] = {}
        """The digest of the template of each StatefulSet when it was last seen to be as it was applied."""
        self.drift = Drift(client, cache, clock)

    def go_on_with(self, surroundings: Surroundings) -> None:
        """From the next manifest on, these are the surroundings."""
        self._surroundings = surroundings

    def forget(self, namespace: str, name: str) -> None:
        """The application is gone."""
        for known in (self._refusals, self._troubles, self._outcomes, self._clean):
            known.pop((namespace, name), None)
        self.drift.forget(namespace, name)

    def trouble(self, app: StreamApp) -> Problem | None:
        """Why what there is of an application cannot be made what is wanted, as far as was seen when it was tried."""
        return self._troubles.get((app.namespace, app.name)) or self.drift.problem(app)

    async def claim_names(self, app: StreamApp) -> None:
        """See that what the application needs is not somebody else's, whom to apply it would take it from.

        What is not an application's is not watched: it is asked for, as long as the application's own is not there.

        Raises:
            NameTaken: something is.
            ApiError: it cannot be read.
        """
        wanted = [(_KINDS[each["kind"]], each["metadata"]["name"]) for each in children(app, self._surroundings)]
        wanted += [(kinds.STATEFUL_SET, app.name), (kinds.STREAM_ASSIGNMENT, app.name)]
        found = await asyncio.gather(*(self._found(app, kind, name) for kind, name in wanted))
        for (kind, name), there in zip(wanted, found, strict=True):
            if there is not None and not owned_by(app, there):
                raise NameTaken(kind.kind, name, leaving=_is_leaving(app, there))
        job = self._cache.get(kinds.JOB, app.namespace, cleanup_name(app))
        if job is not None and _is_of_former(app, job) and not _is_over(job):  # it would delete what this one makes
            raise NameTaken(kinds.JOB.kind, cleanup_name(app), leaving=True)

    async def children(self, app: StreamApp) -> None:
        """All that does not depend on the rollout.

        Raises:
            NameTaken, ApiError: it cannot be applied.
        """
        for manifest in children(app, self._surroundings):
            await self.apply(app, manifest)

    async def stateful_set(self, app: StreamApp, decision: Decision, wanted: Object, revision: str) -> bool:
        """The StatefulSet with the template and the replicas that were decided.

        Args:
            app: whose.
            decision: what was decided.
            wanted: the template that the StreamApp wants now.
            revision: its revision.

        Returns:
            Whether it is there now; False when it had to be deleted first, to be made anew.

        Raises:
            NameTaken, ApiError: it cannot be applied.
        """
        there = self._cache.get(kinds.STATEFUL_SET, app.namespace, app.name)
        if there is not None and not owned_by(app, there):
            raise NameTaken(_SET, app.name, leaving=_is_leaving(app, there))
        template = self._template(app, decision.revision, wanted, revision)
        manifest = stateful_set(app, template, decision.revision, decision.replicas, keep_volumes=decision.keep_volumes)
        if there is not None:
            await self._keep(app, there, decision)
            if self._to_be_made_anew(app, manifest, there):
                if "deletionTimestamp" not in there["metadata"]:
                    log.info("StatefulSet %s/%s is made anew around its pods.", app.namespace, app.name)
                    await self._client.delete(
                        kinds.STATEFUL_SET, app.namespace, app.name, uid=there["metadata"]["uid"], propagation="Orphan"
                    )
                return False
            if "deletionTimestamp" in there["metadata"]:
                return False
        await self.apply(app, manifest)
        return True

    async def delete(self, app: StreamApp, pods: Iterable[ObservedPod]) -> None:
        """Delete pods, if they are still the ones that were looked at.

        Raises:
            Conflict, ApiError: they cannot be deleted, or changed meanwhile.
        """
        for pod in pods:
            log.info("Pod %s/%s (revision %s) is deleted.", app.namespace, pod.name, pod.revision)
            ending = await self._client.delete(kinds.POD, app.namespace, pod.name, uid=pod.uid)
            if ending is not None:
                self._cache.put(kinds.POD, ending)

    async def grow(self, app: StreamApp) -> Problem | None:
        """Make volumes as large as they should be.

        Returns:
            Why that is not possible, if it is not.
        """
        small = {
            claim["metadata"]["uid"]: (claim, patch)
            for claim in self._cache.of_app(kinds.PERSISTENT_VOLUME_CLAIM, app.namespace, app.name)
            if claim_of(app, claim) and claim.get("status", {}).get("phase") == "Bound"
            if (patch := claim_growth(app, claim)) is not None
        }
        key = (app.namespace, app.name)
        refusals = {uid: each for uid, each in self._refusals.pop(key, {}).items() if uid in small}
        wanted = digest([app.spec.state.size, app.generation, dict(app.annotations)])
        now, refused = self._clock(), 0
        for uid in sorted(small, key=lambda uid: refusals[uid].at if uid in refusals else 0.0):
            last = refusals.get(uid)
            if refused == _MOST_REFUSALS or (last and last.wanted == wanted and now < last.at + _GROWS_AGAIN_S):
                continue
            refusals.pop(uid, None)
            problem = await self._grown(app, *small[uid])
            if problem is not None:
                refusals[uid] = _Refusal(wanted, now, problem)
                refused += 1
        if not refusals:
            return None
        self._refusals[key] = refusals
        return next(refusals[uid].problem for uid in small if uid in refusals)

    async def _grown(self, app: StreamApp, claim: Object, patch: Object) -> Problem | None:
        name = claim["metadata"]["name"]
        try:
            grown = await self._client.patch(kinds.PERSISTENT_VOLUME_CLAIM, app.namespace, name, patch)
        except (Forbidden, Invalid) as error:
            return Problem(
                "VolumeNotExpandable",
                f"Volume claim '{name}' cannot grow to {app.spec.state.size} ({error}): set allowVolumeExpansion in its "
                "storage class, or raise the quota that is in the way.",
                settled=True,
            )
        self._cache.put(kinds.PERSISTENT_VOLUME_CLAIM, grown)
        return None

    def cleanup(self, app: StreamApp) -> Object | None:
        """The Job that deletes what the application has in Kafka, if it is this application's."""
        job = self._cache.get(kinds.JOB, app.namespace, cleanup_name(app))
        return job if job is not None and made_for(app, job) else None

    async def clean_up(self, app: StreamApp, known_good: str) -> None:
        """Start the Job that deletes what the application has in Kafka.

        Args:
            app: whose.
            known_good: the revision whose image and settings it takes, if that is at hand; else what the StreamApp wants.

        Raises:
            NameTaken, ApiError: it cannot be started.
        """
        job = self._cache.get(kinds.JOB, app.namespace, cleanup_name(app))
        if job is not None and _is_of_former(app, job):
            name, uid = job["metadata"]["name"], job["metadata"]["uid"]
            if await self._client.delete(kinds.JOB, app.namespace, name, uid=uid, propagation="Background") is not None:
                raise NameTaken(kinds.JOB.kind, name, leaving=True)
            self._cache.remove(kinds.JOB, job)
        await self.apply(app, cleanup_job(app, self._at_hand(app, known_good)))

    async def forget_revisions(self, app: StreamApp, keep: frozenset[str]) -> None:
        """Delete the templates that nobody will go back to."""
        for each in self._cache.of_app(kinds.CONTROLLER_REVISION, app.namespace, app.name):
            metadata = each["metadata"]
            if owned_by(app, each) and metadata.get("labels", {}).get(REVISION) not in keep:
                await self._client.delete(
                    kinds.CONTROLLER_REVISION, app.namespace, metadata["name"], uid=metadata["uid"]
                )

    async def template(self, app: StreamApp, revision: str) -> Object | None:
        """Return the pod template of a revision, None if it is not at hand; it is kept apart from what others may change.

        Raises:
            ApiError: it cannot be kept.
        """
        there = self._cache.get(kinds.STATEFUL_SET, app.namespace, app.name)
        if there is not None and owned_by(app, there) and there["metadata"]["labels"].get(REVISION) == revision:
            await self._keep_template(app, there, revision)
        kept = self._kept_template(app, revision)
        return kept if kept is not None else self._at_hand(app, revision)

    def kept(self, app: StreamApp) -> frozenset[str]:
        """The revisions whose templates are at hand."""
        there = self._cache.get(kinds.STATEFUL_SET, app.namespace, app.name)
        found = {
            each["metadata"].get("labels", {}).get(REVISION, "")
            for each in self._cache.of_app(kinds.CONTROLLER_REVISION, app.namespace, app.name)
            if owned_by(app, each)
        }
        if there is not None and owned_by(app, there) and self._is_clean(app, there):
            found.add(there["metadata"].get("labels", {}).get(REVISION, ""))
        return frozenset(found - {""})

    async def apply(self, app: StreamApp, manifest: Object) -> None:
        """Apply one manifest, if that changes anything.

        Raises:
            NameTaken, ApiError: it cannot be applied.
        """
        kind = _KINDS[manifest["kind"]]
        name = manifest["metadata"]["name"]
        there = self._cache.get(kind, app.namespace, name)
        if there is not None:
            if not made_for(app, there):
                raise NameTaken(kind.kind, name, leaving=_is_leaving(app, there))
            there = await self.drift.take_out(app, kind, manifest, there)
            if same(manifest, there):
                if kind is kinds.STATEFUL_SET:
                    self._clean[app.namespace, app.name] = digest(_template_in(there))
                return
            if self._came_to(app, manifest, there):
                return
            if was_applied(manifest, there):
                self.drift.put_back(app, kind, manifest, there)
        answer = await self._written(app, kind, finish(manifest, self._surroundings.leader_epoch), there)
        self._remember(app, manifest, answer)

    def _came_to(self, app: StreamApp, manifest: Object, there: Object) -> bool:
        """Whether what is there is what the API server made of this very manifest before: it will not make another."""
        outcomes = self._outcomes.get((app.namespace, app.name), {})
        return outcomes.get((manifest["kind"], manifest["metadata"]["name"])) == (digest(manifest), content(there))

    def _remember(self, app: StreamApp, manifest: Object, answer: Object) -> None:
        key, which = (app.namespace, app.name), (manifest["kind"], manifest["metadata"]["name"])
        if same(manifest, answer):
            self._outcomes.get(key, {}).pop(which, None)
            return
        outcomes = self._outcomes.setdefault(key, {})
        if which not in outcomes:
            log.warning(
                "%s %s/%s is not what was applied: the API server or a webhook changes it.",
                which[0],
                app.namespace,
                which[1],
            )
        outcomes[which] = (digest(manifest), content(answer))

    async def _found(self, app: StreamApp, kind: Kind, name: str) -> Object | None:
        there = self._cache.get(kind, app.namespace, name)
        if there is not None:
            return there
        try:
            there = await self._client.get(kind, app.namespace, name)
        except NotFound:
            return None
        if owned_by(app, there):
            await self._take_in(app, kind, there)
        return there

    async def _take_in(self, app: StreamApp, kind: Kind, found: Object) -> None:
        """Know of the application's own object. Without its label no watch shows it: then somebody took that away."""
        metadata = found["metadata"]
        if (metadata.get("labels") or {}).get(APP) != app.name:
            labelled: Object = {"metadata": {"labels": {APP: app.name}, "resourceVersion": metadata["resourceVersion"]}}
            found = await self._client.patch(kind, app.namespace, metadata["name"], labelled)
        self._cache.put(kind, found)

    async def _written(self, app: StreamApp, kind: Kind, object: Object, there: Object | None) -> Object:
        """Apply over what was read: of two leaders, the one that did not see the other's write does not overwrite it."""
        try:
            answer = await self._client.apply(kind, over(object, there))
        except ApiError as error:
            found = await self._look_again(app, kind, object)
            if isinstance(error, Conflict) and found is not None and not made_for(app, found):
                raise NameTaken(kind.kind, found["metadata"]["name"], leaving=_is_leaving(app, found)) from error
            raise
        self._cache.put(kind, answer)
        return answer

    async def _look_again(self, app: StreamApp, kind: Kind, object: Object) -> Object | None:
        """What was refused was decided on something old: see what there is, so that the next try knows."""
        metadata = object["metadata"]
        try:
            items, version = await self._client.list(
                kind, metadata["namespace"], fields=f"metadata.name={metadata['name']}"
            )
        except ApiError:
            return None
        if items and made_for(app, items[0]):
            await self._take_in(app, kind, items[0])
        elif self._cache.version(kind, metadata["namespace"], metadata["name"]) <= int(version or 0):
            known = self._cache.get(kind, metadata["namespace"], metadata["name"])
            if known is not None:
                self._cache.remove(kind, known, version)
        return items[0] if items else None

    def _to_be_made_anew(self, app: StreamApp, manifest: Object, there: Object) -> bool:
        """Whether the StatefulSet is to be deleted and made again: not when that came to nothing before."""
        key, different = (app.namespace, app.name), fixed_differences(manifest, there)
        if not different or not was_applied(manifest, there):
            self._troubles.pop(key, None)
            return bool(different)
        self._troubles[key] = Problem(
            "StatefulSetDiffers",
            f"StatefulSet '{app.name}' is not as it was applied ({', '.join(different)}): the API server or a webhook "
            "changes it. Write spec.state as it is there, or see who changes it.",
            settled=True,
        )
        return False

    def _template(self, app: StreamApp, decided: str, wanted: Object, revision: str) -> Object:
        if decided == revision:
            return wanted
        found = self._at_hand(app, decided)
        if found is None:
            raise MillpondError(
                f"The template of revision {decided} is not there any more: nothing can be gone back to."
            )
        return found

    def _at_hand(self, app: StreamApp, revision: str) -> Object | None:
        there = self._cache.get(kinds.STATEFUL_SET, app.namespace, app.name)
        if there is not None and owned_by(app, there) and there["metadata"]["labels"].get(REVISION) == revision:
            return _template_in(there)
        return self._kept_template(app, revision)

    def _kept_template(self, app: StreamApp, revision: str) -> Object | None:
        kept = self._cache.get(kinds.CONTROLLER_REVISION, app.namespace, revision_name(app, revision))
        return template_of(kept) if kept is not None and owned_by(app, kept) else None

    async def _keep(self, app: StreamApp, there: Object, decision: Decision) -> None:
        """Keep the template of the last good revision before the StatefulSet gets another one."""
        running = there["metadata"].get("labels", {}).get(REVISION, "")
        if running in {"", decision.revision} or running != decision.status.current_revision:
            return
        await self._keep_template(app, there, running)

    async def _keep_template(self, app: StreamApp, there: Object, running: str) -> None:
        if self._kept_template(app, running) is not None:
            return  # what is in it can never be changed
        if not self._is_clean(app, there):
            log.warning(
                "StatefulSet %s/%s: somebody changed the template of revision %s; it is not kept, and nothing goes back to it.",
                app.namespace, app.name, running,
            )  # fmt: skip
            return
        await self.apply(app, controller_revision(app, _template_in(there), running))

    def _is_clean(self, app: StreamApp, there: Object) -> bool:
        """Whether the template of a StatefulSet is the operator's own, as far as can be known."""
        return not foreign_managers(there) or self._clean.get((app.namespace, app.name)) == digest(_template_in(there))


def _template_in(stateful_set: Object) -> Object:
    """The pod template of a StatefulSet, without the label that says which revision it is."""
    template: Object = stateful_set["spec"]["template"]
    metadata = {key: value for key, value in template["metadata"].items() if key != "creationTimestamp"}
    labels = {key: value for key, value in metadata.get("labels", {}).items() if key != REVISION}
    return template | {"metadata": metadata | {"labels": labels}}


def _is_leaving(app: StreamApp, object: Object) -> bool:
    """Whether it goes by itself: it is being deleted, or belonged to a StreamApp of that name that was."""
    metadata = object["metadata"]
    owners = metadata.get("ownerReferences") or ()
    return "deletionTimestamp" in metadata or any(
        (each["kind"], each["name"]) == ("StreamApp", app.name) for each in owners
    )


def _is_of_former(app: StreamApp, job: Object) -> bool:
    """Whether a Job was made for a StreamApp of that name that was."""
    labels = job["metadata"].get("labels") or {}
    return labels.get(APP) == app.name and labels.get(APP_UID, app.uid) != app.uid


def _is_over(job: Object) -> bool:
    conditions = job.get("status", {}).get("conditions") or ()
    return any(each.get("type") in {"Complete", "Failed"} and each.get("status") == "True" for each in conditions)
