"""The deletion of a StreamApp, and the finalizer that delays it until the cleanup Job has ended."""

from __future__ import annotations

import logging

from millpond_operator.controllers.pass_context import ReconcilePass
from millpond_operator.controllers.preconditions import read_again
from millpond_operator.controllers.rollout.model import Decision, Existing
from millpond_operator.kubernetes import Cache, Client, Conflict, Forbidden, NotFound, Object, kinds
from millpond_operator.resources import FINALIZER, StreamApp, cleanup_name, parse

from .applier import Applier
from .id_claims import IdClaims

__all__ = ("Deletion",)

log = logging.getLogger(__name__)


class Deletion:
    """Deletes StreamApps.

    Args:
        client: writes finalizers and deletes Jobs.
        cache: the known objects.
        applier: stops workers and starts the cleanup Job.
        claims: the application ids in use.
    """

    def __init__(self, client: Client, cache: Cache, applier: Applier, claims: IdClaims) -> None:
        self._client = client
        self._cache = cache
        self._applier = applier
        self._claims = claims

    async def proceed(self, work: ReconcilePass, decision: Decision, existing: Existing | None) -> None:
        """Take the next step: stop the workers, then run the cleanup Job, then remove the finalizer."""
        app = work.app
        if existing is not None and existing.replicas:
            await self._applier.stateful_set(app, decision, work.template, work.revision)
        if work.observed.pods:
            return
        job = self._applier.cleanup_job(app)
        # Topics and groups with this application id belong to another StreamApp unless this one proved its claim.
        if app.cleans_up_kafka and self._claims.holds((app.namespace, app.name)):
            if job is None:
                if await self._start_cleanup(work):
                    return
            elif not _is_complete(job):
                return
        if job is not None:  # complete, or not wanted any more
            await self._client.delete(
                kinds.JOB, app.namespace, cleanup_name(app), uid=job["metadata"]["uid"], propagation="Background"
            )
        raw = self._cache.get(kinds.STREAM_APP, app.namespace, app.name)
        if raw is not None:
            await self.set_finalizer(app, raw, wanted=False)

    async def set_finalizer(self, app: StreamApp, raw: Object, *, wanted: bool) -> StreamApp:
        """Add or remove the operator's finalizer; return the StreamApp afterwards.

        Raises:
            ApiError: the API server rejected the change, or did not answer.
        """
        others = [each for each in raw["metadata"].get("finalizers") or () if each != FINALIZER]
        patch: Object = {
            "metadata": {
                "finalizers": [*others, FINALIZER] if wanted else others,
                "resourceVersion": raw["metadata"]["resourceVersion"],
            }
        }
        try:
            changed = await self._client.patch(kinds.STREAM_APP, app.namespace, app.name, patch)
        except (Conflict, NotFound):
            await read_again(self._client, self._cache, kinds.STREAM_APP, app.namespace, app.name)
            raise
        if app.deleting and not wanted and not others:
            # Without a finalizer the StreamApp is deleted at once; the response shows it as it was before.
            self._cache.remove(kinds.STREAM_APP, changed)
        else:
            self._cache.put(kinds.STREAM_APP, changed)
        return parse(changed)

    async def _start_cleanup(self, work: ReconcilePass) -> bool:
        """Start the cleanup Job; return False when the namespace is being deleted and accepts no Job."""
        app = work.app
        try:
            await self._applier.start_cleanup(app, work.status.current_revision)
        except Forbidden as error:
            if "being terminated" not in str(error):
                raise
            log.warning(
                "StreamApp %s: its namespace is being deleted, so no cleanup Job can run; its internal topics and "
                "consumer group stay in Kafka",
                work.name,
            )
            return False
        return True


def _is_complete(job: Object) -> bool:
    conditions = job.get("status", {}).get("conditions") or ()
    return any(each.get("type") == "Complete" and each.get("status") == "True" for each in conditions)
