"""Watching a real API server, through a proxy with network faults."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import os
import signal
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest

from millpond_operator.kubernetes import ApiError, Cache, Client
from millpond_operator.kubernetes.kinds import CONFIG_MAP, CUSTOM_RESOURCE_DEFINITION, SERVICE_ACCOUNT, STREAM_APP, Kind
from millpond_operator.kubernetes.watching import Watched, WatchError, Watching, WatchOptions
from tests.cluster.api import Api
from tests.cluster.apiserver import SharedApiServer
from tests.cluster.background import Background
from tests.cluster.faultproxy import FaultProxy, WatchEnd, on
from tests.cluster.waiting import wait_for
from tests.kubernetes.support import an_object, connection_of, run, until

QUIET = WatchOptions(resync_interval=timedelta(hours=1))
"""Nothing but the watches can have found what a test waits for."""
BRISK = timedelta(milliseconds=300)


@pytest.fixture
def proxy(background: Background, api_server: SharedApiServer) -> Iterator[FaultProxy]:
    with FaultProxy(background, api_server.admin, api_server.authority) as serving:
        yield serving


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
        async with _world(server, proxy, namespace, options, **more) as (world, start):
            if before is not None:
                await before(world)
            await start()
            await story(world)

    run(main())


@asynccontextmanager
async def _world(
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
                await _begun(watching, proxy)
            return task

        try:
            yield World(namespace, cache, user, watching, woken), start
        finally:
            if task is not None:
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError, WatchError):
                    await task


async def _begun(watching: Watching, proxy: FaultProxy) -> None:
    """Wait until only watches are in flight: kopf leaves connections open if it is cancelled before."""
    await watching.synced.wait()
    # What is listed first, what kopf lists, and what is listed once more when a watch has begun.
    lists = 3 * len(watching._watched)
    await until(lambda: _answered_lists(proxy) >= lists and proxy.watches(), "the watches began")


def _answered_lists(proxy: FaultProxy) -> int:
    return sum(call.verb == "list" and call.status == 200 and bool(call.resource) for call in list(proxy.calls))


def test_changes_are_followed(api_server: SharedApiServer, proxy: FaultProxy, namespace: str) -> None:
    """Existing objects are known once synced; additions, changes and deletions are seen. Each is notified."""

    async def before(world: World) -> None:
        await world.put("old")

    async def story(world: World) -> None:
        assert world.value("old") == "1"
        assert world.woken == ["app"]
        assert not asyncio.get_running_loop().remove_signal_handler(signal.SIGTERM), "kopf's handlers are removed"
        await world.put("new")
        await world.sees("new", "1")
        await world.put("new", "2")
        await world.sees("new", "2")
        await world.delete("old")
        await world.sees("old", None)
        assert world.woken == ["app"] * 4

    in_world(api_server, proxy, namespace, story, before=before)


def test_watching_writes_nothing(api_server: SharedApiServer, proxy: FaultProxy, crds: None, namespace: str) -> None:
    """No finalizers, no annotations, no events, not even when an object is deleted."""

    async def story(world: World) -> None:
        spec = {"image": "i", "topology": "m:t", "kafka": {"bootstrapServers": "k:9092"}}
        app = await world.user.apply(STREAM_APP, an_object(STREAM_APP, "a", namespace=namespace, spec=spec))
        await until(lambda: world.cache.count(STREAM_APP), "it is seen")
        assert await world.user.get(STREAM_APP, namespace, "a") == app
        await world.user.delete(STREAM_APP, namespace, "a")
        await until(lambda: not world.cache.count(STREAM_APP), "it is seen to be gone")
        assert {call.verb for call in proxy.calls} == {"get", "list", "watch"}
        assert world.woken == ["a", "a"]

    in_world(api_server, proxy, namespace, story, watched=(Watched(STREAM_APP, None), Watched(CONFIG_MAP)))


def test_only_what_is_asked_for_is_watched(api_server: SharedApiServer, proxy: FaultProxy, namespace: str) -> None:
    """Objects without the label, in other namespaces or of other kinds are not delivered."""

    async def story(world: World) -> None:
        await world.put("unlabelled", app=None)
        account = an_object(SERVICE_ACCOUNT, "account", namespace=namespace, app="app")
        await world.user.apply(SERVICE_ACCOUNT, account)
        elsewhere = an_object(CONFIG_MAP, "elsewhere", namespace="default", app="app")
        await world.user.apply(CONFIG_MAP, elsewhere)
        await world.put("labelled")
        await world.sees("labelled", "1")
        await world.user.delete(CONFIG_MAP, "default", "elsewhere")
        assert world.cache.keys(CONFIG_MAP) == [(namespace, "labelled")]
        assert not world.cache.count(SERVICE_ACCOUNT)
        asked = [call for call in proxy.calls if call.resource == "configmaps"]
        assert {call.query.get("labelSelector") for call in asked} == {"millpond.dev/app"}

    in_world(api_server, proxy, namespace, story)


def test_without_namespaces_all_are_watched(api_server: SharedApiServer, proxy: FaultProxy, namespace: str) -> None:
    """One watch for the whole cluster."""

    async def story(world: World) -> None:
        await world.put("a")
        await world.sees("a", "1")
        assert {call.namespace for call in proxy.calls if call.verb == "watch"} == {""}

    in_world(api_server, proxy, namespace, story, namespaces=())


@pytest.mark.parametrize("how", [WatchEnd.RESET, WatchEnd.CLOSE])
def test_a_dropped_watch_goes_on_where_it_was(
    api_server: SharedApiServer, proxy: FaultProxy, namespace: str, how: WatchEnd
) -> None:
    """What happened meanwhile is delivered afterwards, deletions too, without another list."""

    async def before(world: World) -> None:
        await world.put("goes")

    async def story(world: World) -> None:
        for number in range(3):
            proxy.hold_watches()
            await world.put("stays", str(number))
            if number == 1:
                await world.delete("goes")
            await asyncio.to_thread(proxy.end_watches, how)
            await asyncio.to_thread(proxy.release_watches)
            await world.sees("stays", str(number))
        await world.sees("goes", None)
        assert world.watching.restarts == 0

    in_world(api_server, proxy, namespace, story, before=before)


def test_watches_that_end_at_once_back_off(api_server: SharedApiServer, proxy: FaultProxy, namespace: str) -> None:
    """Between watches that last less than a second the pauses grow; nothing is missed."""

    async def story(world: World) -> None:
        proxy.forget()
        await world.put("a")
        began = time.monotonic()
        while time.monotonic() - began < 1.0:
            await asyncio.to_thread(proxy.end_watches, WatchEnd.CLOSE)
        assert 1 <= sum(call.verb == "watch" for call in proxy.calls) <= 6
        await world.put("a", "2")
        await world.sees("a", "2")

    in_world(api_server, proxy, namespace, story)


def test_an_expired_watch_misses_nothing(api_server: SharedApiServer, proxy: FaultProxy, namespace: str) -> None:
    """After 410 Gone everything is listed again: changes and deletions are seen."""

    async def before(world: World) -> None:
        await world.put("goes")
        await world.put("changes")

    async def story(world: World) -> None:
        proxy.silence_watches(new=False)
        await world.delete("goes")
        await world.put("changes", "2")
        await world.put("comes")
        assert world.value("goes") == "1"
        proxy.end_watches(WatchEnd.EXPIRED)
        await world.sees("changes", "2")
        await world.sees("comes", "1")
        await world.sees("goes", None)
        assert world.watching.restarts == 0

    in_world(api_server, proxy, namespace, story, before=before)


def test_a_silent_watch_is_connected_anew(api_server: SharedApiServer, proxy: FaultProxy, namespace: str) -> None:
    """An open but dead connection is given up after a while; the next one delivers what was missed."""

    async def story(world: World) -> None:
        proxy.silence_watches(new=False)
        await world.put("a")
        await world.sees("a", "1")
        assert world.watching.restarts == 0

    in_world(api_server, proxy, namespace, story, options=dataclasses.replace(QUIET, inactivity=BRISK))


def test_a_dead_watch_is_found_by_lists(api_server: SharedApiServer, proxy: FaultProxy, namespace: str) -> None:
    """A list shows what the watch does not deliver; then the watch is restarted, and delivers."""
    options = WatchOptions(resync_interval=BRISK, patience=timedelta(seconds=2))

    async def story(world: World) -> None:
        proxy.silence_watches(new=False)
        await world.put("a")
        await world.sees("a", "1")
        assert world.woken == ["app"]
        await until(lambda: world.watching.restarts == 1, "the watch was begun anew")
        await world.watches(proxy)
        await world.put("a", "2")
        await world.sees("a", "2")
        assert world.watching.trouble() is None

    in_world(api_server, proxy, namespace, story, options=options)


def test_watches_that_stay_dead_are_trouble(api_server: SharedApiServer, proxy: FaultProxy, namespace: str) -> None:
    """When restarted watches are dead too, liveness reports it, and finally watching fails."""

    async def story(world: World) -> None:
        proxy.silence_watches(new=True)
        number = 0
        while world.watching.trouble() is None:
            number += 1
            await world.put("a", str(number))
            await world.sees("a", str(number))
        assert world.watching.restarts >= 1

    in_world(api_server, proxy, namespace, story, options=WatchOptions(resync_interval=BRISK, patience=BRISK))


@pytest.mark.parametrize("status", [429, 500])
def test_watches_survive_errors(api_server: SharedApiServer, proxy: FaultProxy, namespace: str, status: int) -> None:
    """Lists and watches that are rejected for a while are retried."""

    async def story(world: World) -> None:
        await until(lambda: world.watching.synced.is_set(), "all was listed")
        await world.put("a")
        await world.sees("a", "1")
        proxy.answer(status, times=3, match=on("configmaps"))
        proxy.end_watches(WatchEnd.EXPIRED)
        await world.put("a", "2")
        await world.sees("a", "2")
        assert world.watching.restarts == 0

    proxy.answer(status, times=3, match=on("configmaps"))
    in_world(api_server, proxy, namespace, story, wait=False)


def test_an_api_server_that_is_away_is_waited_for(
    api_server: SharedApiServer, proxy: FaultProxy, namespace: str
) -> None:
    """However long: when it is back, the watches continue."""

    async def story(world: World) -> None:
        await world.put("a")
        await world.sees("a", "1")
        with proxy.unreachable():
            await world.put("a", "2")
            await world.delete("a")
            await world.put("b", "3")
            refused = len(proxy.calls) + 3
            await until(lambda: len(proxy.calls) >= refused, "it was tried several times")
            assert world.value("a") == "1"
        await world.sees("b", "3")
        await world.sees("a", None)
        assert world.watching.restarts == 0

    in_world(api_server, proxy, namespace, story)


def test_reconciliation_waits_for_the_first_lists(
    api_server: SharedApiServer, proxy: FaultProxy, namespace: str
) -> None:
    """While a kind cannot be listed, the cache is not synced."""

    async def before(world: World) -> None:
        await world.put("a")

    async def story(world: World) -> None:
        await until(lambda: any(call.verb == "list" for call in proxy.calls), "it was tried")
        assert not world.watching.synced.is_set()
        proxy.mend()
        await world.watching.synced.wait()
        assert world.value("a") == "1"
        await _begun(world.watching, proxy)

    proxy.answer(403, times=None, match=on("configmaps"))
    in_world(api_server, proxy, namespace, story, before=before, wait=False)


def test_stale_list_undoes_nothing(api_server: SharedApiServer, proxy: FaultProxy, namespace: str) -> None:
    """A list from a lagging API server undoes neither changes nor deletions."""

    async def story(world: World) -> None:
        await world.put("changes")
        await world.put("goes")
        await world.sees("goes", "1")
        _, version = await world.user.list(CONFIG_MAP, namespace)
        await world.put("changes", "2")
        await world.delete("goes")
        await world.put("comes")
        await world.sees("comes", "1")
        await world.watching.resync()
        proxy.stale_lists(version)
        proxy.forget()
        proxy.end_watches(WatchEnd.EXPIRED)
        await until(lambda: any(call.verb == "watch" for call in proxy.calls), "it is watched again")
        await world.put("comes", "2")
        await world.sees("comes", "2")
        await world.watching.resync()
        assert [world.value(name) for name in ("changes", "goes", "comes")] == ["2", None, "2"]

    in_world(api_server, proxy, namespace, story)


def test_watches_that_keep_dying_are_reported(api_server: SharedApiServer, proxy: FaultProxy, namespace: str) -> None:
    """When watches die as soon as they start, again and again, the caller gets an error."""

    async def scenario() -> None:
        options = dataclasses.replace(QUIET, most_restarts=1)
        async with _world(api_server, proxy, namespace, options) as (_, start):
            task = await start()
            proxy.answer(404, times=None, match=on("configmaps", "watch"))
            proxy.end_watches()
            with pytest.raises(WatchError, match="2 times in a row"):
                await task

    run(scenario())


@pytest.fixture
def thing(api: Api) -> Iterator[Callable[[bool], Kind]]:
    """Defines a kind that no other test has, or removes the definition."""
    kind = Kind(f"again-{uuid.uuid4().hex[:8]}.test", "v1", "Thing", "things")
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    definition = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"things.{kind.group}"},
        "spec": {
            "group": kind.group,
            "names": {"kind": "Thing", "plural": "things"},
            "scope": "Namespaced",
            "versions": [version],
        },
    }

    name = definition["metadata"]["name"]

    def define(served: bool) -> Kind:
        if served:
            api.apply(definition)
        else:
            api.delete("CustomResourceDefinition", None, name)
            wait_for(lambda: api.find("CustomResourceDefinition", None, name) is None, "the definition is gone")
        return kind

    yield define
    define(False)


def test_a_kind_that_is_defined_again_is_watched_again(
    api_server: SharedApiServer, proxy: FaultProxy, namespace: str, thing: Callable[[bool], Kind]
) -> None:
    """While its definition is deleted it is reported as not served; once it is back, its objects are watched."""
    kind = thing(True)

    async def put(world: World, name: str) -> None:
        made = an_object(kind, name, namespace=namespace)
        while name not in _names(await _listed(world, kind)):
            with contextlib.suppress(ApiError):  # it is served a moment after it is defined
                await world.user.apply(kind, made)
            await asyncio.sleep(0.05)

    async def seen(world: World, names: set[str]) -> None:
        await until(lambda: {key.name for key in world.cache.keys(kind)} == names, f"{names} are seen")

    async def before(world: World) -> None:
        await put(world, "before")

    async def story(world: World) -> None:
        await seen(world, {"before"})
        assert world.watching.unserved() is None
        await asyncio.to_thread(thing, False)
        await until(lambda: world.watching.unserved() is not None, "it is not served")
        assert f"things.{kind.group}: apply the CustomResourceDefinitions" in (world.watching.unserved() or "")
        await asyncio.to_thread(thing, True)
        await put(world, "after")
        await seen(world, {"after"})
        assert world.watching.unserved() is None
        await until(lambda: proxy.watches(on("things")) == 1, "it is watched")
        await put(world, "later")
        await seen(world, {"after", "later"})
        # As in `_begun`: each kind was listed three times at first, and twice when the watches began anew.
        await until(lambda: _answered_lists(proxy) >= 5 * len(watched), "the watches began anew")

    watched = (Watched(CONFIG_MAP), Watched(kind, None))
    more = {"watched": watched, "before": before}
    in_world(api_server, proxy, namespace, story, **more)


def test_other_version_of_a_kind_is_named_and_awaited(
    api_server: SharedApiServer, proxy: FaultProxy, namespace: str, thing: Callable[[bool], Kind]
) -> None:
    """An operator of another release than the definitions says which version is served, and starts when its own is."""
    later = thing(True)
    earlier = dataclasses.replace(later, version="v0")

    async def story(world: World) -> None:
        await until(lambda: world.watching.unserved() is not None, "it is not served")
        assert world.watching.unserved() == (
            f"The API server serves things.{later.group} only as v1, and this operator needs v0: install the "
            "CustomResourceDefinitions and the operator of the same release."
        )
        assert not world.watching.synced.is_set()
        name = f"things.{later.group}"
        definition = await world.user.get(CUSTOM_RESOURCE_DEFINITION, None, name)
        (version,) = definition["spec"]["versions"]
        more = {"versions": [version, version | {"name": "v0", "storage": False}]}
        await world.user.patch(CUSTOM_RESOURCE_DEFINITION, None, name, {"spec": more})
        await until(world.watching.synced.is_set, "everything is listed")
        assert world.watching.unserved() is None

    in_world(api_server, proxy, namespace, story, watched=(Watched(earlier, None),), wait=False)


@pytest.mark.parametrize(
    ("everywhere", "cure"),
    [(True, "set --watch-namespaces to those in which it has rights"), (False, "Bind the operator")],
)
def test_missing_right_is_named_and_awaited(
    everywhere: bool,
    cure: str,
    api: Api,
    background: Background,
    api_server: SharedApiServer,
    namespace: str,
) -> None:
    """An operator for all namespaces needs rights in the cluster, and says what to do without them."""
    name = f"nobody-{uuid.uuid4().hex[:8]}"
    with FaultProxy(background, api_server.user(name), api_server.authority) as proxy:

        async def story(world: World) -> None:
            await until(lambda: world.watching.unserved() is not None, "it is denied")
            assert "403" in (world.watching.unserved() or "") or "forbidden" in (world.watching.unserved() or "")
            assert cure in (world.watching.unserved() or "")
            assert not world.watching.synced.is_set()
            subject = {"kind": "User", "name": name, "apiGroup": "rbac.authorization.k8s.io"}
            role = {"kind": "ClusterRole", "name": "view", "apiGroup": "rbac.authorization.k8s.io"}
            binding = {"metadata": {"name": name, "namespace": namespace}, "subjects": [subject], "roleRef": role}
            kind = "ClusterRoleBinding" if everywhere else "RoleBinding"
            made = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, **binding}
            await asyncio.to_thread(api.apply, made)
            await until(world.watching.synced.is_set, "everything is listed")
            assert world.watching.unserved() is None

        namespaces = [] if everywhere else [namespace]
        in_world(api_server, proxy, namespace, story, namespaces=namespaces, wait=False)
        api.delete("ClusterRoleBinding", None, name)


async def _listed(world: World, kind: Kind) -> list[dict[str, Any]]:
    with contextlib.suppress(ApiError):
        return (await world.user.list(kind, world.namespace))[0]
    return []


def _names(objects: list[dict[str, Any]]) -> set[str]:
    return {each["metadata"]["name"] for each in objects}


def test_signals_reach_the_process_instead_of_kopf(
    api_server: SharedApiServer, proxy: FaultProxy, namespace: str
) -> None:
    """The process sets its handlers again after each start of kopf, which has set its own."""
    received: list[int] = []

    def handle() -> None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, received.append, 1)

    async def story(_world: World) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        await until(lambda: received, "the process's own handler is called")

    in_world(api_server, proxy, namespace, story, restore_signals=handle)
