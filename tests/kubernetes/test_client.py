"""The client against a real API server."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from millpond_operator.controllers.process.metrics import OperatorMetrics
from millpond_operator.kubernetes import (
    APP_LABEL,
    AlreadyExists,
    ApiError,
    Client,
    Conflict,
    Forbidden,
    Invalid,
    LeadershipLost,
    NotFound,
    Unauthorized,
    client,
)
from millpond_operator.kubernetes.kinds import CONFIG_MAP, NAMESPACE, NODE, SERVICE, SERVICE_ACCOUNT, STATEFUL_SET
from tests.cluster.api import Api
from tests.cluster.apiserver import SharedApiServer
from tests.kubernetes.support import an_object, connection_of, run

Scenario = Callable[[Client], Awaitable[None]]


def with_client(server: SharedApiServer, scenario: Scenario, **options: Any) -> None:
    async def main() -> None:
        async with Client(connection_of(server.admin), **options) as given:
            await scenario(given)

    run(main())


def test_applied_object_can_be_read(api_server: SharedApiServer, namespace: str) -> None:
    """The response has the present state, and the object is found by name and in lists."""

    async def scenario(client: Client) -> None:
        wanted = an_object(CONFIG_MAP, "a", namespace=namespace, app="x", data={"k": "1"})
        answer = await client.apply(CONFIG_MAP, wanted)
        assert answer["data"] == {"k": "1"}
        assert answer["metadata"]["uid"]
        assert await client.get(CONFIG_MAP, namespace, "a") == answer
        found, version = await client.list(CONFIG_MAP, namespace, labels=f"{APP_LABEL}=x")
        assert found == [answer]
        assert int(version) >= int(answer["metadata"]["resourceVersion"])
        assert (await client.list(CONFIG_MAP, namespace, labels=f"{APP_LABEL}=y"))[0] == []
        assert (await client.list(CONFIG_MAP, namespace, fields="metadata.name=a"))[0] == [answer]
        with pytest.raises(NotFound, match='configmaps "b" not found'):
            await client.get(CONFIG_MAP, namespace, "b")

    with_client(api_server, scenario)


def test_repeated_apply_changes_nothing(api_server: SharedApiServer, namespace: str) -> None:
    """The version stays, and fields that are no longer applied are removed."""

    async def scenario(client: Client) -> None:
        wanted = an_object(CONFIG_MAP, "a", namespace=namespace, data={"k": "1", "l": "2"})
        first = await client.apply(CONFIG_MAP, wanted)
        assert await client.apply(CONFIG_MAP, wanted) == first
        second = await client.apply(CONFIG_MAP, {**wanted, "data": {"k": "1"}})
        assert second["data"] == {"k": "1"}

    with_client(api_server, scenario)


def test_an_apply_may_be_for_one_version_only(api_server: SharedApiServer, namespace: str) -> None:
    """With a resource version that is not the current one, nothing is applied."""

    async def scenario(client: Client) -> None:
        wanted = an_object(CONFIG_MAP, "a", namespace=namespace, data={"k": "1"})
        version = (await client.apply(CONFIG_MAP, wanted))["metadata"]["resourceVersion"]
        wanted["metadata"]["resourceVersion"] = version
        wanted["data"] = {"k": "2"}
        assert (await client.apply(CONFIG_MAP, wanted))["data"] == {"k": "2"}
        wanted["data"] = {"k": "3"}
        with pytest.raises(Conflict) as caught:
            await client.apply(CONFIG_MAP, wanted)
        assert caught.value.status == 409
        assert (await client.get(CONFIG_MAP, namespace, "a"))["data"] == {"k": "2"}

    with_client(api_server, scenario)


def test_foreign_fields_need_force(api_server: SharedApiServer, namespace: str) -> None:
    """Without force, a field of another manager is a conflict."""

    async def scenario(client: Client) -> None:
        wanted = an_object(CONFIG_MAP, "a", namespace=namespace, data={"k": "1"})
        await client.apply(CONFIG_MAP, wanted, field_manager="somebody")
        wanted["data"] = {"k": "2"}
        with pytest.raises(Conflict, match="somebody"):
            await client.apply(CONFIG_MAP, wanted, force=False)
        assert (await client.apply(CONFIG_MAP, wanted))["data"] == {"k": "2"}

    with_client(api_server, scenario)


def test_an_invalid_object_names_its_fields(api_server: SharedApiServer, namespace: str) -> None:
    """The error has the rejected fields."""

    async def scenario(client: Client) -> None:
        with pytest.raises(Invalid) as caught:
            await client.apply(SERVICE, an_object(SERVICE, "a", namespace=namespace, spec={"ports": [{"port": 0}]}))
        assert caught.value.status == 422
        assert caught.value.reason == "Invalid"
        assert "spec.ports[0].port" in caught.value.fields

    with_client(api_server, scenario)


def test_create_replace_and_patch_work(api_server: SharedApiServer, namespace: str) -> None:
    """An object is created once, replaced at its version, and patched by merge and JSON patches."""

    async def scenario(client: Client) -> None:
        created = await client.create(CONFIG_MAP, an_object(CONFIG_MAP, "a", namespace=namespace, data={"k": "1"}))
        with pytest.raises(AlreadyExists):
            await client.create(CONFIG_MAP, an_object(CONFIG_MAP, "a", namespace=namespace))
        replaced = await client.replace(CONFIG_MAP, {**created, "data": {"k": "2"}})
        assert replaced["data"] == {"k": "2"}
        with pytest.raises(Conflict):
            await client.replace(CONFIG_MAP, {**created, "data": {"k": "3"}})
        merged = await client.patch(CONFIG_MAP, namespace, "a", {"data": {"k": None, "l": "4"}})
        assert merged["data"] == {"l": "4"}
        operations = [{"op": "test", "path": "/data/l", "value": "4"}, {"op": "add", "path": "/data/m", "value": "5"}]
        assert (await client.patch(CONFIG_MAP, namespace, "a", operations))["data"] == {"l": "4", "m": "5"}
        with pytest.raises(NotFound):
            await client.patch(CONFIG_MAP, namespace, "b", {"data": {}})

    with_client(api_server, scenario)


def test_status_is_written_through_its_subresource(api_server: SharedApiServer, namespace: str) -> None:
    """A subresource changes nothing else."""

    async def scenario(client: Client) -> None:
        template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
        spec = {"replicas": 0, "serviceName": "s", "selector": {"matchLabels": {"a": "b"}}, "template": template}
        wanted = an_object(STATEFUL_SET, "a", namespace=namespace, spec=spec)
        await client.apply(STATEFUL_SET, wanted)
        status = an_object(STATEFUL_SET, "a", namespace=namespace, status={"replicas": 0, "collisionCount": 7})
        status["spec"] = {"replicas": 3}
        answer = await client.apply(STATEFUL_SET, status, subresource="status")
        assert answer["status"]["collisionCount"] == 7
        assert answer["spec"]["replicas"] == 0

    with_client(api_server, scenario)


def test_deleting_is_idempotent_and_conditional(api_server: SharedApiServer, namespace: str) -> None:
    """A missing object counts as deleted; another object with its name is not deleted."""

    async def scenario(client: Client) -> None:
        await client.delete(CONFIG_MAP, namespace, "a")
        meta = (await client.create(CONFIG_MAP, an_object(CONFIG_MAP, "a", namespace=namespace)))["metadata"]
        with pytest.raises(Conflict):
            await client.delete(CONFIG_MAP, namespace, "a", uid="not-its-uid")
        with pytest.raises(Conflict):
            await client.delete(CONFIG_MAP, namespace, "a", uid=meta["uid"], resource_version="1")
        assert None is await client.delete(
            CONFIG_MAP, namespace, "a", uid=meta["uid"], resource_version=meta["resourceVersion"], grace_period_s=0
        )
        with pytest.raises(NotFound):
            await client.get(CONFIG_MAP, namespace, "a")

    with_client(api_server, scenario)


def test_pending_deletion_is_shown(api_server: SharedApiServer, namespace: str) -> None:
    """An object that a finalizer holds is returned."""

    async def scenario(client: Client) -> None:
        held = an_object(CONFIG_MAP, "a", namespace=namespace)
        held["metadata"]["finalizers"] = ["example.com/held"]
        await client.create(CONFIG_MAP, held)
        ending = await client.delete(CONFIG_MAP, namespace, "a")
        assert ending is not None
        assert ending["metadata"]["deletionTimestamp"]
        await client.patch(CONFIG_MAP, namespace, "a", {"metadata": {"finalizers": None}})
        assert await client.delete(CONFIG_MAP, namespace, "a") is None

    with_client(api_server, scenario)


def test_long_lists_are_paged(api_server: SharedApiServer, namespace: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """All pages are of one moment, and the objects have their kind."""
    monkeypatch.setattr(client, "_PAGE", 3)

    async def scenario(client: Client) -> None:
        wanted = [an_object(CONFIG_MAP, f"c{number}", namespace=namespace, app="x") for number in range(8)]
        await asyncio.gather(*(client.apply(CONFIG_MAP, each) for each in wanted))
        found, _ = await client.list(CONFIG_MAP, namespace, labels=APP_LABEL)
        assert [each["metadata"]["name"] for each in found] == [f"c{number}" for number in range(8)]
        assert {(each["apiVersion"], each["kind"]) for each in found} == {("v1", "ConfigMap")}
        pages = [page async for page in client.pages(CONFIG_MAP, namespace, labels=APP_LABEL)]
        assert [len(page.items) for page in pages] == [3, 3, 2]
        assert len({page.version for page in pages}) == 1

    with_client(api_server, scenario)


def test_cluster_scoped_objects_work(api_server: SharedApiServer, namespace: str) -> None:
    """Their path has no namespace."""

    async def scenario(client: Client) -> None:
        assert (await client.get(NAMESPACE, None, namespace))["metadata"]["name"] == namespace
        assert isinstance((await client.list(NODE))[0], list)

    with_client(api_server, scenario)


def test_the_guard_prevents_writing_but_not_reading(api_server: SharedApiServer, namespace: str) -> None:
    """A process that does not lead may only read."""

    def guard() -> None:
        raise LeadershipLost("Another one leads.")

    async def scenario(client: Client) -> None:
        wanted = an_object(CONFIG_MAP, "a", namespace=namespace)
        for write in (
            client.apply(CONFIG_MAP, wanted),
            client.create(CONFIG_MAP, wanted),
            client.replace(CONFIG_MAP, wanted),
            client.patch(CONFIG_MAP, namespace, "a", {}),
            client.delete(CONFIG_MAP, namespace, "a"),
        ):
            with pytest.raises(LeadershipLost):
                await write
        found, _ = await client.list(CONFIG_MAP, namespace, fields="metadata.name=a")
        assert found == []

    with_client(api_server, scenario, guard=guard)


def test_a_token_is_reviewed_for_its_audience(api_server: SharedApiServer, api: Api, namespace: str) -> None:
    """The API server authenticates a token only for its audience."""
    api.create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "w", "namespace": namespace}})
    token = api.token(namespace, "w", "millpond-coordinator")

    async def scenario(client: Client) -> None:
        status = await client.review_token(token, "millpond-coordinator")
        assert status["authenticated"]
        assert status["user"]["username"] == f"system:serviceaccount:{namespace}:w"
        assert status["audiences"] == ["millpond-coordinator"]
        assert not (await client.review_token(token, "another")).get("authenticated")
        assert not (await client.review_token("none", "millpond-coordinator")).get("authenticated")

    with_client(api_server, scenario)


def test_forbidden_request_is_explained(api_server: SharedApiServer, api: Api, namespace: str) -> None:
    """Without permission it is Forbidden; without a valid token, Unauthorized."""
    api.create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "w", "namespace": namespace}})

    async def scenario(token: str, expected: type[ApiError]) -> None:
        async with Client(connection_of(api_server.service_account(token))) as client:
            with pytest.raises(expected):
                await client.get(SERVICE_ACCOUNT, namespace, "w")

    run(scenario(api.token(namespace, "w"), Forbidden))
    run(scenario("wrong", Unauthorized))


def test_requests_are_counted(api_server: SharedApiServer, namespace: str) -> None:
    """Each request is counted by method and status, and measured by verb."""
    metrics = OperatorMetrics()

    async def scenario(client: Client) -> None:
        await client.apply(CONFIG_MAP, an_object(CONFIG_MAP, "a", namespace=namespace))
        with pytest.raises(NotFound):
            await client.get(CONFIG_MAP, namespace, "b")

    with_client(api_server, scenario, metrics=metrics)
    text = metrics.exposed().decode()
    assert 'rest_client_requests_total{code="201",method="PATCH"} 1.0' in text
    assert 'rest_client_requests_total{code="404",method="GET"} 1.0' in text
    assert 'rest_client_request_duration_seconds_count{verb="apply"} 1.0' in text
