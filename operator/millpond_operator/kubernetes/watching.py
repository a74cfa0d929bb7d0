"""Keeps the cache up to date by watches and lists.

Besides the watches, everything is listed from time to time. Dead watches are restarted; when that does not help,
`Watching.run` raises an error, and the process should end.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from datetime import timedelta

import msgspec

from millpond.backoff import Backoff
from millpond.protocol import clock

from .cache import Cache, Key
from .cache_updates import CacheUpdates
from .client import Client, decoded
from .errors import ApiError, Expired, Forbidden, NotFound
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
    STATE_BOOTSTRAP,
    STATEFUL_SET,
    STREAM_APP,
    STREAM_ASSIGNMENT,
    Kind,
)
from .shell import DEAD, UNSERVED, Shell, Watched, WatchError, no_signal_handlers

__all__ = ("WATCHED", "WatchError", "WatchOptions", "Watched", "Watching", "no_signal_handlers")

log = logging.getLogger(__name__)

_MIN_DEATHS_REPORTED = 2
_DENIED = "Bind the operator's role in all namespaces of --watch-namespaces."
_DENIED_EVERYWHERE = (
    "The operator serves all namespaces: set --watch-namespaces to those in which it has rights, or bind its "
    "ClusterRole in the cluster."
)
_RELIST_DELAY_S = 10.0
_DISCOVERY_INTERVAL_S = 1.0
_LIST_BACKOFF = Backoff(timedelta(milliseconds=500), timedelta(seconds=10), jitter=0.5)
_RESTART_BACKOFF = Backoff(timedelta(milliseconds=400), timedelta(seconds=30), jitter=0.5)


WATCHED: tuple[Watched, ...] = (
    Watched(STREAM_APP, labels=None),
    Watched(STATE_BOOTSTRAP, labels=None),
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
    """Intervals and limits."""

    resync_interval: timedelta = timedelta(minutes=5)
    """The interval of full lists, ± 20 %."""
    patience: timedelta = timedelta(seconds=60)
    """The longest time in which a watch delivers an object that a list showed."""
    inactivity: timedelta = timedelta(seconds=70)
    """A watch that delivers nothing for this long reconnects; the API server sends something every minute."""
    stop: timedelta = timedelta(seconds=10)
    """The longest time in which the watches end."""
    most_restarts: int = 5
    """The number of restarts in a row after which `Watching.run` fails."""


class Watching:
    """Keeps a cache up to date.

    Args:
        client: lists objects.
        cache: the cache.
        on_change: called with the namespace and name of an application when one of its objects changed.
        namespaces: the namespaces to watch; empty for all.
        watched: the objects to watch.
        options: intervals and limits.
        restore_signals: sets the process's signal handlers; called each time after kopf has set its own.
    """

    def __init__(  # noqa: PLR0913 - objects to watch, and receivers of their changes
        self,
        client: Client,
        cache: Cache,
        on_change: Callable[[str, str], None],
        *,
        namespaces: Collection[str] = (),
        watched: Sequence[Watched] = WATCHED,
        options: WatchOptions | None = None,
        restore_signals: Callable[[], None] = no_signal_handlers,
    ) -> None:
        self._client = client
        self._updates = CacheUpdates(cache, on_change)
        self._namespaces = tuple(namespaces)
        self._watched = tuple(watched)
        self._options = options or WatchOptions()
        self._restore_signals = restore_signals
        self._dead = asyncio.Event()
        self._deaths = 0
        """The number of times in a row that the watches delivered nothing."""
        self._unserved: tuple[Kind, ...] = ()
        self._denied = ""
        """Why the first lists are denied; "" when they are not."""
        self._versions: Sequence[str] = ()
        """The versions that the API server serves of the group of those kinds."""
        self._to_list: dict[Watched, None] = {}
        self._wake = asyncio.Event()
        self.synced = asyncio.Event()
        """Set once everything was listed."""
        self.restarts = 0
        """The number of restarts of the watches."""

    def trouble(self) -> str | None:
        """Return the problem of watches that deliver nothing even after a restart; None otherwise. For liveness."""
        if self._deaths < _MIN_DEATHS_REPORTED:
            return None
        return f"The watches deliver nothing, although they were restarted {self._deaths - 1} times."

    def unserved(self) -> str | None:
        """Return which kinds are not served, or may not be listed; None when everything can be watched."""
        if self._denied:
            return self._denied
        if not self._unserved:
            return None
        kinds = ", ".join(f"{kind.plural}.{kind.group}" for kind in self._unserved)
        version = self._unserved[0].version
        if self._versions and version not in self._versions:
            return (
                f"The API server serves {kinds} only as {', '.join(self._versions)}, and this operator needs "
                f"{version}: install the CustomResourceDefinitions and the operator of the same release."
            )
        return f"The API server does not serve {kinds}: apply the CustomResourceDefinitions of crds/ again."

    async def run(self) -> None:
        """List everything, then watch until cancelled.

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
                task.result()  # both end only by an error
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def resync(self) -> None:
        """List everything once, and update the cache.

        Raises:
            ApiError: a kind cannot be listed.
        """
        for watched in self._watched:
            await self._list_all(watched)

    async def _first_lists(self) -> None:
        waits = iter(_LIST_BACKOFF)
        while True:
            try:
                await self.resync()
                self._denied = ""
                return
            except NotFound:  # a kind
                if await self._wait_for_kinds():
                    continue
            except Forbidden as error:
                self._denied = f"{error} {_DENIED if self._namespaces else _DENIED_EVERYWHERE}"
                log.error("API server: cannot list all objects; nothing is reconciled yet: %s", self._denied)
            except ApiError as error:
                log.warning("API server: cannot list all objects; nothing is reconciled yet: %s", error)
            await asyncio.sleep(next(waits))

    async def _keep_listing(self) -> None:
        interval = self._options.resync_interval.total_seconds()
        next_list = clock.monotonic() + interval * random.uniform(0.8, 1.2)
        look = min(interval, self._options.patience.total_seconds()) / 4
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(max(0.0, min(look, next_list - clock.monotonic()))):
                    await self._wake.wait()
            self._wake.clear()
            if late := self._updates.overdue(self._options.patience):
                log.error("watches: did not deliver %s; restarting them", late[0])
                self._dead.set()
            if clock.monotonic() >= next_list:
                next_list = clock.monotonic() + interval * random.uniform(0.8, 1.2)
                self._to_list |= dict.fromkeys(self._watched)
            try:
                while self._to_list:
                    await self._list_all(next(iter(self._to_list)))
            except ApiError as error:
                log.warning("API server: cannot list all objects; retrying: %s", error)
                await asyncio.sleep(random.uniform(0.5, 1.0) * min(_RELIST_DELAY_S, interval))
                self._wake.set()

    def _list_soon(self, watched: Watched) -> None:
        """List a kind: its watch started from a list, which does not report earlier deletions."""
        self._to_list[watched] = None
        self._wake.set()

    async def _list_all(self, watched: Watched) -> None:
        self._to_list.pop(watched, None)
        try:
            for namespace in self._scopes(watched.kind):
                await self._list(watched, namespace)
        except BaseException:
            self._to_list[watched] = None
            raise

    async def _list(self, watched: Watched, namespace: str | None) -> None:
        kind, cache = watched.kind, self._updates.cache
        while True:
            seen: set[Key] = set()
            version = 0
            try:
                async for page in self._client.pages(kind, namespace, labels=watched.labels):
                    version = page.version
                    if cache.outdated(kind, version, namespace):
                        log.warning("list of %s: ignored, since it is older than the last one", kind.plural)
                        return
                    for item in page.items:
                        meta = _head(item).metadata
                        seen.add(Key(meta.namespace, meta.name))
                        if int(meta.resource_version or 0) > cache.version(kind, meta.namespace, meta.name):
                            self._updates.put_listed(kind, decoded(kind, item), watched=self.synced.is_set())
                    await asyncio.sleep(0)  # a page takes milliseconds; let other tasks run
            except Expired:
                continue
            for object in cache.prune(kind, seen, version, namespace):
                self._updates.removed_by_list(kind, object)
            return

    async def _keep_watching(self) -> None:
        # A dead watch is detected by the list after its death, so a healthy one outlasts that.
        healthy_after_s = 3 * (self._options.resync_interval + self._options.patience).total_seconds()
        restarts = 0
        while True:
            began = clock.monotonic()
            self._dead.clear()
            self._updates.reset()
            shell = Shell(
                self._client.connection,
                self._watched,
                self._namespaces,
                self._updates.event,
                self._list_soon,
                self._options.inactivity,
                self._restore_signals,
            )
            try:
                await shell.start()
                reason = await shell.ended(self._dead)
            finally:
                await shell.stop(self._options.stop)
            if await self._wait_for_kinds() or reason == UNSERVED or clock.monotonic() - began > healthy_after_s:
                restarts = self._deaths = 0
            restarts += 1
            self._deaths = self._deaths + 1 if reason == DEAD else 0
            if restarts > self._options.most_restarts:
                raise WatchError(
                    f"The watches of the API server failed {restarts} times in a row ({reason}): restart the operator."
                )
            self.restarts += 1
            log.warning("watches: ended (%s); restarting them", reason)
            await asyncio.sleep(_RESTART_BACKOFF.wait_s(restarts))

    async def _wait_for_kinds(self) -> bool:
        """Wait until the API server serves all kinds; return whether some were missing at first.

        CustomResourceDefinitions may be deleted and applied again. kopf looks for kinds only once, when it starts.
        """
        waited = False
        while True:
            try:
                served = await self._client.serves(watched.kind for watched in self._watched)
            except ApiError as error:
                if not waited:
                    return False  # kopf waits for an unavailable API server
                log.warning("API server: cannot read which kinds it serves; retrying: %s", error)
            else:
                before = self._unserved
                self._unserved = tuple(watched.kind for watched in self._watched if watched.kind not in served)
                if not self._unserved:
                    return waited
                with contextlib.suppress(ApiError):
                    self._versions = await self._client.versions(self._unserved[0].group)
                if self._unserved != before:
                    log.error("watches: waiting; nothing is reconciled meanwhile: %s", self.unserved())
            waited = True
            await asyncio.sleep(_DISCOVERY_INTERVAL_S * random.uniform(0.5, 1.0))

    def _scopes(self, kind: Kind) -> Sequence[str | None]:
        return self._namespaces if self._namespaces and kind.namespaced else (None,)


class _Meta(msgspec.Struct, rename="camel"):
    name: str
    namespace: str = ""
    resource_version: str = ""


class _Head(msgspec.Struct):
    metadata: _Meta


_head = msgspec.json.Decoder(_Head).decode
