"""The life of one pod, as scheduler and kubelet run it: pending, running, restarting, terminated."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import shutil
import tempfile
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING

from tests.chaos.proxying import Cut
from tests.cluster.api import ApiFailure, Object
from tests.cluster.nodes import containers
from tests.cluster.nodes.containers import ContainerProblem, VolumeProblem
from tests.cluster.nodes.images import Image
from tests.cluster.nodes.network import Route
from tests.cluster.nodes.streams import Streams
from tests.cluster.nodes.workers import Exit, Worker

if TYPE_CHECKING:
    from tests.cluster.nodes.kubelets import Kubelets, Node

__all__ = ("PodLife",)

_RETRY_S = 0.25
_PROBE_S = 0.05
_FIRST_BACKOFF_S, _LONGEST_BACKOFF_S = 0.3, 3.0
_KILLED = Exit(137)


class _Gone(Exception):
    """The pod's object was deleted."""


class PodLife:
    """One pod.

    Attributes:
        pod: its object at the API server.
        worker: the process that runs in it, if any.
        node: its node; None before it is scheduled.
        shown_ready: whether its status says ready.
        writing: held while its node writes its status.
    """

    def __init__(self, kubelets: Kubelets, pod: Object) -> None:
        self.pod = pod
        self.worker: Worker | None = None
        self.node: Node | None = None
        self.frozen = False
        self.shown_ready = False
        self.writing = asyncio.Lock()
        self._kubelets = kubelets
        self._restarts = 0
        self._last: Object = {}
        self._started_at = ""
        self._attention = asyncio.Event()
        self._deleting = asyncio.Event()
        self._gone = asyncio.Event()
        self._route: Route | None = None
        self._process: asyncio.Task[Exit] | None = None
        self._files = Path(tempfile.mkdtemp(prefix="pod-", dir=kubelets.directory))

    @property
    def name(self) -> str:
        return str(self.pod["metadata"]["name"])

    @property
    def namespace(self) -> str:
        return str(self.pod["metadata"]["namespace"])

    def seen(self, pod: Object) -> None:
        """Update its object from the API server."""
        self.pod = pod
        if "deletionTimestamp" in pod["metadata"]:
            self._deleting.set()
            self.attend()

    def gone(self) -> None:
        """Note that its object was deleted."""
        self._gone.set()
        self._deleting.set()
        self.attend()

    def attend(self) -> None:
        """Note a change that the kubelet may have to write."""
        self._attention.set()

    def kill(self) -> None:
        """Like SIGKILL: the process dies, the pod stays."""
        if self._process is not None:
            self._process.cancel()

    def freeze(self, *, frozen: bool) -> None:
        """Like SIGSTOP, or a lost node: nothing is processed or sent, but no connection breaks."""
        self.frozen = frozen
        if self._route is not None:
            self._route.proxy._cut(Cut.BOTH if frozen else None)
        if self.worker is not None:
            self.worker.freeze(frozen=frozen)

    async def run(self) -> None:
        """Run its whole life."""
        self._route = Route(self._kubelets.network)
        await self._route.open()
        self.seen(self.pod)
        try:
            await self._live()
            await self._bury()
        except _Gone:
            pass
        finally:
            await self._end_process()
            self._route.close()
            shutil.rmtree(self._files, ignore_errors=True)

    async def _live(self) -> None:
        await self._schedule()
        again = self.pod["spec"].get("restartPolicy", "Always") == "Always"
        backoff_s = _FIRST_BACKOFF_S
        while not self._deleting.is_set():
            image = await self._prepared()
            if image is None:
                return
            exit = await self._execute(image)
            if self._deleting.is_set():
                return
            state = containers.terminated(exit, self._started_at)
            if not again:
                await self._patch(state, phase="Failed" if exit.code else "Succeeded")
                await self._deleting.wait()
                return
            self._restarts += 1
            self._last = state
            await self._patch(state)
            if self._restarts == 1:
                continue  # the first time there is no waiting
            sentence = f"back-off {backoff_s}s restarting failed container=worker pod={self.name}"
            await self._patch(containers.waiting("CrashLoopBackOff", sentence))
            await self._pause(backoff_s)
            backoff_s = min(backoff_s * 2, _LONGEST_BACKOFF_S)

    # Before it runs.

    async def _schedule(self) -> None:
        kubelets, told = self._kubelets, False
        while not self._deleting.is_set():
            bound = self.pod["spec"].get("nodeName")
            self.node = kubelets.node(bound) if bound else kubelets.fitting(self.pod)
            if self.node is not None:
                if not bound:
                    await self._bind(self.node)
                return
            if not told:
                told = True
                sentence = f"0/{len(kubelets.nodes)} nodes are available: none fits the pod's node selector."
                unfit = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": sentence}
                unfit["lastTransitionTime"] = containers.now()
                await self._patch_status({"phase": "Pending", "conditions": [unfit]})
            await self._pause(_RETRY_S)

    async def _bind(self, node: Node) -> None:
        path = f"/api/v1/namespaces/{self.namespace}/pods/{self.name}/binding"
        metadata = {"name": self.name, "namespace": self.namespace, "uid": self.pod["metadata"]["uid"]}
        body = {"apiVersion": "v1", "kind": "Binding", "metadata": metadata}
        await self._asking(
            self._kubelets.api.request(
                "POST", path, {**body, "target": {"apiVersion": "v1", "kind": "Node", "name": node.name}}
            )
        )

    async def _prepared(self) -> Image | None:
        """Wait until the container can start; return its image, or None when the pod is deleted before."""
        shown: tuple[str, str] | None = None
        while not self._deleting.is_set():
            await self._node_up()
            name = self.pod["spec"]["containers"][0]["image"]
            image = self._kubelets.image(name)
            problem: tuple[str, str] | None = None
            if image is None or image.pull_error:
                error = image.pull_error if image is not None else "not found"
                tried = shown is not None and shown[0] in {"ErrImagePull", "ImagePullBackOff"}
                problem = (
                    ("ImagePullBackOff", f'Back-off pulling image "{name}": {error}')
                    if tried
                    else ("ErrImagePull", f'failed to pull and unpack image "{name}": {error}')
                )
            else:
                try:
                    await containers.mount(self._kubelets.api, self.pod, self._files)
                    await containers.environment_of(self._kubelets.api, self.pod)
                    if image.create_error:
                        problem = ("RunContainerError", image.create_error)
                except VolumeProblem as error:
                    problem = ("ContainerCreating", "")
                    if shown != problem:
                        await self._event("FailedMount", str(error))
                except ContainerProblem as error:
                    problem = ("CreateContainerConfigError", str(error))
                except ApiFailure as failure:  # its service account, or the pod, is gone or another one
                    problem = ("ContainerCreating", "")
                    if failure.status not in {HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT}:
                        raise
            if problem is None:
                return image
            if problem != shown:
                shown = problem
                await self._patch(containers.waiting(*problem), phase="Pending")
            await self._pause(_RETRY_S)
        return None

    # While it runs.

    async def _execute(self, image: Image) -> Exit:
        """Run the container until it ends, or was terminated because the pod is deleted."""
        if image.end_hidden_for and self._restarts:
            last, self._last = self._last, {}
            await self._patch(containers.running(), started=True)
            await self._pause(image.end_hidden_for)
            self._last = last
        command = self.pod["spec"]["containers"][0].get("command", [])
        environment = await containers.environment_of(self._kubelets.api, self.pod)
        if "reset" in command:
            work = self._clean_up(image, environment)
        elif "snapshot" in command:
            work = self._snapshot(image)
        elif self._kubelets.workers_run:
            kafka, streams = self._kafka(environment)
            disk = self._kubelets.disk(self.pod)
            self.worker = Worker(self.name, environment, self._files, image, streams, disk, kafka, self.attend)
            self.worker.freeze(frozen=self.frozen)
            work = self.worker.run()
        else:
            work = _idle()
        self._process = asyncio.create_task(work)
        self._process.add_done_callback(lambda _: self.attend())
        self._started_at = containers.now()
        await self._patch(containers.running(), started=True)
        try:
            self.shown_ready = False
            while not self._process.done() and not self._deleting.is_set():
                ready = self.worker.ready if self.worker is not None else True
                if ready != self.shown_ready and self._node_is_up():
                    self.shown_ready = ready
                    await self._patch(containers.running(), started=True, ready=ready)
                await self._attention.wait()
                self._attention.clear()
                await asyncio.wait({self._process}, timeout=_PROBE_S)
            return await self._ended()
        finally:
            await self._end_process()

    async def _ended(self) -> Exit:
        """Return how the process ended; terminate it first if necessary, and kill it after the grace period."""
        process = self._process
        assert process is not None
        await self._node_up()
        if not process.done() and not self._gone.is_set():
            if self.worker is not None:
                self.worker.terminate()
            grace_s = self.pod["metadata"].get("deletionGracePeriodSeconds", 30)
            done = asyncio.create_task(self._gone.wait())
            await asyncio.wait({process, done}, timeout=grace_s, return_when=asyncio.FIRST_COMPLETED)
            done.cancel()
        await self._node_up()
        if not process.done() or process.cancelled():
            return _KILLED
        return process.result()

    async def _clean_up(self, image: Image, environment: dict[str, str]) -> Exit:
        await asyncio.sleep(image.starts_after)
        if image.crash is not None:
            return Exit(image.exit_code, json.dumps(dict(zip(("reason", "message"), image.crash, strict=True))))
        _, streams = self._kafka(environment)
        streams.clean_up()
        return Exit(0)

    async def _snapshot(self, image: Image) -> Exit:
        await asyncio.sleep(image.snapshot_after)
        while not image.snapshot_may_end():  # noqa: ASYNC110 - another thread lets it end
            await asyncio.sleep(_RETRY_S)
        if image.crash is not None:
            return Exit(image.exit_code, json.dumps(dict(zip(("reason", "message"), image.crash, strict=True))))
        made: dict[str, object] = {
            "version": f"v-{self.name}", "base": "", "records": 9, "rows": 1234, "bytes": 5678, "seconds": 2.5
        }  # fmt: skip
        if "--catalog" in self.pod["spec"]["containers"][0]["command"]:
            tables = [{"store": store, "rows": 617, "undecodedKeys": 0, "undecodedValues": 3} for store in ("a", "b")]
            made |= {"tableCount": 2, "tables": tables}
        return Exit(0, json.dumps({"snapshot": made}))

    def _kafka(self, environment: dict[str, str]) -> tuple[str, Streams]:
        """The id of the Kafka cluster that its container reaches, and the data of its application there."""
        kafka = self._kubelets.kafka_of(self.namespace, environment["MILLPOND_BOOTSTRAP_SERVERS"])
        return kafka, self._kubelets.streams_on(kafka, environment["MILLPOND_APPLICATION_ID"])

    async def _end_process(self) -> None:
        if self._process is not None:
            self._process.cancel()
            with contextlib.suppress(asyncio.CancelledError, Exception):
                await self._process
        self._process = self.worker = None

    # Afterwards.

    async def _bury(self) -> None:
        await self._node_up()
        if self._gone.is_set():
            return
        preconditions = {"uid": self.pod["metadata"]["uid"]}
        api = self._kubelets.api
        await self._asking(
            api.delete("Pod", self.namespace, self.name, gracePeriodSeconds=0, preconditions=preconditions)
        )

    # Words.

    def _node_is_up(self) -> bool:
        return self.node is None or self.node.up.is_set()

    async def _node_up(self) -> None:
        if self.node is not None:
            await self.node.up.wait()
        if self._gone.is_set():
            raise _Gone

    async def _pause(self, seconds: float) -> None:
        """Let time pass, unless the pod is deleted."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds * random.uniform(0.9, 1.1)):
                await self._deleting.wait()

    async def _patch(
        self, state: Object, *, phase: str = "Running", started: bool = False, ready: bool = False
    ) -> None:
        container = self.pod["spec"]["containers"][0]
        status = {
            "name": container["name"],
            "image": container["image"],
            "imageID": "",
            "ready": ready,
            "started": started,
            "restartCount": self._restarts,
            "state": {each: state.get(each) for each in ("waiting", "running", "terminated")},
            "lastState": self._last,
        }
        if started:
            status["containerID"] = f"simulated://{self.worker.incarnation if self.worker else self.name}"
        if "running" in state:
            status["state"]["running"]["startedAt"] = self._started_at
        reason = "PodCompleted" if phase == "Succeeded" else "ContainersNotReady"
        await self._patch_status(
            {
                "phase": phase,
                "conditions": containers.conditions(self.pod.get("status", {}), ready=ready, reason=reason),
                "containerStatuses": [status],
                "podIP": self._kubelets.address(self.pod),
                "hostIP": "10.0.0.1",
                "startTime": self.pod.get("status", {}).get("startTime") or containers.now(),
            }
        )

    async def _patch_status(self, status: Object) -> None:
        await self._node_up()
        body = {"metadata": {"uid": self.pod["metadata"]["uid"]}, "status": status}
        api = self._kubelets.api
        async with self.writing:
            newest = await self._asking(api.patch("Pod", self.namespace, self.name, body, subresource="status"))
        if newest is not None:
            self.pod["status"] = newest["status"]

    async def _event(self, reason: str, message: str) -> None:
        metadata = self.pod["metadata"]
        involved = {"kind": "Pod", "apiVersion": "v1", "name": self.name, "namespace": self.namespace}
        await self._asking(
            self._kubelets.api.create(
                {
                    "apiVersion": "v1",
                    "kind": "Event",
                    "metadata": {"generateName": f"{self.name}.", "namespace": self.namespace},
                    "involvedObject": {**involved, "uid": metadata["uid"]},
                    "type": "Warning",
                    "reason": reason,
                    "message": message,
                    "source": {"component": "kubelet"},
                    "firstTimestamp": containers.now(),
                    "lastTimestamp": containers.now(),
                    "count": 1,
                }
            )
        )

    async def _asking(self, request):
        """Send a request to the API server.

        Raises:
            _Gone: this pod was deleted.
        """
        try:
            return await request
        except ApiFailure as failure:
            if failure.status in {HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT}:
                if self._gone.is_set() or failure.status == HTTPStatus.NOT_FOUND:
                    raise _Gone from failure
                return None
            raise


async def _idle() -> Exit:
    await asyncio.Event().wait()
    return Exit(0)
