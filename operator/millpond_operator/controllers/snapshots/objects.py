"""The objects of a snapshot: its Job, and the service account, rights and settings that the Job needs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from millpond_operator.controllers.preconditions import over
from millpond_operator.kubernetes import Cache, Client, Kind, NotFound, Object, kinds
from millpond_operator.resources import (
    StateBootstrap,
    StreamApp,
    finish,
    snapshot_access,
    snapshot_job,
    snapshot_settings,
)

__all__ = ("ObjectNameTaken", "SnapshotObjects", "controller_uid")

_CHECK_INTERVAL = timedelta(seconds=10)
_MEMORY = timedelta(hours=1)
_KINDS = {
    kind.kind: kind for kind in (kinds.SERVICE_ACCOUNT, kinds.ROLE, kinds.ROLE_BINDING, kinds.CONFIG_MAP, kinds.JOB)
}


def controller_uid(object: Mapping[str, Any]) -> str:
    """Return the uid of an object's controller; "" when it has none."""
    owners = object["metadata"].get("ownerReferences") or ()
    return next((str(each["uid"]) for each in owners if each.get("controller")), "")


class ObjectNameTaken(Exception):
    """An object that the Job needs exists, but does not belong to the StateBootstrap."""

    def __init__(self, kind: Kind, name: str) -> None:
        super().__init__(
            f"{kind} '{name}' exists and does not belong to this StateBootstrap: delete it, or give the StateBootstrap "
            "another name."
        )


class SnapshotObjects:
    """Creates the objects of a snapshot, and restores those that are deleted while its Job runs.

    They are read one by one, since the operator has no right to watch all Roles of a cluster.

    Args:
        client: writes objects; its responses go to the cache.
        cache: the known objects.
        leader_epoch: the epoch of this operator's leadership.
        driver_role: the role of drivers that have executors; see `snapshot_access`.
    """

    def __init__(self, client: Client, cache: Cache, leader_epoch: int, driver_role: str) -> None:
        self._client = client
        self._cache = cache
        self._driver_role = driver_role
        self._leader_epoch = leader_epoch
        self._checked: dict[str, datetime] = {}
        """When the objects of each StateBootstrap were last checked, by uid."""

    async def create(self, app: StreamApp, bootstrap: StateBootstrap) -> Object:
        """Create all objects, the Job last; return the Job.

        Raises:
            ObjectNameTaken: an object does not belong to the StateBootstrap.
            ApiError: an object cannot be created.
        """
        for manifest in self._prerequisites(app, bootstrap):
            await self._apply(bootstrap, manifest)
        return await self._apply(bootstrap, snapshot_job(app, bootstrap))

    async def restore(self, app: StreamApp, bootstrap: StateBootstrap, now: datetime) -> tuple[list[str], timedelta]:
        """Restore deleted objects other than the Job, checking at most every 10 s.

        Returns:
            The restored objects, such as "Role 'nightly-snapshot'", and after which time to check again.

        Raises:
            ObjectNameTaken: an object does not belong to the StateBootstrap.
            ApiError: an object cannot be read or created.
        """
        last = self._checked.get(bootstrap.uid)
        if last is not None and timedelta(0) <= now - last < _CHECK_INTERVAL:
            return [], last + _CHECK_INTERVAL - now
        restored = []
        for manifest in self._prerequisites(app, bootstrap):
            kind, name = _KINDS[manifest["kind"]], manifest["metadata"]["name"]
            try:
                await self._client.get(kind, bootstrap.namespace, name)
            except NotFound:
                await self._apply(bootstrap, manifest)
                restored.append(f"{kind} '{name}'")
        self._checked = {uid: at for uid, at in self._checked.items() if abs(now - at) < _MEMORY}
        self._checked[bootstrap.uid] = now
        return restored, _CHECK_INTERVAL

    def _prerequisites(self, app: StreamApp, bootstrap: StateBootstrap) -> Sequence[Object]:
        """Return the objects that the Job needs."""
        return [*snapshot_access(app, bootstrap, self._driver_role), snapshot_settings(app, bootstrap)]

    async def _apply(self, bootstrap: StateBootstrap, manifest: Object) -> Object:
        """Apply an object over the existing one, if that belongs to this StateBootstrap."""
        kind, name = _KINDS[manifest["kind"]], manifest["metadata"]["name"]
        try:
            existing: Object | None = await self._client.get(kind, bootstrap.namespace, name)
        except NotFound:
            existing = None
        if existing is not None and controller_uid(existing) != bootstrap.uid:
            raise ObjectNameTaken(kind, name)
        answer = await self._client.apply(kind, over(finish(manifest, self._leader_epoch), existing))
        self._cache.put(kind, dict(answer))
        return answer
