"""The world of a test that watches a real API server through a proxy: a namespace, a cache, a client without faults."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from millpond_operator.kubernetes import Cache, Client
from millpond_operator.kubernetes.kinds import CONFIG_MAP
from millpond_operator.kubernetes.watching import Watched, WatchError, Watching, WatchOptions
from tests.cluster.apiserver import SharedApiServer
from tests.cluster.faultproxy import FaultProxy, on
from tests.kubernetes.support import an_object, connection_of, run, until

__all__ = ("QUIET", "World", "answered_lists", "begun", "in_world", "world_of")

QUIET = WatchOptions(resync_interval=timedelta(hours=1))
"""Nothing but the watches can have found what a test waits for."""
BRISK = timedelta(milliseconds=300)


@dataclass
class World:
    """A namespace, the cache of its watches, and a client without faults."""

    namespace: str
    cache: Cache
    user: Client
    watching: Watching
    woken: list[str]

    async def put(self, name: str, value: str = "1", app: str | None = "app") -> None:
        wanted = an_object(CONFIG_MAP, name, namespace=self.namespace, app=app, data={"value": value})
        await self.user.apply(CONFIG_MAP, wanted)

    async def delete(self, name: str) -> None:
        await self.user.delete(CONFIG_MAP, self.namespace, name)

    def value(self, name: str) -> str | None:
        found = self.cache.get(CONFIG_MAP, self.namespace, name)
        return None if found is None else found["data"]["value"]

    async def sees(self, name: str, value: str | None) -> None:
        await until(lambda: self.value(name) == value, f"{name} is seen to be {value}")

    async def watches(self, proxy: FaultProxy, count: int = 1) -> None:
        await until(lambda: proxy.watches(on("configmaps")) == count, f"{count} watches are under way")


Story = Callable[[World], Awaitable[None]]


def in_world(
    server: SharedApiServer,
    proxy: FaultProxy,
    namespace: str,
    story: Story,
    options: WatchOptions = QUIET,
    before: Story | None = None,
    **more: Any,
) -> None:
    async def main() -> None:
        async with world_of(server, proxy, namespace, options, **more) as (world, start):
            if before is not None:
                await before(world)
            await start()
            await story(world)

    try:
        run(main())
    finally:
        with warnings.catch_warnings():  # kopf leaves connections open if it is cancelled early
            warnings.simplefilter("ignore", ResourceWarning)
            gc.collect()


@asynccontextmanager
async def world_of(
    server: SharedApiServer, proxy: FaultProxy, namespace: str, options: WatchOptions, **more: Any
) -> AsyncIterator[tuple[World, Callable[[], Awaitable[asyncio.Task[None]]]]]:
    more = {"namespaces": [namespace], "watched": (Watched(CONFIG_MAP),), "wait": True, **more}
    waits = more.pop("wait")
    cache, woken = Cache(), []
    async with Client(connection_of(proxy.access)) as client, Client(connection_of(server.admin)) as user:
        watching = Watching(client, cache, lambda _namespace, app: woken.append(app), options=options, **more)
        task: asyncio.Task[None] | None = None

        async def start() -> asyncio.Task[None]:
            nonlocal task
            task = asyncio.create_task(watching.run())
            if waits:
                await begun(watching, proxy)
            return task

        try:
            yield World(namespace, cache, user, watching, woken), start
        finally:
            if task is not None:
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError, WatchError):
                    await task


async def begun(watching: Watching, proxy: FaultProxy) -> None:
    """Wait until only watches are in flight: kopf leaves connections open if it is cancelled before."""
    await watching.synced.wait()
    # What is listed first, what kopf lists, and what is listed once more when a watch has begun.
    lists = 3 * len(watching._watched)
    await until(lambda: answered_lists(proxy) >= lists and proxy.watches(), "the watches began")


def answered_lists(proxy: FaultProxy) -> int:
    return sum(call.verb == "list" and call.status == 200 and bool(call.resource) for call in list(proxy.calls))
