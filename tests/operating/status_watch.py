"""Compares what a simulated StreamApp reports with what its nodes, its workers and Kafka know.

with Watch(world, namespace, "delays", kubelets, tasks=4) as watch:
    ...
assert not false_reports(watch.moments)
"""

from __future__ import annotations

import asyncio
from typing import Self

from millpond.protocol import Role, clock
from tests.cluster.api import Object
from tests.cluster.nodes.kubelets import Kubelets
from tests.operating.world import World
from tests.support.measuring.status_accuracy import Moment, is_ready

__all__ = ("Watch",)

_LOOK_S = 0.1


class Watch:
    """Samples ten times a second during the `with` block.

    Args:
        world: that the application is in.
        namespace: of it.
        name: of it.
        kubelets: that its pods are on.
        tasks: it has.
    """

    def __init__(self, world: World, namespace: str, name: str, kubelets: Kubelets, tasks: int) -> None:
        self._world = world
        self._namespace = namespace
        self._name = name
        self._kubelets = kubelets
        self._tasks = tasks
        self.moments: list[Moment] = []

    def __enter__(self) -> Self:
        self._looking = self._world.background.submit(self._look())
        return self

    def __exit__(self, *_: object) -> None:
        self._looking.cancel()

    async def _look(self) -> None:
        api = self._world.api.inside
        while True:
            app = await api.find("StreamApp", self._namespace, self._name)
            pods = await api.list(
                "Pod", self._namespace, f"millpond.dev/app={self._name},app.kubernetes.io/component=worker"
            )
            if app is not None and app.get("status", {}).get("conditions"):
                self.moments.append(self._seen(app, pods))
            await asyncio.sleep(_LOOK_S)

    def _seen(self, app: Object, pods: list[Object]) -> Moment:
        spec, status = app["spec"], app["status"]
        workers = self._kubelets.workers(self._namespace)
        alive = {
            name: worker for name, worker in workers.items() if name.startswith(f"{self._name}-") and not worker.frozen
        }
        ready = [pod for pod in pods if is_ready(pod) and pod["metadata"]["name"] in alive]
        running = {
            task: name
            for task, name in self._kubelets.streams(self._namespace, self._name).running().items()
            if name in alive
        }
        copied = {
            task
            for name, worker in alive.items()
            for task, role in worker.tasks.items()
            if role is not Role.ACTIVE and running.get(task) != name
        }
        wanted = 0 if spec.get("suspended") else spec["replicas"]
        images = {pod["spec"]["containers"][0]["image"] for pod in pods}
        told = {each["type"]: each["status"] for each in status["conditions"]}
        return Moment(
            clock.monotonic(),
            {**told, "phase": status.get("phase", "")},
            len(ready),
            wanted,
            len(running),
            len(copied),
            self._tasks,
            len(pods) == wanted and images <= {spec["image"]},
        )
