"""The pod templates of revisions, kept in ControllerRevisions so that a rollback is possible."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

from millpond.errors import MillpondError
from millpond_operator.controllers.rollout.model import Decision
from millpond_operator.kubernetes import Cache, Client, Object, kinds
from millpond_operator.resources import (
    REVISION,
    StreamApp,
    controller_revision,
    digest,
    foreign_managers,
    owned_by,
    revision_name,
    template_of,
)

__all__ = ("RevisionTemplates",)

log = logging.getLogger(__name__)


class RevisionTemplates:
    """Finds, keeps and deletes pod templates.

    Args:
        client: deletes ControllerRevisions.
        cache: the known objects.
        apply: applies a manifest of a StreamApp.
    """

    def __init__(self, client: Client, cache: Cache, apply: Callable[[StreamApp, Object], Awaitable[None]]) -> None:
        self._client = client
        self._cache = cache
        self._apply = apply
        self._clean: dict[tuple[str, str], str] = {}
        """The digest of the template of each StatefulSet when it was last seen as it was applied."""

    def forget(self, namespace: str, name: str) -> None:
        """Forget a deleted StreamApp."""
        self._clean.pop((namespace, name), None)

    def note_clean(self, app: StreamApp, stateful_set: Object) -> None:
        """Note that the StatefulSet equals its applied manifest."""
        self._clean[app.namespace, app.name] = digest(_template_in(stateful_set))

    async def template(self, app: StreamApp, revision: str) -> Object | None:
        """Return the pod template of a revision, after copying it into a ControllerRevision; None if it does not exist.

        Raises:
            ApiError: it cannot be kept.
        """
        current = self._stateful_set(app)
        if current is not None and current["metadata"]["labels"].get(REVISION) == revision:
            await self._keep(app, current, revision)
        kept = self._kept_template(app, revision)
        return kept if kept is not None else self.available(app, revision)

    def decided(self, app: StreamApp, decision: Decision, wanted: Object, revision: str) -> Object:
        """Return the template of the decided revision.

        Args:
            app: the StreamApp.
            decision: the decision.
            wanted: the template that the StreamApp wants now.
            revision: the revision of `wanted`.

        Raises:
            MillpondError: the template of a former revision no longer exists.
        """
        if decision.revision == revision:
            return wanted
        found = self.available(app, decision.revision)
        if found is None:
            raise MillpondError(
                f"The pod template of revision {decision.revision} no longer exists, so a rollback to it is not "
                "possible: correct the StreamApp instead."
            )
        return found

    def available(self, app: StreamApp, revision: str) -> Object | None:
        """Return the template of a revision from the StatefulSet or a ControllerRevision; None if it does not exist."""
        current = self._stateful_set(app)
        if current is not None and current["metadata"]["labels"].get(REVISION) == revision:
            return _template_in(current)
        return self._kept_template(app, revision)

    def kept_revisions(self, app: StreamApp) -> frozenset[str]:
        """Return the revisions whose templates exist."""
        found = {
            each["metadata"].get("labels", {}).get(REVISION, "")
            for each in self._cache.of_app(kinds.CONTROLLER_REVISION, app.namespace, app.name)
            if owned_by(app, each)
        }
        current = self._stateful_set(app)
        if current is not None and self._is_clean(app, current):
            found.add(current["metadata"].get("labels", {}).get(REVISION, ""))
        return frozenset(found - {""})

    async def keep_good(self, app: StreamApp, stateful_set: Object, decision: Decision) -> None:
        """Keep the template of the last good revision before the StatefulSet gets another one.

        Raises:
            ApiError: it cannot be kept.
        """
        running = stateful_set["metadata"].get("labels", {}).get(REVISION, "")
        if running in {"", decision.revision} or running != decision.status.current_revision:
            return
        await self._keep(app, stateful_set, running)

    async def delete_others(self, app: StreamApp, keep: frozenset[str]) -> None:
        """Delete the templates of revisions to which there will be no rollback.

        Raises:
            ApiError: one cannot be deleted.
        """
        for each in self._cache.of_app(kinds.CONTROLLER_REVISION, app.namespace, app.name):
            metadata = each["metadata"]
            if owned_by(app, each) and metadata.get("labels", {}).get(REVISION) not in keep:
                await self._client.delete(
                    kinds.CONTROLLER_REVISION, app.namespace, metadata["name"], uid=metadata["uid"]
                )

    def _stateful_set(self, app: StreamApp) -> Object | None:
        found = self._cache.get(kinds.STATEFUL_SET, app.namespace, app.name)
        return found if found is not None and owned_by(app, found) else None

    def _kept_template(self, app: StreamApp, revision: str) -> Object | None:
        kept = self._cache.get(kinds.CONTROLLER_REVISION, app.namespace, revision_name(app, revision))
        return template_of(kept) if kept is not None and owned_by(app, kept) else None

    async def _keep(self, app: StreamApp, stateful_set: Object, running: str) -> None:
        if self._kept_template(app, running) is not None:
            return  # its content is immutable
        if not self._is_clean(app, stateful_set):
            log.warning(
                "StatefulSet %s/%s: the pod template of revision %s was changed by another client; it is not kept, so "
                "a rollback to it is not possible",
                app.namespace,
                app.name,
                running,
            )
            return
        await self._apply(app, controller_revision(app, _template_in(stateful_set), running))

    def _is_clean(self, app: StreamApp, stateful_set: Object) -> bool:
        """Return whether the template of a StatefulSet is the operator's own, as far as that is known."""
        clean = self._clean.get((app.namespace, app.name))
        return not foreign_managers(stateful_set) or clean == digest(_template_in(stateful_set))


def _template_in(stateful_set: Object) -> Object:
    """Return the pod template of a StatefulSet without the revision label."""
    template: Object = stateful_set["spec"]["template"]
    metadata = {key: value for key, value in template["metadata"].items() if key != "creationTimestamp"}
    labels = {key: value for key, value in metadata.get("labels", {}).items() if key != REVISION}
    return template | {"metadata": metadata | {"labels": labels}}
