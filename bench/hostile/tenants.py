"""Tenants on a real API server: their StreamApps, pods and tokens. No pod runs; workers are simulated."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import msgspec

from tests.cluster.api import AsyncApi, Object
from tests.cluster.waiting import PATIENCE_S

__all__ = ("AUDIENCE", "TenantWorker", "create_app", "create_namespace", "workers_of")

AUDIENCE = "millpond-coordinator"
_POLL_S = 0.1


class TenantWorker(msgspec.Struct, frozen=True):
    """A worker with a valid token."""

    namespace: str
    application: str
    name: str
    token: str

    @property
    def prefix(self) -> str:
        """The path prefix of its StreamApp at the coordinator."""
        return f"/namespaces/{self.namespace}/{self.name.rpartition('-')[0]}"


async def create_namespace(api: AsyncApi, name: str) -> None:
    """Create a namespace for tenants."""
    await api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})


async def create_app(api: AsyncApi, namespace: str, name: str, replicas: int) -> None:
    """Create a StreamApp."""
    spec = {
        "image": "registry.example/delays:1",
        "topology": "app:delays",
        "replicas": replicas,
        "applicationId": f"{namespace}.{name}",
        "kafka": {"bootstrapServers": f"kafka.{namespace}.svc:9092"},
    }
    await api.create(
        {
            "apiVersion": "millpond.dev/v1alpha1",
            "kind": "StreamApp",
            "metadata": {"name": name, "namespace": namespace},
            "spec": spec,
        }
    )


async def workers_of(api: AsyncApi, namespace: str, name: str) -> Sequence[TenantWorker]:
    """Create the pods of a StreamApp like the StatefulSet controller, and tokens for them."""
    workload = await _applied(api, namespace, name)
    return [await _worker(api, workload, number) for number in range(workload["spec"]["replicas"])]


async def _applied(api: AsyncApi, namespace: str, name: str) -> Object:
    """Wait for the StatefulSet of a StreamApp, and return it.

    Raises:
        TimeoutError: the operator did not create it in time.
    """
    async with asyncio.timeout(PATIENCE_S):
        while (found := await api.find("StatefulSet", namespace, name)) is None:  # noqa: ASYNC110 - polls
            await asyncio.sleep(_POLL_S)
    return found


async def _worker(api: AsyncApi, workload: Object, number: int) -> TenantWorker:
    metadata, template = workload["metadata"], workload["spec"]["template"]
    name = f"{metadata['name']}-{number}"
    claims = [
        {"name": each["metadata"]["name"], "persistentVolumeClaim": {"claimName": f"{each['metadata']['name']}-{name}"}}
        for each in workload["spec"].get("volumeClaimTemplates", ())
    ]
    owner = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": metadata["name"], "uid": metadata["uid"]}
    pod = await api.create(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": template["metadata"]
            | {
                "name": name,
                "namespace": metadata["namespace"],
                "ownerReferences": [owner | {"controller": True, "blockOwnerDeletion": True}],
            },
            "spec": template["spec"] | {"volumes": [*template["spec"].get("volumes", ()), *claims]},
        }
    )
    token = await api.token(metadata["namespace"], template["spec"]["serviceAccountName"], AUDIENCE, pod)
    application = f"{metadata['namespace']}.{metadata['name']}"
    return TenantWorker(metadata["namespace"], application, name, token)
