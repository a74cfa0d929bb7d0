"""kopf, used only to watch: it lists, watches, reconnects and backs off, and passes every change on.

kopf writes no state of its own to the API server: no finalizers, no annotations, no events.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, cast

import aiohttp
import kopf

from millpond.backoff import Backoff
from millpond.errors import MillpondError
from millpond.protocol import clock

from .cache import APP_LABEL
from .client import Object
from .connection import Connection
from .discovery import Discovery
from .kinds import Kind

__all__ = ("DEAD", "UNSERVED", "Shell", "WatchError", "Watched", "no_signal_handlers")

DEAD = "they deliver nothing"
UNSERVED = "the API server does not serve all kinds"
_PAGE = 500
_IDLE_S = 0.2
_CONNECT_TIMEOUT_S = 10.0
_REQUEST_TIMEOUT_S = 60.0
_SHORT_LIFE_S = 1.0
#: However long the API server is away, kopf keeps on retrying.
_BACKOFF = Backoff(timedelta(milliseconds=100), timedelta(seconds=10), jitter=0.5)
_SHORT_WATCH_BACKOFF = Backoff(timedelta(milliseconds=50), timedelta(seconds=5))


class WatchError(MillpondError):
    """The API server cannot be watched."""


@dataclass(frozen=True)
class Watched:
    """Objects to watch."""

    kind: Kind
    labels: str | None = APP_LABEL
    """A label selector; by default, objects with an application's label."""


class Shell:
    """One run of kopf.

    Args:
        connection: address and credentials of the API server.
        watched: the objects to watch.
        namespaces: the namespaces to watch; empty for all.
        heard: called with each event of a watch: the kind, `ADDED`, `MODIFIED`, `DELETED`, or None for an object that
            existed when the watch began, and the object.
        listed: called when a watch begins with a new list, which does not report earlier deletions.
        inactivity: a watch that delivers nothing for this long is connected again.
        restore_signals: called after each start of kopf, which has then set its own handlers for SIGTERM and SIGINT.
    """

    def __init__(  # noqa: PLR0913 - objects to watch, and receivers of their changes
        self,
        connection: Connection,
        watched: Sequence[Watched],
        namespaces: Collection[str],
        heard: Callable[[Kind, str | None, Object], None],
        listed: Callable[[Watched], None],
        inactivity: timedelta,
        restore_signals: Callable[[], None],
    ) -> None:
        self._connection = connection
        self._watched = watched
        self._namespaces = namespaces
        self._heard = heard
        self._listed = listed
        self._inactivity = inactivity
        self._restore_signals = restore_signals
        self._begun: dict[str, tuple[float, int]] = {}
        """When the last watch of each path began, and how many short watches in a row preceded it."""
        self._discovery = Discovery(watched.kind for watched in watched)
        self._tasks: Collection[asyncio.Task[Any]] = ()
        self._sessions: list[aiohttp.ClientSession] = []

    async def start(self) -> None:
        """Start kopf. `stop` must follow, also when this call was cancelled."""
        spawning = asyncio.create_task(self._spawn(), name="kopf")
        try:
            self._tasks = await asyncio.shield(spawning)
        except asyncio.CancelledError:
            self._tasks = await spawning  # `stop` has to end them
            raise

    async def _spawn(self) -> Collection[asyncio.Task[Any]]:
        tasks = await kopf.spawn_tasks(
            registry=self._registry(),
            settings=self._settings(),
            # kopf would ask for the user's name, and a container's user may have none.
            identity=cast("Any", "millpond-operator"),
            standalone=True,
            clusterwide=not self._namespaces,
            namespaces=self._namespaces,
        )
        # In the main thread kopf always handles SIGTERM and SIGINT itself (see its docs/embedding.rst). No signal is
        # lost: asyncio looks up handlers when the loop runs, and it has not run since kopf set its own.
        self._restore_signals()
        return tasks

    async def ended(self, dead: asyncio.Event) -> str:
        """Wait until the watches do not work any more, and return why.

        There are three causes: a task of kopf's ended, `dead` was set, or kopf found that the API server does not serve
        a kind, which kopf does not check again.
        """
        waiter = asyncio.create_task(dead.wait(), name="dead-watch")
        unserved = asyncio.create_task(self._discovery.missing.wait(), name="unserved-kinds")
        try:
            done, _ = await asyncio.wait({waiter, unserved, *self._tasks}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            waiter.cancel()
            unserved.cancel()
        if unserved in done:
            return UNSERVED
        for task in done - {waiter}:
            error = None if task.cancelled() else task.exception()
            return f"{task.get_name()}: {error!r}" if error is not None else f"{task.get_name()} ended"
        return DEAD

    async def stop(self, patience: timedelta) -> None:
        """Stop kopf and close its sessions.

        Raises:
            WatchError: a task of kopf's does not end.
        """
        for task in self._tasks:
            task.cancel()
        stuck = (await asyncio.wait(self._tasks, timeout=patience.total_seconds()))[1] if self._tasks else ()
        for session in self._sessions:
            await session.close()
        if stuck:
            raise WatchError(
                f"The watches do not end: {', '.join(task.get_name() for task in stuck)}. Restart the operator."
            )
        for task in self._tasks:
            if not task.cancelled():
                task.exception()  # reported by `ended` already

    def _registry(self) -> kopf.OperatorRegistry:
        registry = kopf.OperatorRegistry()

        @kopf.on.login(registry=registry)
        async def login(**_: Any) -> kopf.AiohttpSession:
            connection = self._connection
            session = connection.session(middlewares=(self._notice,))
            self._sessions.append(session)
            return kopf.AiohttpSession(
                server=connection.server, aiohttp_session=session, default_namespace=connection.namespace
            )

        for watched in self._watched:
            self._register(registry, watched.kind)
        return registry

    async def _notice(
        self, request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType
    ) -> aiohttp.ClientResponse:
        watches = "watch" in request.url.query
        if watches:
            await self._pause(request.url.path)
        response = await handler(request)
        if not watches:
            await self._discovery.heard(response)
            plural = request.url.name
            for watched in self._watched:
                if watched.kind.plural == plural:
                    self._listed(watched)
        return response

    async def _pause(self, path: str) -> None:
        """Delay a watch if the last one of this path ended at once: kopf itself restarts watches without a delay."""
        began, short = self._begun.get(path, (-_SHORT_LIFE_S, 0))
        short = 0 if clock.monotonic() - began >= _SHORT_LIFE_S else short + 1
        await asyncio.sleep(_SHORT_WATCH_BACKOFF.wait_s(short) if short else 0.0)
        self._begun[path] = (clock.monotonic(), short)

    def _register(self, registry: kopf.OperatorRegistry, kind: Kind) -> None:
        async def heard(event: Any, **_: Any) -> None:
            self._heard(kind, event["type"], event["object"])

        kopf.on.event(kind.group, kind.version, kind.plural, registry=registry)(heard)

    def _settings(self) -> kopf.OperatorSettings:
        settings = kopf.OperatorSettings()
        settings.posting.enabled = False
        settings.scanning.disabled = True
        settings.peering.standalone = True
        settings.process.ultimate_exiting_timeout = None  # it would kill the process, later
        settings.watching.inactivity_timeout = self._inactivity.total_seconds()
        settings.watching.connect_timeout = _CONNECT_TIMEOUT_S
        settings.watching.chunk_size = _PAGE
        settings.networking.request_timeout = _REQUEST_TIMEOUT_S
        settings.networking.error_backoffs = _BACKOFF
        settings.networking.enforce_retry_after = False
        settings.queueing.idle_timeout = _IDLE_S  # a task per object, only while there is news of it
        settings.queueing.exit_timeout = 1.0
        settings.persistence.diffbase_storage = _NoDiff()
        settings.persistence.progress_storage = _NoProgress()
        for watched in self._watched:
            if watched.labels is not None:
                kind = watched.kind
                settings.watching.label_selectors[kind.group, kind.version, kind.plural] = watched.labels
        return settings


class _NoDiff(kopf.DiffBaseStorage):
    """Storage of no last states: kopf needs them only for handlers of changes, and there are none."""

    def build(self, **_: Any) -> Any:
        return {}

    def fetch(self, **_: Any) -> None:
        return None

    def store(self, **_: Any) -> None:
        raise AssertionError("nothing is stored in objects")


class _NoProgress(kopf.ProgressStorage):
    """Storage of no progress: kopf needs it only for handlers that are retried, and there are none."""

    def fetch(self, **_: Any) -> None:
        return None

    def store(self, **_: Any) -> None:
        raise AssertionError("nothing is stored in objects")

    def purge(self, **_: Any) -> None:
        return None

    def touch(self, **_: Any) -> None:
        return None

    def clear(self, *, essence: Any) -> Any:
        return essence


def no_signal_handlers() -> None:
    """Remove the event loop's handlers of SIGTERM and SIGINT, so that both have their usual effect."""
    loop = asyncio.get_running_loop()
    for each in (signal.SIGTERM, signal.SIGINT):
        loop.remove_signal_handler(each)
