"""Keeping up with the API server: what watches and lists say changes the cache and wakes applications, and does no more.

Beside the watches, everything is listed now and then, whatever they say. Watches that turn out to be dead are begun anew;
when that does not help, `Watching.run` ends with an error, and so should the process.
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
from .errors import ApiError, Expired
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
from .shell import DEAD, UNSERVED, Shell, Watched, WatchError

__all__ = ("WATCHED", "WatchError", "WatchOptions", "Watched", "Watching")

log = logging.getLogger(__name__)

_DEATHS_ARE_TROUBLE = 2
_LISTS_AGAIN_S = 10.0
_LOOKS_FOR_KINDS_S = 1.0
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
        self._intake = CacheUpdates(cache, on_change)
        self._namespaces = tuple(namespaces)
        self._watched = tuple(watched)
        self._options = options or WatchOptions()
        self._dead = asyncio.Event()
        self._deaths = 0
        """How often in a row the watches delivered nothing."""
        self._unserved: tuple[Kind, ...] = ()
        self._to_list: dict[Watched, None] = {}
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

    def unserved(self) -> str | None:
        """Return which kinds the API server does not serve, so that nobody watches them; None when it serves all."""
        if not self._unserved:
            return None
        kinds = ", ".join(f"{kind.plural}.{kind.group}" for kind in self._unserved)
        return f"The API server does not serve {kinds}: apply the CustomResourceDefinitions of crds/ again."

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
        waits = iter(_LIST_BACKOFF)
        while True:
            try:
                await self.resync()
                return
            except ApiError as error:
                log.warning("Not everything can be listed, so nothing is done yet: %s", error)
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
            if late := self._intake.overdue(self._options.patience):
                log.error("The watch did not deliver %s: it is begun anew.", late[0])
                self._dead.set()
            if clock.monotonic() >= next_list:
                next_list = clock.monotonic() + interval * random.uniform(0.8, 1.2)
                self._to_list |= dict.fromkeys(self._watched)
            try:
                while self._to_list:
                    await self._list_all(next(iter(self._to_list)))
            except ApiError as error:
                log.warning("Not everything could be listed; it is tried again in a moment: %s", error)
                await asyncio.sleep(random.uniform(0.5, 1.0) * min(_LISTS_AGAIN_S, interval))
                self._wake.set()

    def _listed_by_watch(self, watched: Watched) -> None:
        """A watch began from a list, which tells nothing of what went before it: a list of ours does."""
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
            began = clock.monotonic()
            self._dead.clear()
            self._intake.await_nothing()
            shell = Shell(
                self._client.connection,
                self._watched,
                self._namespaces,
                self._intake.event,
                self._listed_by_watch,
                self._options.inactivity,
            )
            try:
                await shell.start()
                reason = await shell.ended(self._dead)
            finally:
                await shell.stop(self._options.stop)
            if await self._kinds_are_back() or reason == UNSERVED or clock.monotonic() - began > lives:
                restarts = self._deaths = 0
            restarts += 1
            self._deaths = self._deaths + 1 if reason == DEAD else 0
            if restarts > self._options.most_restarts:
                raise WatchError(f"The API server's objects cannot be watched, {restarts} times in a row: {reason}.")
            self.restarts += 1
            log.warning("The watches ended (%s); they are begun anew.", reason)
            await asyncio.sleep(_RESTART_BACKOFF.wait_s(restarts))

    async def _kinds_are_back(self) -> bool:
        """Wait until the API server serves all kinds, and return whether it did not at first.

        Definitions of custom resources may be deleted and applied again. kopf looks for kinds once, when it starts.
        """
        waited = False
        while True:
            try:
                served = await self._client.serves(watched.kind for watched in self._watched)
            except ApiError as error:
                if not waited:
                    return False  # kopf waits for an API server that is away
                log.warning("The API server cannot be asked which kinds it serves; it is asked again: %s", error)
            else:
                before = self._unserved
                self._unserved = tuple(watched.kind for watched in self._watched if watched.kind not in served)
                if not self._unserved:
                    return waited
                if self._unserved != before:
                    log.error("%s Nothing is reconciled until then.", self.unserved())
            waited = True
            await asyncio.sleep(_LOOKS_FOR_KINDS_S * random.uniform(0.5, 1.0))

    def _scopes(self, kind: Kind) -> Sequence[str | None]:
        return self._namespaces if self._namespaces and kind.namespaced else (None,)


class _Meta(msgspec.Struct, rename="camel"):
    name: str
    namespace: str = ""
    resource_version: str = ""


class _Head(msgspec.Struct):
    metadata: _Meta


_head = msgspec.json.Decoder(_Head).decode
