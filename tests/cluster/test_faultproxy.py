"""The proxy that injects faults between a client and the API server."""

from __future__ import annotations

from http import HTTPStatus

import aiohttp
import pytest

from tests.cluster.api import Api, ApiFailure, AsyncApi
from tests.cluster.calls import on
from tests.cluster.faultproxy import FaultProxy, WatchEnd
from tests.cluster.waiting import wait_for
from tests.support.kafka import eventually


@pytest.fixture
def proxy(background, api_server):
    with FaultProxy(background, api_server.admin, api_server.authority) as proxy:
        yield proxy


@pytest.fixture
def client(background, proxy):
    with Api(background, proxy.access, agent="client") as client:
        yield client


def config_map(namespace, name="settings", **data):
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": namespace},
        "data": data,
    }


def names(client, namespace):
    return {each["metadata"]["name"] for each in client.list("ConfigMap", namespace)} - {"kube-root-ca.crt"}


def test_proxy_forwards_requests_and_records_writes(client, proxy, namespace):
    """Neither reads nor rejected writes are recorded as writes."""
    client.apply(config_map(namespace, a="1"))
    client.list("ConfigMap", namespace)
    with pytest.raises(ApiFailure):
        client.create(config_map(namespace))
    client.delete("ConfigMap", namespace, "settings")
    assert [(call.verb, call.resource, call.name) for call in proxy.writes()] == [
        ("patch", "configmaps", "settings"),
        ("delete", "configmaps", "settings"),
    ]
    assert proxy.writes()[0].body["data"] == {"a": "1"}
    proxy.forget()
    assert not proxy.writes()


def test_proxy_keeps_the_identity_of_tokens(api, proxy, background, api_server, namespace):
    """Requests with a token do not get the proxy's rights."""
    eventually(lambda: api.find("ServiceAccount", namespace, "default"), "the namespace has its service account")
    access = api_server.service_account(api.token(namespace, "default")).at(proxy.access.url)
    with Api(background, access) as client, pytest.raises(ApiFailure) as refused:
        client.list("ConfigMap", namespace)
    assert refused.value.status == HTTPStatus.FORBIDDEN


def test_proxy_blocks_everything_after_the_chosen_write(client, proxy, api, namespace):
    """The write succeeds without a response, and all later requests fail."""
    killed = []

    async def kill():
        killed.append(True)

    proxy.halt_after(2, kill)
    client.apply(config_map(namespace, "one"))
    for name in ("two", "three"):
        with pytest.raises(aiohttp.ClientError):
            client.apply(config_map(namespace, name))
    assert proxy.halted
    wait_for(lambda: killed, "it is told")
    assert names(api, namespace) == {"one", "two"}
    proxy.resume()
    client.apply(config_map(namespace, "three"))


def test_errors_are_injected_as_often_as_asked(client, proxy, api, namespace):
    """Only for matching requests; an error may also replace the response to a successful write."""
    proxy.answer(409, times=2, match=on("configmaps", "write", name="one"))
    client.apply(config_map(namespace, "two"))
    for _ in range(2):
        with pytest.raises(ApiFailure) as failure:
            client.apply(config_map(namespace, "one"))
        assert (failure.value.status, failure.value.reason) == (HTTPStatus.CONFLICT, "Conflict")
    client.apply(config_map(namespace, "one"))
    proxy.answer(500, applied=True)
    with pytest.raises(ApiFailure):
        client.apply(config_map(namespace, "three"))
    proxy.lose_answers()
    with pytest.raises(aiohttp.ClientError):
        client.apply(config_map(namespace, "four"))
    assert names(api, namespace) == {"one", "two", "three", "four"}


def test_one_write_is_delayed_while_others_pass(client, proxy, api, background, namespace):
    """Like that of a leader that is frozen during it."""
    held = proxy.hold(on("configmaps", "write"))
    writing = background.submit(client.inside.apply(config_map(namespace, "late")))
    held.await_arrival()
    client.apply(config_map(namespace, "early"))
    assert names(api, namespace) == {"early"}
    held.release()
    writing.result(30)
    assert names(api, namespace) == {"early", "late"}


def test_stale_lists_and_objects_are_served(client, proxy, api, namespace):
    """A lagging API server: all reads are consistent and old."""
    before = api.apply(config_map(namespace, "old", a="1"))["metadata"]["resourceVersion"]
    api.apply(config_map(namespace, "old", a="2"))
    api.apply(config_map(namespace, "new"))
    proxy.stale_lists(before)
    assert names(client, namespace) == {"old"}
    assert client.get("ConfigMap", namespace, "old")["data"] == {"a": "1"}
    assert client.find("ConfigMap", namespace, "new") is None
    proxy.mend()
    assert names(client, namespace) == {"old", "new"}


@pytest.mark.parametrize("hangs", [False, True])
def test_an_unreachable_api_server_breaks_connections_or_lets_them_hang(hangs, client, proxy, background, namespace):
    """Requests fail, or arrive later."""
    with proxy.unreachable(hangs=hangs):
        waiting = background.submit(client.inside.apply(config_map(namespace)))
        with pytest.raises((aiohttp.ClientError, TimeoutError)):
            waiting.result(0.3)
    if hangs:
        waiting.result(30)
    assert client.apply(config_map(namespace))


class Watching:
    """Names that a watch delivered, and how many times it had to restart."""

    def __init__(self, access, namespace):
        self.seen = []
        self.ends = []
        self._access = access
        self._namespace = namespace

    async def run(self):
        async with AsyncApi(self._access) as api:
            _, version = await api.page("ConfigMap", self._namespace)
            while True:
                try:
                    async for change, item in api.watch("ConfigMap", version, self._namespace):
                        version = item["metadata"]["resourceVersion"]
                        if change != "BOOKMARK":
                            self.seen.append(item["metadata"]["name"])
                    self.ends.append("close")
                except aiohttp.ClientError:
                    self.ends.append("reset")
                except ApiFailure as failure:
                    self.ends.append(failure.reason)


@pytest.fixture
def watching(proxy, background, namespace, api):
    eventually(lambda: api.find("ConfigMap", namespace, "kube-root-ca.crt"), "the namespace is complete")
    watching = Watching(proxy.access, namespace)
    future = background.submit(watching.run())
    eventually(lambda: proxy.watches() == 1, "the watch is under way")
    yield watching
    future.cancel()


def test_watches_end_in_every_known_way(watching, proxy, api, namespace):
    """With a broken connection, regularly, and with an expired version."""
    for number, (how, seen) in enumerate({"reset": "reset", "close": "close", "expired": "Expired"}.items()):
        proxy.end_watches(WatchEnd(how))
        eventually(lambda seen=seen: watching.ends[-1:] == [seen], f"the watch ended: {how}")
        eventually(lambda: proxy.watches() == 1, "a new watch is under way")
        api.apply(config_map(namespace, f"c{number}"))
        eventually(lambda number=number: watching.seen[-1:] == [f"c{number}"], "the new watch tells")


def test_silent_watch_stays_open_without_events(watching, proxy, api, namespace):
    """Until the fault ends; the client finds what happened meanwhile with a new watch."""
    api.apply(config_map(namespace, "before"))
    eventually(lambda: watching.seen == ["before"], "the watch tells")
    proxy.silence_watches()
    api.apply(config_map(namespace, "unheard"))
    with pytest.raises(AssertionError):
        eventually(lambda: len(watching.seen) > 1, "the watch tells", timeout_s=0.5)
    assert proxy.watches() == 1
    assert not watching.ends
    proxy.mend()
    eventually(lambda: watching.seen == ["before", "unheard"], "the new watch tells")
    assert watching.ends == ["reset"]


def test_delayed_watch_delivers_late(watching, proxy, api, namespace):
    """Everything, in order."""
    proxy.hold_watches()
    for name in ("one", "two"):
        api.apply(config_map(namespace, name))
    with pytest.raises(AssertionError):
        eventually(lambda: watching.seen, "the watch tells", timeout_s=0.3)
    proxy.release_watches()
    eventually(lambda: watching.seen == ["one", "two"], "the watch tells")
    assert not watching.ends
