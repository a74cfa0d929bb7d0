"""The assignment of an application as a StreamAssignment: written down before workers are told, by the leader only.

The API server itself refuses what an earlier leader still wants to write: a rule of the CRD lets neither the term nor the
number within it go back.
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

#: Bytes of an object that etcd takes: 1.5 MB. So many names of tasks are 0.9 MB, and workers need some, too.
_MOST_NAMES = 100_000


def most_tasks(standby_replicas: int) -> int:
    """How many tasks a StreamAssignment can hold: each is named with its owner, its place, and its standbys."""
    return _MOST_NAMES // (2 + standby_replicas)


class KubernetesStore:
    """Keeps the assignment of one application in its StreamAssignment.

    Args:
        client: to write with.
        cache: has the last one, and gets each new one.
        app: the StreamApp as it is now.
        leader_epoch: of this operator.
    """

    def __init__(self, client: Client, cache: Cache, app: Callable[[], StreamApp], leader_epoch: int) -> None:
        self._client = client
        self._cache = cache
        self._app = app
        self._leader_epoch = leader_epoch

    async def load(self) -> View | None:
        """What was saved last; None when nothing was. It may be a little old: whose tasks are is in Kafka.

        Raises:
            StoreError: it cannot be read.
        """
        app = self._app()
        found = self._cache.get(kinds.STREAM_ASSIGNMENT, app.namespace, app.name)
        if found is None or not owned_by(app, found):  # or one of a StreamApp of that name that was deleted
            return None
        try:
            return view_of(found)
        except InvalidStreamAssignment as error:
            raise StoreError(str(error)) from error

    async def save(self, view: View) -> None:
        """Apply it.

        Raises:
            StoreError: it could not be written.
        """
        app = self._app()
        object = finish(stream_assignment(app, view), self._leader_epoch)
        try:
            await self._written(app, object)
        except (ApiError, LeadershipLost) as error:
            raise StoreError(f"StreamAssignment '{app.namespace}/{app.name}' cannot be written: {error}") from error

    async def _written(self, app: StreamApp, object: Object) -> None:
        there = self._cache.get(kinds.STREAM_ASSIGNMENT, app.namespace, app.name)
        if there is not None and not owned_by(app, there):  # it may be gone by now
            there = await self._read(app)
        try:
            answer = await self._client.apply(kinds.STREAM_ASSIGNMENT, over(object, _own(app, there)))
        except Conflict:  # the cache is behind, or another one has the name
            there = await self._read(app)
            answer = await self._client.apply(kinds.STREAM_ASSIGNMENT, over(object, _own(app, there)))
        self._cache.put(kinds.STREAM_ASSIGNMENT, answer)

    async def _read(self, app: StreamApp) -> Object | None:
        try:
            return await self._client.get(kinds.STREAM_ASSIGNMENT, app.namespace, app.name)
        except NotFound:
            return None


def _own(app: StreamApp, there: Object | None) -> Object | None:
    """What is there, unless it is another one's.

    Raises:
        StoreError: it is.
    """
    if there is None or owned_by(app, there):
        return there
    raise StoreError(
        f"StreamAssignment '{app.namespace}/{app.name}' does not belong to this StreamApp: unless it goes by itself, "
        "delete it."
    )
