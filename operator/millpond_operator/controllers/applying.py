"""Making it so: manifests applied where they differ, pods deleted, revisions kept, volumes grown."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from millpond.errors import MillpondError
from millpond_operator.kubernetes import ApiError, Cache, Client, Forbidden, Invalid, Kind, Object, kinds
from millpond_operator.resources import (
    REVISION,
    StreamApp,
    Surroundings,
    children,
    claim_growth,
    controller_revision,
    finish,
    must_be_made_anew,
    owned_by,
    revision_name,
    same,
    stateful_set,
    template_of,
)

from .observation import Pod
from .problems import Problem
from .rollout import Decision

__all__ = ("Applier", "NameTaken", "template_in")

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
    """An object that the application needs exists, and is not the application's."""

    def __init__(self, kind: str, name: str, *, leaving: bool) -> None:
        super().__init__(
            f"{kind} '{name}' exists and does not belong to this StreamApp: delete it, or give the StreamApp another name."
        )
        self.leaving = leaving


class Applier:
    """Applies what is wanted of one application after the other.

    Args:
        client: to write with; its answers go to the cache.
        cache: what there is.
        surroundings: what manifests need to know.
    """

    def __init__(self, client: Client, cache: Cache, surroundings: Surroundings) -> None:
        self._client = client
        self._cache = cache
        self._surroundings = surroundings

    async def children(self, app: StreamApp) -> None:
        """All that does not depend on the rollout.

        Raises:
            NameTaken, ApiError: it cannot be applied.
        """
        for manifest in children(app, self._surroundings):
            await self._apply(app, manifest)

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
        template = self._template(app, decision.revision, wanted, revision, there)
        manifest = stateful_set(app, template, decision.revision, decision.replicas, keep_volumes=decision.keep_volumes)
        if there is not None:
            await self._keep(app, there, decision)
            if owned_by(app, there) and must_be_made_anew(manifest, there):
                if "deletionTimestamp" not in there["metadata"]:
                    log.info("StatefulSet %s/%s is made anew around its pods.", app.namespace, app.name)
                    await self._client.delete(
                        kinds.STATEFUL_SET, app.namespace, app.name, uid=there["metadata"]["uid"], propagation="Orphan"
                    )
                return False
            if "deletionTimestamp" in there["metadata"]:
                return False
        await self._apply(app, manifest)
        return True

    async def delete(self, app: StreamApp, pods: Iterable[Pod]) -> None:
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
        for claim in self._cache.of_app(kinds.PERSISTENT_VOLUME_CLAIM, app.namespace, app.name):
            patch = claim_growth(app, claim)
            if patch is None or claim.get("status", {}).get("phase") != "Bound":
                continue
            name = claim["metadata"]["name"]
            try:
                grown = await self._client.patch(kinds.PERSISTENT_VOLUME_CLAIM, app.namespace, name, patch)
                self._cache.put(kinds.PERSISTENT_VOLUME_CLAIM, grown)
            except (Forbidden, Invalid) as error:
                return Problem(
                    "VolumeNotExpandable",
                    f"Volume claim '{name}' cannot grow to {app.spec.state.size} ({error}): use a storage class with "
                    "allowVolumeExpansion, or set spec.state.size back.",
                    settled=True,
                )
        return None

    async def forget_revisions(self, app: StreamApp, keep: frozenset[str]) -> None:
        """Delete the templates that nobody will go back to."""
        for each in self._cache.of_app(kinds.CONTROLLER_REVISION, app.namespace, app.name):
            metadata = each["metadata"]
            if owned_by(app, each) and metadata.get("labels", {}).get(REVISION) not in keep:
                await self._client.delete(
                    kinds.CONTROLLER_REVISION, app.namespace, metadata["name"], uid=metadata["uid"]
                )

    def kept(self, app: StreamApp) -> frozenset[str]:
        """The revisions whose templates are at hand."""
        there = self._cache.get(kinds.STATEFUL_SET, app.namespace, app.name)
        found = {
            each["metadata"].get("labels", {}).get(REVISION, "")
            for each in self._cache.of_app(kinds.CONTROLLER_REVISION, app.namespace, app.name)
            if owned_by(app, each)
        }
        if there is not None:
            found.add(there["metadata"].get("labels", {}).get(REVISION, ""))
        return frozenset(found - {""})

    async def apply(self, app: StreamApp, manifest: Object) -> None:
        """Apply one manifest, if that changes anything.

        Raises:
            NameTaken, ApiError: it cannot be applied.
        """
        await self._apply(app, manifest)

    async def _apply(self, app: StreamApp, manifest: Object) -> None:
        kind = _KINDS[manifest["kind"]]
        name = manifest["metadata"]["name"]
        there = self._cache.get(kind, app.namespace, name)
        if there is not None:
            if manifest["metadata"].get("ownerReferences") and not owned_by(app, there):
                raise NameTaken(kind.kind, name, leaving=_is_leaving(there))
            if same(manifest, there):
                return
        await self._written(kind, finish(manifest, self._surroundings.leader_epoch), there)

    async def _written(self, kind: Kind, object: Object, there: Object | None) -> None:
        if there is not None:  # of two leaders, the one that did not see the other's write does not overwrite it
            object = object | {
                "metadata": object["metadata"] | {"resourceVersion": there["metadata"]["resourceVersion"]}
            }
        try:
            self._cache.put(kind, await self._client.apply(kind, object))
        except ApiError:
            await self._look_again(kind, object)
            raise

    async def _look_again(self, kind: Kind, object: Object) -> None:
        """What was refused was decided on something old: see what there is, so that the next try knows."""
        metadata = object["metadata"]
        try:
            items, version = await self._client.list(
                kind, metadata["namespace"], fields=f"metadata.name={metadata['name']}"
            )
        except ApiError:
            return
        if items:
            self._cache.put(kind, items[0])
        elif self._cache.version(kind, metadata["namespace"], metadata["name"]) <= int(version or 0):
            known = self._cache.get(kind, metadata["namespace"], metadata["name"])
            if known is not None:
                self._cache.gone(kind, known, version)

    def _template(self, app: StreamApp, decided: str, wanted: Object, revision: str, there: Object | None) -> Object:
        if decided == revision:
            return wanted
        if there is not None and there["metadata"].get("labels", {}).get(REVISION) == decided:
            return template_in(there)
        found = self._cache.get(kinds.CONTROLLER_REVISION, app.namespace, revision_name(app, decided))
        if found is None:
            raise MillpondError(
                f"The template of revision {decided} is not there any more: nothing can be gone back to."
            )
        return template_of(found)

    async def _keep(self, app: StreamApp, there: Object, decision: Decision) -> None:
        """Keep the template of the last good revision before the StatefulSet gets another one."""
        running = there["metadata"].get("labels", {}).get(REVISION, "")
        if running in {"", decision.revision} or running != decision.status.current_revision:
            return
        await self._apply(app, controller_revision(app, template_in(there), running))


def template_in(stateful_set: Object) -> Object:
    """The pod template of a StatefulSet, without the label that says which revision it is."""
    template: Object = stateful_set["spec"]["template"]
    metadata = {key: value for key, value in template["metadata"].items() if key != "creationTimestamp"}
    labels = {key: value for key, value in metadata.get("labels", {}).items() if key != REVISION}
    return template | {"metadata": metadata | {"labels": labels}}


def _is_leaving(object: Object) -> bool:
    return "deletionTimestamp" in object["metadata"]
