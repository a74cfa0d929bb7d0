"""Watching, with kopf for a shell: it lists, watches and reconnects; what it hears only changes the cache and wakes keys.

Nothing of kopf's own state reaches the API server: no finalizers, no annotations, no events. Beside it, everything is
listed now and then, whatever the watches say. A watch that turns out to be dead is begun anew; when that does not help,
`Watching.run` ends with an error, and so should the process.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import time
import weakref
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import aiohttp
import kopf
import msgspec

from millpond.errors import MillpondError

from .cache import APP_LABEL, Cache, Key
from .client import Client, decoded
from .errors import ApiError, Expired
from .intake import Intake
from .kinds import (
    CONFIG_MAP,
    CONTROLLER_REVISION,
    JOB,
    NETWORK_POLICY,
    PERSISTENT_VOLUME_CLAIM,
    POD,
    POD_DISRUPTION_BUDGET,
    SERVICE,
    SERVICE_ACCOUNT,
    STATEFUL_SET,
    STREAM_APP,
    STREAM_ASSIGNMENT,
    Kind,
)

__all__ = ("WATCHED", "WatchError", "WatchOptions", "Watched", "Watching")

log = logging.getLogger(__name__)


class WatchError(MillpondError):
    """The API server cannot be watched."""


@dataclass(frozen=True)
class Watched:
    """Objects to watch."""

    kind: Kind
    labels: str | None = APP_LABEL
    """A label selector, by default one for what has an application's label."""


WATCHED: tuple[Watched, ...] = (
    Watched(STREAM_APP, labels=None),
    *(
        Watched(kind)
        for kind in (
            STREAM_ASSIGNMENT,
            STATEFUL_SET,
            CONTROLLER_REVISION,
            POD,
            PERSISTENT_VOLUME_CLAIM,
            SERVICE,
            SERVICE_ACCOUNT,
            CONFIG_MAP,
            POD_DISRUPTION_BUDGET,
            NETWORK_POLICY,
            JOB,
        )
    ),
)


@dataclass(frozen=True)
class WatchOptions:
    """How often, how long."""

    resync_interval: timedelta = timedelta(minutes=5)
    """How often everything is listed, give or take a fifth."""
    patience: timedelta = timedelta(seconds=60)
    """How long a watch may take to deliver what a list showed."""
    inactivity: timedelta = timedelta(seconds=70)
    """A watch that was silent for that long is connected anew; the API server says something every minute."""
    stop: timedelta = timedelta(seconds=10)
    """How long the watches may take to end."""
    most_restarts: int = 5
    """How often in a row the watches are begun anew, before that is given up."""


class Watching:
    """Keeps a cache up to date.

    Args:
        client: to list with.
        cache: what to keep.
        on_change: is called with the namespace and the name of the application that something changed of.
        namespaces: to watch in; none for all.
        watched: what to watch.
        options: how often, how long.
    """

    def __init__(
        self,
        client: Client,
        cache: Cache,
        on_change: Callable[[str, str], None],
        *,
        namespaces: Collection[str] = (),
        watched: Sequence[Watched] = WATCHED,
        options: WatchOptions | None = None,
    ) -> None:
        self._client = client
        self._intake = Intake(cache, on_change)
        self._namespaces = tuple(namespaces)
        self._watched = tuple(watched)
        self._options = options or WatchOptions()
        self._dead = asyncio.Event()
        self._deaths = 0
        """How often in a row the watches delivered nothing."""
        self._to_list: set[Watched] = set()
        self._wake = asyncio.Event()
        self.synced = asyncio.Event()
        """Set once everything was listed."""
        self.restarts = 0
        """How often the watches were begun anew."""

    def trouble(self) -> str | None:
        """What is wrong with the watches although they were begun anew; None when nothing is. For liveness."""
        if self._deaths < _DEATHS_ARE_TROUBLE:
            return None
        return f"The watches deliver nothing, although they were begun anew {self._deaths - 1} times."

    async def run(self) -> None:
        """List everything, then keep up with it until cancelled.

        Raises:
            WatchError: the watches keep dying.
        """
        await self._first_lists()
        self.synced.set()
        tasks = [
            asyncio.create_task(self._keep_watching(), name="watching"),
            asyncio.create_task(self._keep_listing(), name="resync"),
        ]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()  # neither ends but by an error
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def resync(self) -> None:
        """List everything once, and take in what is news.

        Raises:
            ApiError: something cannot be listed.
        """
        for watched in self._watched:
            await self._list_all(watched)

    async def _first_lists(self) -> None:
        pause = 0.5
        while True:
            try:
                await self.resync()
                return
            except ApiError as error:
                log.warning("Not everything can be listed, so nothing is done yet: %s", error)
            await asyncio.sleep(pause * random.uniform(0.5, 1.0))
            pause = min(2 * pause, 10.0)

    async def _keep_listing(self) -> None:
        interval = self._options.resync_interval.total_seconds()
        next_list = time.monotonic() + interval * random.uniform(0.8, 1.2)
        look = min(interval, self._options.patience.total_seconds()) / 4
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(max(0.0, min(look, next_list - time.monotonic()))):
                    await self._wake.wait()
            self._wake.clear()
            if late := self._intake.overdue(self._options.patience):
                log.error("The watch did not deliver %s: it is begun anew.", late[0])
                self._dead.set()
            if time.monotonic() >= next_list:
                next_list = time.monotonic() + interval * random.uniform(0.8, 1.2)
                self._to_list.update(self._watched)
            try:
                while self._to_list:
                    await self._list_all(next(iter(self._to_list)))
            except ApiError as error:
                log.warning("Not everything could be listed; it is tried again in a moment: %s", error)
                await asyncio.sleep(random.uniform(0.5, 1.0) * min(_LISTS_AGAIN_S, interval))
                self._wake.set()

    def _listed_by_watch(self, watched: Watched) -> None:
        """A watch began from a list, which tells nothing of what went before it: a list of ours does."""
        self._to_list.add(watched)
        self._wake.set()

    async def _list_all(self, watched: Watched) -> None:
        self._to_list.discard(watched)
        try:
            for namespace in self._scopes(watched.kind):
                await self._list(watched, namespace)
        except BaseException:
            self._to_list.add(watched)
            raise

    async def _list(self, watched: Watched, namespace: str | None) -> None:
        kind, cache = watched.kind, self._intake.cache
        while True:
            seen: set[Key] = set()
            version = 0
            try:
                async for page in self._client.pages(kind, namespace, labels=watched.labels):
                    version = page.version
                    if cache.outdated(kind, version, namespace):
                        log.warning("The list of %s is older than the one before; it is ignored.", kind.plural)
                        return
                    for item in page.items:
                        meta = _head(item).metadata
                        seen.add(Key(meta.namespace, meta.name))
                        if int(meta.resource_version or 0) > cache.version(kind, meta.namespace, meta.name):
                            self._intake.listed(kind, decoded(kind, item), watched=self.synced.is_set())
                    await asyncio.sleep(0)  # a page takes milliseconds: others may go first
            except Expired:
                continue
            for object in cache.prune(kind, seen, version, namespace):
                self._intake.missed(kind, object)
            return

    async def _keep_watching(self) -> None:
        # A watch that dies in silence is found by the list after, so that is what one that lives must outlast.
        lives = 3 * (self._options.resync_interval + self._options.patience).total_seconds()
        restarts = 0
        while True:
            began = time.monotonic()
            self._dead.clear()
            self._intake.await_nothing()
            shell = _Shell(self, self._client, self._intake)
            await shell.start()
            try:
                reason = await shell.ended(self._dead)
            finally:
                await shell.stop()
            if time.monotonic() - began > lives:
                restarts = self._deaths = 0
            restarts += 1
            self._deaths = self._deaths + 1 if reason == _DEAD else 0
            if restarts > self._options.most_restarts:
                raise WatchError(f"The API server's objects cannot be watched, {restarts} times in a row: {reason}.")
            self.restarts += 1
            log.warning("The watches ended (%s); they are begun anew.", reason)
            await asyncio.sleep(min(0.2 * 2.0**restarts, 30.0) * random.uniform(0.5, 1.0))

    def _scopes(self, kind: Kind) -> Sequence[str | None]:
        return self._namespaces if self._namespaces and kind.namespaced else (None,)


class _Shell:
    """One run of kopf."""

    def __init__(self, watching: Watching, client: Client, intake: Intake) -> None:
        self._client = client
        self._intake = intake
        self._namespaces = watching._namespaces
        self._options = watching._options
        self._watched = watching._watched
        self._listed = watching._listed_by_watch
        self._tasks: Collection[asyncio.Task[Any]] = ()
        self._sessions: list[aiohttp.ClientSession] = []
        self._transports: weakref.WeakSet[asyncio.Transport] = weakref.WeakSet()

    async def start(self) -> None:
        with _signals_are_ours():
            self._tasks = await kopf.spawn_tasks(
                registry=self._registry(),
                settings=self._settings(),
                standalone=True,
                clusterwide=not self._namespaces,
                namespaces=self._namespaces,
            )

    async def ended(self, dead: asyncio.Event) -> str:
        """Wait until a task of kopf's ends, which they never should, or until the watches are said to be dead."""
        waiter = asyncio.create_task(dead.wait(), name="dead-watch")
        try:
            done, _ = await asyncio.wait({waiter, *self._tasks}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            waiter.cancel()
        for task in done - {waiter}:
            error = None if task.cancelled() else task.exception()
            return f"{task.get_name()}: {error!r}" if error is not None else f"{task.get_name()} ended"
        return _DEAD

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        _, stuck = await asyncio.wait(self._tasks, timeout=self._options.stop.total_seconds())
        for session in self._sessions:
            await session.close()
        for transport in tuple(self._transports):
            transport.abort()  # otherwise, those that were closed wait for the other side to agree
        await asyncio.sleep(0)
        if stuck:
            raise WatchError(f"The watches do not end: {', '.join(task.get_name() for task in stuck)}.")
        for task in self._tasks:
            if not task.cancelled():
                task.exception()  # said already

    def _registry(self) -> kopf.OperatorRegistry:
        registry = kopf.OperatorRegistry()

        @kopf.on.login(registry=registry)
        async def login(**_: Any) -> kopf.AiohttpSession:
            connection = self._client.connection
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
        response = await handler(request)
        if response.connection is not None and response.connection.transport is not None:
            self._transports.add(response.connection.transport)
        if "watch" not in request.url.query:
            plural = request.url.name
            for watched in self._watched:
                if watched.kind.plural == plural:
                    self._listed(watched)
        return response

    def _register(self, registry: kopf.OperatorRegistry, kind: Kind) -> None:
        intake = self._intake

        async def heard(event: Any, **_: Any) -> None:
            intake.event(kind, event["type"], event["object"])

        kopf.on.event(kind.group, kind.version, kind.plural, registry=registry)(heard)

    def _settings(self) -> kopf.OperatorSettings:
        settings = kopf.OperatorSettings()
        settings.posting.enabled = False
        settings.scanning.disabled = True
        settings.peering.standalone = True
        settings.process.ultimate_exiting_timeout = None  # it would kill the process, later
        settings.watching.inactivity_timeout = self._options.inactivity.total_seconds()
        settings.watching.connect_timeout = _CONNECT_TIMEOUT_S
        settings.watching.chunk_size = _PAGE
        settings.networking.request_timeout = _REQUEST_TIMEOUT_S
        settings.networking.error_backoffs = _Backoffs()
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


_DEAD = "they deliver nothing"
_DEATHS_ARE_TROUBLE = 2
_PAGE = 500
_LISTS_AGAIN_S = 10.0
_IDLE_S = 0.2
_CONNECT_TIMEOUT_S = 10.0
_REQUEST_TIMEOUT_S = 60.0


class _Backoffs:
    """Pauses between attempts: longer and longer, without end. However long the API server is away, it is waited for."""

    def __iter__(self) -> Iterator[float]:
        pause = 0.1
        while True:
            yield pause * random.uniform(0.5, 1.0)
            pause = min(2 * pause, 10.0)


class _NoDiff(kopf.DiffBaseStorage):
    """kopf compares an object with its last state only for handlers of changes, of which there are none."""

    def build(self, **_: Any) -> Any:
        return {}

    def fetch(self, **_: Any) -> None:
        return None

    def store(self, **_: Any) -> None:
        raise AssertionError("nothing is stored in objects")


class _NoProgress(kopf.ProgressStorage):
    """Nor is there progress to remember of handlers that are never tried again."""

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


class _Meta(msgspec.Struct, rename="camel"):
    name: str
    namespace: str = ""
    resource_version: str = ""


class _Head(msgspec.Struct):
    metadata: _Meta


_head = msgspec.json.Decoder(_Head).decode


@contextlib.contextmanager
def _signals_are_ours() -> Iterator[None]:
    """Keep kopf from taking over SIGTERM and SIGINT."""
    loop: Any = asyncio.get_running_loop()
    loop.add_signal_handler = lambda *_: None
    try:
        yield
    finally:
        del loop.add_signal_handler
