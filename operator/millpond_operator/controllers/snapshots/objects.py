"""What the Job of a snapshot needs besides itself: its account, its rights, its settings."""

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

_EVERY = timedelta(seconds=10)
_REMEMBERED = timedelta(hours=1)
_KINDS = {
    kind.kind: kind for kind in (kinds.SERVICE_ACCOUNT, kinds.ROLE, kinds.ROLE_BINDING, kinds.CONFIG_MAP, kinds.JOB)
}


def controller_uid(object: Mapping[str, Any]) -> str:
    """Return the uid of what controls an object; "" when nothing does."""
    owners = object["metadata"].get("ownerReferences") or ()
    return next((str(each["uid"]) for each in owners if each.get("controller")), "")


class ObjectNameTaken(Exception):
    """An object that the Job needs exists, and was made for something else."""

    def __init__(self, kind: Kind, name: str) -> None:
        super().__init__(
            f"{kind} '{name}' exists and does not belong to this StateBootstrap: delete it, or give the StateBootstrap "
            "another name."
        )


class SnapshotObjects:
    """Makes the objects of a snapshot, and makes those again that somebody deletes while its Job runs.

    They are asked for one by one: to watch all Roles of a cluster is a right that the operator does not have.

    Args:
        client: to write with; its answers go to the cache.
        cache: what there is.
        leader_epoch: of this operator.
    """

    def __init__(self, client: Client, cache: Cache, leader_epoch: int) -> None:
        self._client = client
        self._cache = cache
        self._leader_epoch = leader_epoch
        self._checked: dict[str, datetime] = {}
        """Uid of a StateBootstrap -> when its objects were there."""

    async def make(self, app: StreamApp, bootstrap: StateBootstrap) -> Object:
        """Make all of them, the Job last; return the Job.

        Raises:
            NameTaken: an object of this name is somebody else's.
            ApiError: one cannot be made.
        """
        for manifest in _besides(app, bootstrap):
            await self._apply(bootstrap, manifest)
        return await self._apply(bootstrap, snapshot_job(app, bootstrap))

    async def restore(self, app: StreamApp, bootstrap: StateBootstrap, now: datetime) -> tuple[list[str], timedelta]:
        """Make again what is missing besides the Job, every 10 s at most.

        Returns:
            What was made again, such as "Role 'nightly-snapshot'", and after which time to check again.

        Raises:
            NameTaken: an object of this name is somebody else's.
            ApiError: one cannot be read or made.
        """
        last = self._checked.get(bootstrap.uid)
        if last is not None and timedelta(0) <= now - last < _EVERY:
            return [], last + _EVERY - now
        restored = []
        for manifest in _besides(app, bootstrap):
            kind, name = _KINDS[manifest["kind"]], manifest["metadata"]["name"]
            try:
                await self._client.get(kind, bootstrap.namespace, name)
            except NotFound:
                await self._apply(bootstrap, manifest)
                restored.append(f"{kind} '{name}'")
        self._checked = {uid: at for uid, at in self._checked.items() if abs(now - at) < _REMEMBERED}
        self._checked[bootstrap.uid] = now
        return restored, _EVERY

    async def _apply(self, bootstrap: StateBootstrap, manifest: Object) -> Object:
        """Apply over the object that is there, if it was made for this StateBootstrap."""
        kind, name = _KINDS[manifest["kind"]], manifest["metadata"]["name"]
        try:
            there: Object | None = await self._client.get(kind, bootstrap.namespace, name)
        except NotFound:
            there = None
        if there is not None and controller_uid(there) != bootstrap.uid:
            raise ObjectNameTaken(kind, name)
        answer = await self._client.apply(kind, over(finish(manifest, self._leader_epoch), there))
        self._cache.put(kind, dict(answer))
        return answer


def _besides(app: StreamApp, bootstrap: StateBootstrap) -> Sequence[Object]:
    """What the Job needs besides itself."""
    return [*snapshot_access(app, bootstrap), snapshot_settings(app, bootstrap)]
