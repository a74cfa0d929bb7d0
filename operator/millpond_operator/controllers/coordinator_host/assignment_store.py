"""Stores the assignment of an application in its StreamAssignment before workers get it.

The API server rejects late writes of a former leader: a rule of the CRD forbids lowering the term, or the number within
it.
"""

from __future__ import annotations

from collections.abc import Callable

from millpond.protocol import View
from millpond_operator.controllers.preconditions import over
from millpond_operator.coordinator import StoreError
from millpond_operator.kubernetes import ApiError, Cache, Client, Conflict, LeadershipLost, NotFound, Object, kinds
from millpond_operator.resources import (
    InvalidStreamAssignment,
    StreamApp,
    finish,
    owned_by,
    stream_assignment,
    view_of,
)

__all__ = ("KubernetesStore", "most_tasks")

#: etcd accepts objects of up to 1.5 MB. This many task names take 0.9 MB and leave room for the workers.
_MAX_NAMES = 100_000


def most_tasks(standby_replicas: int) -> int:
    """Return the number of tasks that fit into a StreamAssignment. Each is named with owner, worker and standbys."""
    return _MAX_NAMES // (2 + standby_replicas)


class KubernetesStore:
    """The store of one application's assignment.

    Args:
        client: writes the StreamAssignment.
        cache: has the last StreamAssignment, and gets each new one.
        app: returns the current StreamApp.
        leader_epoch: the epoch of this operator's leadership.
    """

    def __init__(self, client: Client, cache: Cache, app: Callable[[], StreamApp], leader_epoch: int) -> None:
        self._client = client
        self._cache = cache
        self._app = app
        self._leader_epoch = leader_epoch

    async def load(self) -> View | None:
        """Return the last saved assignment; None when there is none. It may be outdated: Kafka has the owners of tasks.

        Raises:
            StoreError: the StreamAssignment is invalid.
        """
        app = self._app()
        found = self._cache.get(kinds.STREAM_ASSIGNMENT, app.namespace, app.name)
        if found is None or not owned_by(app, found):  # it may be that of a deleted StreamApp of this name
            return None
        try:
            return view_of(found)
        except InvalidStreamAssignment as error:
            raise StoreError(str(error)) from error

    async def save(self, view: View) -> None:
        """Save an assignment.

        Raises:
            StoreError: the API server rejected it or did not answer.
        """
        app = self._app()
        object = finish(stream_assignment(app, view), self._leader_epoch)
        try:
            await self._write(app, object)
        except (ApiError, LeadershipLost) as error:
            raise StoreError(f"StreamAssignment '{app.namespace}/{app.name}' cannot be written: {error}") from error

    async def _write(self, app: StreamApp, object: Object) -> None:
        existing = self._cache.get(kinds.STREAM_ASSIGNMENT, app.namespace, app.name)
        if existing is not None and not owned_by(app, existing):  # it may have been deleted since
            existing = await self._read(app)
        try:
            answer = await self._client.apply(kinds.STREAM_ASSIGNMENT, over(object, _own(app, existing)))
        except Conflict:  # the cache is outdated, or the name is taken
            existing = await self._read(app)
            answer = await self._client.apply(kinds.STREAM_ASSIGNMENT, over(object, _own(app, existing)))
        self._cache.put(kinds.STREAM_ASSIGNMENT, answer)

    async def _read(self, app: StreamApp) -> Object | None:
        try:
            return await self._client.get(kinds.STREAM_ASSIGNMENT, app.namespace, app.name)
        except NotFound:
            return None


def _own(app: StreamApp, existing: Object | None) -> Object | None:
    """Return an existing StreamAssignment of the StreamApp.

    Raises:
        StoreError: it belongs to another StreamApp.
    """
    if existing is None or owned_by(app, existing):
        return existing
    raise StoreError(
        f"StreamAssignment '{app.namespace}/{app.name}' does not belong to this StreamApp: delete it, unless "
        "Kubernetes is already deleting it."
    )
