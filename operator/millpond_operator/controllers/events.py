"""Events of StreamApps and StateBootstraps. A repeated event is counted instead of created again.

The last ones of this leadership are kept for the console.
"""

from __future__ import annotations

import hashlib
import logging
from collections import OrderedDict, deque

from millpond.protocol import clock
from millpond.protocol.overview import EventOverview
from millpond_operator.controllers.rollout.status import timestamp
from millpond_operator.kubernetes import AlreadyExists, ApiError, Client, Kind, NotFound, Object, kinds
from millpond_operator.resources import StateBootstrap, StreamApp

__all__ = ("EventHistory", "EventRecorder")

log = logging.getLogger(__name__)

_MAX_REMEMBERED = 10_000
_MAX_MESSAGE = 1_024
_MAX_KEPT = 50


class EventHistory:
    """The last events of each StreamApp since this operator leads: 50 at most for each."""

    def __init__(self) -> None:
        self._events: dict[tuple[str, str], deque[EventOverview]] = {}

    def add(self, app: StreamApp, reason: str, text: str, *, warning: bool = False) -> None:
        """Add an event, or count it if it repeats the last one."""
        events = self._events.setdefault((app.namespace, app.name), deque(maxlen=_MAX_KEPT))
        at_ms, count = int(clock.unix_time() * 1000), 1
        if events and (events[-1].reason, events[-1].text) == (reason, text):
            count = events.pop().count + 1
        events.append(EventOverview(at_ms=at_ms, reason=reason, text=text, warning=warning, count=count))

    def of(self, namespace: str, name: str) -> tuple[EventOverview, ...]:
        """Return the events of a StreamApp, newest first."""
        return tuple(reversed(self._events.get((namespace, name), ())))

    def forget(self, namespace: str, name: str) -> None:
        """Forget a deleted StreamApp."""
        self._events.pop((namespace, name), None)


class EventRecorder:
    """Writes events. A failure to write one is logged and has no other effect.

    Args:
        client: writes events.
        instance: the reporting instance.
        history: gets the events of StreamApps, too.
    """

    def __init__(self, client: Client, instance: str, history: EventHistory | None = None) -> None:
        self._client = client
        self._instance = instance
        self._history = history
        self._counts: OrderedDict[str, int] = OrderedDict()
        self._last: dict[tuple[str, str, str], str] = {}

    async def record(self, app: StreamApp | StateBootstrap, type: str, reason: str, message: str) -> None:
        """Record an event, unless it repeats the last one of this object.

        Args:
            app: the object that it is about.
            type: Normal or Warning.
            reason: one word.
            message: one sentence.
        """
        message = message[:_MAX_MESSAGE]
        if self._history is not None and isinstance(app, StreamApp):
            self._history.add(app, reason, message, warning=type == "Warning")
        digest = hashlib.sha256(f"{app.uid} {type} {reason} {message}".encode()).hexdigest()[:16]
        key = (_kind(app).kind, app.namespace, app.name)
        if self._last.get(key) == digest:
            return
        self._last[key] = digest
        count = self._counts.pop(digest, 0) + 1
        self._counts[digest] = count
        if len(self._counts) > _MAX_REMEMBERED:
            self._counts.popitem(last=False)
        name, now = f"{app.name}.{digest}", timestamp(clock.now())
        try:
            if count > 1 and await self._count(app, name, now, count):
                return
            await self._client.create(kinds.EVENT, self._event(app, name, type, reason, message, now))
        except AlreadyExists:  # recorded before this operator started
            await self._count(app, name, now, None)
        except ApiError as error:
            log.info("%s %s/%s: cannot write event %s: %s", _kind(app).kind, app.namespace, app.name, reason, error)

    def forget(self, kind: Kind, namespace: str, name: str) -> None:
        """Forget a deleted object."""
        self._last.pop((kind.kind, namespace, name), None)
        if self._history is not None and kind == kinds.STREAM_APP:
            self._history.forget(namespace, name)

    async def _count(self, app: StreamApp | StateBootstrap, name: str, now: str, count: int | None) -> bool:
        """Increase the count of an existing event; return False when it no longer exists."""
        try:
            if count is None:
                existing = await self._client.get(kinds.EVENT, app.namespace, name)
                count = int(existing.get("count") or 1) + 1
            await self._client.patch(kinds.EVENT, app.namespace, name, {"count": count, "lastTimestamp": now})
        except NotFound:
            return False
        except ApiError as error:
            log.info(
                "%s %s/%s: cannot raise the count of event %s: %s",
                _kind(app).kind,
                app.namespace,
                app.name,
                name,
                error,
            )
        return True

    def _event(  # noqa: PLR0913 - the fields of an event
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
