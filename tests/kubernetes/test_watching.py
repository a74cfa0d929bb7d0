"""Watching a real API server, through a proxy with network faults."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import signal
from datetime import timedelta

import pytest

from millpond.protocol import clock
from millpond_operator.kubernetes.kinds import CONFIG_MAP, SERVICE_ACCOUNT, STREAM_APP
from millpond_operator.kubernetes.watching import Watched, WatchError, WatchOptions
from tests.cluster.apiserver import SharedApiServer
from tests.cluster.faultproxy import FaultProxy, WatchEnd, on
from tests.kubernetes.support import an_object, run, until
from tests.kubernetes.watch_world import QUIET, World, begun, in_world, world_of

BRISK = timedelta(milliseconds=300)


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
    # From 50 ms on, each twice as long as the one before. Before the first of these watches there is none: the last one
    # was a long one.
    shortest_s = 0.05 + 0.1 + 0.2 + 0.4

    def begun_at() -> list[float]:
        return [call.at for call in list(proxy.calls) if call.verb == "watch"]

    async def story(world: World) -> None:
        proxy.forget()
        await world.put("a")
        began = clock.monotonic()
        while len(begun_at()) < 5:
            await asyncio.to_thread(proxy.end_watches, WatchEnd.CLOSE)
        assert begun_at()[4] - began >= shortest_s
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
        await begun(world.watching, proxy)

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
        async with world_of(api_server, proxy, namespace, options) as (_, start):
            task = await start()
            proxy.answer(404, times=None, match=on("configmaps", "watch"))
            proxy.end_watches()
            with pytest.raises(WatchError, match="2 times in a row"):
                await task

    run(scenario())


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
