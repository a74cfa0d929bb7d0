"""Events of StreamApps and StateBootstraps, without repetition: what was said already is counted, not said again."""

from __future__ import annotations

import hashlib
import logging
from collections import OrderedDict

from millpond.protocol import clock
from millpond_operator.controllers.rollout.status import timestamp
from millpond_operator.kubernetes import AlreadyExists, ApiError, Client, Kind, NotFound, Object, kinds
from millpond_operator.resources import StateBootstrap, StreamApp

__all__ = ("EventRecorder",)

log = logging.getLogger(__name__)

_MOST_REMEMBERED = 10_000
_LONGEST = 1_024


class EventRecorder:
    """Writes events. That one could not be written stops nothing.

    Args:
        client: to write with.
        instance: who reports.
    """

    def __init__(self, client: Client, instance: str) -> None:
        self._client = client
        self._instance = instance
        self._said: OrderedDict[str, int] = OrderedDict()
        self._last: dict[tuple[str, str, str], str] = {}

    async def record(self, app: StreamApp | StateBootstrap, type: str, reason: str, message: str) -> None:
        """Say it, unless it is what was said last of this object.

        Args:
            app: whom it is about.
            type: Normal or Warning.
            reason: one word.
            message: one sentence.
        """
        message = message[:_LONGEST]
        digest = hashlib.sha256(f"{app.uid} {type} {reason} {message}".encode()).hexdigest()[:16]
        key = (_kind(app).kind, app.namespace, app.name)
        if self._last.get(key) == digest:
            return
        self._last[key] = digest
        count = self._said.pop(digest, 0) + 1
        self._said[digest] = count
        if len(self._said) > _MOST_REMEMBERED:
            self._said.popitem(last=False)
        name, now = f"{app.name}.{digest}", timestamp(clock.now())
        try:
            if count > 1 and await self._again(app, name, now, count):
                return
            await self._client.create(kinds.EVENT, self._event(app, name, type, reason, message, now))
        except AlreadyExists:  # said before this operator started
            await self._again(app, name, now, None)
        except ApiError as error:
            log.info("An event of %s/%s could not be written: %s", app.namespace, app.name, error)

    def forget(self, kind: Kind, namespace: str, name: str) -> None:
        """The object is gone."""
        self._last.pop((kind.kind, namespace, name), None)

    async def _again(self, app: StreamApp | StateBootstrap, name: str, now: str, count: int | None) -> bool:
        """Count an event that is there already; False when it is not there any more."""
        try:
            if count is None:
                there = await self._client.get(kinds.EVENT, app.namespace, name)
                count = int(there.get("count") or 1) + 1
            await self._client.patch(kinds.EVENT, app.namespace, name, {"count": count, "lastTimestamp": now})
        except NotFound:
            return False
        except ApiError as error:
            log.info("An event of %s/%s could not be counted: %s", app.namespace, app.name, error)
        return True

    def _event(
        self, app: StreamApp | StateBootstrap, name: str, type: str, reason: str, message: str, now: str
    ) -> Object:
        return {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": name, "namespace": app.namespace},
            "involvedObject": {
                "apiVersion": _kind(app).api_version,
                "kind": _kind(app).kind,
                "namespace": app.namespace,
                "name": app.name,
                "uid": app.uid,
            },
            "type": type,
            "reason": reason,
            "message": message,
            "source": {"component": "millpond-operator"},
            "reportingComponent": "millpond.dev/operator",
            "reportingInstance": self._instance,
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        }


def _kind(object: StreamApp | StateBootstrap) -> Kind:
    return kinds.STREAM_APP if isinstance(object, StreamApp) else kinds.STATE_BOOTSTRAP
