"""Kinds that are not served, in another version, or without the right to list them, on a real API server."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from millpond_operator.kubernetes import ApiError
from millpond_operator.kubernetes.kinds import CONFIG_MAP, CUSTOM_RESOURCE_DEFINITION, Kind
from millpond_operator.kubernetes.watching import Watched
from tests.cluster.api import Api
from tests.cluster.apiserver import SharedApiServer
from tests.cluster.background import Background
from tests.cluster.faultproxy import FaultProxy, on
from tests.cluster.waiting import wait_for
from tests.kubernetes.support import an_object, until
from tests.kubernetes.watch_world import World, answered_lists, in_world


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
        await until(lambda: answered_lists(proxy) >= 5 * len(watched), "the watches began anew")

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
        # The list of groups may come later than the definition.
        expected = (
            f"The API server serves things.{later.group} only as v1, and this operator needs v0: install the "
            "CustomResourceDefinitions and the operator of the same release."
        )
        await until(lambda: world.watching.unserved() == expected, "the served version is named")
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
