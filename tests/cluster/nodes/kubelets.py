"""Nodes without machines: pods of a real API server are scheduled, run simulated workers, fail, are lost and deleted.

    with Kubelets(background, api_server.admin, namespace, operator_namespace=namespace) as kubelets:
        kubelets.images["delays:1"] = Image(topology(partitions=8))
        ...
        assert not kubelets.violations()

An application's data in Kafka outlives its pods, as in reality: it is in `streams`. All methods may be called from any
thread but the background's own.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import functools
import ipaddress
import shutil
import tempfile
import uuid
import zlib
from pathlib import Path
from typing import Self

from tests.cluster.api import ApiFailure, AsyncApi, Object, path_of
from tests.cluster.background import Background, cancel
from tests.cluster.certificates import Access
from tests.cluster.nodes import containers
from tests.cluster.nodes.images import Image
from tests.cluster.nodes.network import Network
from tests.cluster.nodes.pods import PodLife
from tests.cluster.nodes.streams import Streams
from tests.cluster.nodes.workers import Worker

__all__ = ("Image", "Kubelets", "Node")

STORAGE_CLASS = "standard"
_ADDRESSES = ipaddress.ip_network("10.128.0.0/10")


class Node:
    """A node.

    Attributes:
        up: whether it is reachable.
    """

    def __init__(self, name: str, labels: dict[str, str]) -> None:
        self.name = name
        self.labels = labels
        self.up = asyncio.Event()
        self.up.set()


class Kubelets:
    """Scheduler, kubelets and volumes of a cluster, as long as the `with` block.

    Args:
        background: where they run.
        access: to the API server, with all rights.
        namespace: whose pods they care for; None for all.
        operator_namespace: where the coordinator's Service is.
        coordinator_port: where the coordinator is, if nobody writes an EndpointSlice.
        nodes: how many.
        default: image behind names that `images` does not know; None for none, so that they cannot be pulled.
        workers: whether workers run in the pods. Without, pods are just ready: for many of them.
        beside: one that cares for another namespace: images and Kafka are the same for both.

    Attributes:
        images: by name; may be changed at any time.
        nodes: by name.
        kafkas: the ids of Kafka clusters by the addresses that applications have; all others are one cluster in each
            namespace.
        directory: of the pods' volumes.
    """

    def __init__(
        self,
        background: Background,
        access: Access,
        namespace: str | None,
        *,
        operator_namespace: str,
        coordinator_port: int | None = None,
        nodes: int = 3,
        default: Image | None = None,
        workers: bool = True,
        beside: Kubelets | None = None,
    ) -> None:
        self.images: dict[str, Image] = {} if beside is None else beside.images
        self.nodes: dict[str, Node] = {}
        self.kafkas: dict[str, str] = {} if beside is None else beside.kafkas
        self.directory = Path(tempfile.mkdtemp(prefix="millpond-kubelets-"))
        self.api = AsyncApi(access, agent="kubelets")
        self.network = Network(self.api, operator_namespace, coordinator_port)
        self.workers_run = workers
        self._default = default
        self._background = background
        self._namespace = namespace
        self._count = nodes
        self._lives: dict[str, PodLife] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._claims: dict[tuple[str, str], str] = {}
        self._disks: dict[str, dict[str, float]] = {}
        self._streams: dict[tuple[str, str], Streams] = (
            collections.defaultdict(Streams) if beside is None else beside._streams
        )
        self._following: list[asyncio.Task[None]] = []
        self._failures: list[BaseException] = []

    def __enter__(self) -> Self:
        self._background.call(self._start())
        return self

    def __exit__(self, *_: object) -> None:
        self._background.call(self._stop())
        shutil.rmtree(self.directory, ignore_errors=True)

    # What there is.

    def streams(self, namespace: str, application: str) -> Streams:
        """An application's data in the Kafka of its namespace."""
        return self.streams_on(self.kafka_of(namespace), application)

    def streams_on(self, kafka: str, application: str) -> Streams:
        """The data of an application id on a Kafka cluster."""
        return self._streams[kafka, application]

    def kafka_of(self, namespace: str, servers: str = "") -> str:
        """The id of the Kafka cluster at an address."""
        return self.kafkas.get(servers, f"kafka-of-{namespace}")

    def workers(self, namespace: str) -> dict[str, Worker]:
        """The running workers, by the names of their pods."""
        return {
            life.name: life.worker
            for life in list(self._lives.values())
            if life.namespace == namespace and life.worker is not None
        }

    def violations(self) -> list[str]:
        """Broken invariants of all applications, and the failure of the simulation itself, if any."""
        found = [each for streams in list(self._streams.values()) for each in streams.violations]
        return found + [repr(failure) for failure in self._failures]

    # What happens to it.

    def kill(self, namespace: str, pod: str) -> None:
        """Kill a worker; its container restarts."""
        self._background.loop.call_soon_threadsafe(self._life(namespace, pod).kill)

    def freeze(self, namespace: str, pod: str) -> None:
        """Freeze a worker in the middle of its work."""
        self._freeze(self._life(namespace, pod), frozen=True)

    def thaw(self, namespace: str, pod: str) -> None:
        """Let a frozen worker continue."""
        self._freeze(self._life(namespace, pod), frozen=False)

    def node_of(self, namespace: str, pod: str) -> str:
        """The node of a pod."""
        node = self._life(namespace, pod).node
        assert node is not None
        return node.name

    def lose(self, node: str) -> None:
        """Lose a node: it and its pods become unreachable, and the cluster notices at once.

        Its pods are not ready; deleting them has no effect, unless by force.
        """
        self._background.call(self._lose(self.nodes[node]))

    def evict(self, node: str) -> None:
        """Delete the pods of a node, as the cluster does after some minutes without it."""
        self._background.call(self._evict(self.nodes[node]))

    def recover(self, node: str) -> None:
        """Recover a node: its pods continue, or end if they were deleted meanwhile."""
        self._background.call(self._recover(self.nodes[node]))

    # For pods' lives.

    def image(self, name: str) -> Image | None:
        """The image with this name."""
        return self.images.get(name, self._default)

    def node(self, name: str) -> Node | None:
        return self.nodes.get(name)

    def fitting(self, pod: Object) -> Node | None:
        """The node with the fewest pods of those that are up and match the pod."""
        wanted = pod["spec"].get("nodeSelector", {}).items()
        fits = [each for each in self.nodes.values() if each.up.is_set() and wanted <= each.labels.items()]
        load = collections.Counter(life.node for life in self._lives.values())
        return min(fits, key=lambda node: load[node], default=None)

    def disk(self, pod: Object) -> dict[str, float]:
        """The state on the pod's volume."""
        metadata = pod["metadata"]
        for volume in pod["spec"].get("volumes", ()):
            claim = volume.get("persistentVolumeClaim")
            if claim is not None:
                uid = self._claims.get((metadata["namespace"], claim["claimName"]), metadata["uid"])
                return self._disks.setdefault(uid, {})
        return {}

    @staticmethod
    def address(pod: Object) -> str:
        """An address that no other pod is likely to have."""
        return str(_ADDRESSES[zlib.crc32(pod["metadata"]["uid"].encode()) % _ADDRESSES.num_addresses])

    # Inside.

    def _life(self, namespace: str, pod: str) -> PodLife:
        for life in list(self._lives.values()):
            if (life.namespace, life.name) == (namespace, pod):
                return life
        raise LookupError(f"there is no pod {namespace}/{pod}")

    def _freeze(self, life: PodLife, *, frozen: bool) -> None:
        async def freeze() -> None:
            life.freeze(frozen=frozen)

        self._background.call(freeze())

    async def _start(self) -> None:
        await self.api.__aenter__()
        await self.network.start()
        await self.api.apply(_storage_class())
        prefix = f"node-{uuid.uuid4().hex[:6]}"
        for number in range(self._count):
            name = f"{prefix}-{number}"
            labels = {"kubernetes.io/hostname": name, "topology.kubernetes.io/zone": f"zone-{number}"}
            self.nodes[name] = Node(name, labels)
            await self.api.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}})
            await self._mark(self.nodes[name], up=True)
        self._following = [
            asyncio.create_task(self.api.follow("PersistentVolumeClaim", self._claim_seen, self._namespace)),
            asyncio.create_task(self.api.follow("Pod", self._pod_seen, self._namespace)),
        ]

    async def _stop(self) -> None:
        await cancel([*self._following, *self._tasks.values()])
        for name in self.nodes:
            await self.api.delete("Node", None, name)
        await self.network.stop()
        await self.api.__aexit__()

    async def _pod_seen(self, change: str, pod: Object) -> None:
        uid = pod["metadata"]["uid"]
        life = self._lives.get(uid)
        if change == "DELETED":
            if life is not None:
                life.gone()
        elif life is not None:
            life.seen(pod)
        else:
            life = self._lives[uid] = PodLife(self, pod)
            self._tasks[uid] = asyncio.create_task(life.run())
            self._tasks[uid].add_done_callback(functools.partial(self._over, uid))

    def _over(self, uid: str, task: asyncio.Task[None]) -> None:
        self._lives.pop(uid, None)
        self._tasks.pop(uid, None)
        if not task.cancelled() and (failure := task.exception()) is not None:
            self._failures.append(failure)

    async def _claim_seen(self, change: str, claim: Object) -> None:
        """Bind a claim, with its size."""
        metadata = claim["metadata"]
        if change == "DELETED":
            self._disks.pop(metadata["uid"], None)
            return
        self._claims[metadata["namespace"], metadata["name"]] = metadata["uid"]
        wanted = claim["spec"]["resources"]["requests"]
        if claim["status"].get("capacity") == wanted or "deletionTimestamp" in metadata:
            return
        status = {"phase": "Bound", "accessModes": claim["spec"]["accessModes"], "capacity": wanted}
        with contextlib.suppress(ApiFailure):  # gone, or changed again: that will be seen
            await self.api.patch(
                "PersistentVolumeClaim",
                metadata["namespace"],
                metadata["name"],
                {"metadata": {"uid": metadata["uid"]}, "status": status},
                subresource="status",
            )

    async def _mark(self, node: Node, *, up: bool) -> None:
        """Write what the node controller writes."""
        condition = {"type": "Ready", "status": "True" if up else "Unknown", "reason": "KubeletReady"}
        if not up:
            condition |= {"reason": "NodeStatusUnknown", "message": "Kubelet stopped posting node status."}
        condition |= {"lastTransitionTime": containers.now(), "lastHeartbeatTime": containers.now()}
        await self.api.patch("Node", None, node.name, {"status": {"conditions": [condition]}}, subresource="status")
        effects = () if up else ("NoSchedule", "NoExecute")
        taints = [{"key": "node.kubernetes.io/unreachable", "effect": effect} for effect in effects]
        await self.api.patch("Node", None, node.name, {"spec": {"taints": taints}})

    async def _lose(self, node: Node) -> None:
        node.up.clear()
        there = [life for life in self._lives.values() if life.node is node]
        for life in there:
            life.freeze(frozen=True)
        await self._mark(node, up=False)
        for life in there:
            async with life.writing:  # what its node wrote last comes first
                life.shown_ready = False
                unready = containers.conditions(life.pod.get("status", {}), ready=False, reason="NodeStatusUnknown")
                with contextlib.suppress(ApiFailure):
                    await self.api.request(
                        "PATCH",
                        path_of("Pod", life.namespace, life.name, "status"),
                        {"metadata": {"uid": life.pod["metadata"]["uid"]}, "status": {"conditions": unready}},
                        content="application/merge-patch+json",
                    )

    async def _evict(self, node: Node) -> None:
        for life in list(self._lives.values()):
            if life.node is node:
                await self.api.delete("Pod", life.namespace, life.name)

    async def _recover(self, node: Node) -> None:
        await self._mark(node, up=True)
        for life in self._lives.values():
            if life.node is node:
                life.freeze(frozen=False)
        node.up.set()
        for life in self._lives.values():
            life.attend()


def _storage_class() -> Object:
    """A class whose volumes may grow."""
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": STORAGE_CLASS, "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}},
        "provisioner": "simulated.test/volumes",
        "allowVolumeExpansion": True,
        "volumeBindingMode": "WaitForFirstConsumer",
    }
