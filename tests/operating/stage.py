"""A cluster with one namespace: nodes, an operator behind a proxy that injects faults, and users of StreamApps.

with Stage(world, namespace, tmp_path) as stage:
    stage.start()
    app = stage.app("delays")
    app.apply(replicas=2)
    app.runs("delays:1", 2)
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

from tests.cluster.api import Object
from tests.cluster.calls import Call, Match
from tests.cluster.faultproxy import FaultProxy
from tests.cluster.nodes.images import Image, topology
from tests.cluster.nodes.kubelets import Kubelets
from tests.cluster.nodes.streams import Streams
from tests.cluster.waiting import unchanged, wait_for
from tests.operating.final_state import difference, final_state
from tests.operating.operators import Operator, grant_rights
from tests.operating.world import World

__all__ = ("LEASE", "App", "Stage", "about")

LEASE = "millpond-operator"
_DEPLOYMENT_S = 0.05
#: To describe all that there is of an application takes longer than a request.
_ENDING_POLL_S = 0.5


class Stage:
    """The namespace and everything that runs in it.

    Args:
        world: that it is in.
        namespace: the operator's and the applications'.
        directory: for kubeconfig and log.
        settings: of the operator, without their prefix.
        tasks: of each application.

    Attributes:
        crashed: whether `crash` has come to its end since this was last set to False.
    """

    def __init__(
        self,
        world: World,
        namespace: str,
        directory: Path,
        settings: dict[str, str] | None = None,
        tasks: int = 4,
    ) -> None:
        self.api = world.api
        self.namespace = namespace
        self.world = world
        self._directory = directory
        self._settings = settings
        self.tasks = tasks
        self.crashed = False
        self.kubelets = Kubelets(world.background, world.server.admin, namespace, operator_namespace=namespace)
        for tag in ("1", "2"):
            self.kubelets.images[f"delays:{tag}"] = Image(topology(tasks))
        self.kubelets.images["delays:bad"] = Image(topology(tasks, hash="h2", store="others"))
        self.proxies: list[FaultProxy] = []
        self.operators: list[Operator] = []

    def __enter__(self) -> Self:
        grant_rights(self.api, self.namespace)
        self.kubelets.__enter__()
        self.add_operator()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        for operator in self.operators:
            operator.__exit__()
            if kind is not None:
                print(f"\n{operator.log}:\n{operator.tail(100)}")
        for proxy in self.proxies:
            proxy.__exit__()
        self.kubelets.__exit__()

    def add_operator(self) -> Operator:
        """Add an operator behind a proxy of its own, without starting it."""
        proxy = FaultProxy(self.world.background, self.world.server.admin, self.world.server.authority).__enter__()
        self.proxies.append(proxy)
        name = f"operator-{len(self.operators)}"
        operator = self.world.operator(self.api, proxy.access, self.namespace, self._directory, self._settings, name)
        self.operators.append(operator)
        return operator

    @property
    def proxy(self) -> FaultProxy:
        """The proxy of the first operator."""
        return self.proxies[0]

    @property
    def operator(self) -> Operator:
        """The first operator."""
        return self.operators[0]

    def start(self) -> None:
        """Start the first operator, and wait until it leads."""
        self.operator.start()
        self.operator.await_leading()

    async def crash(self) -> None:
        """Kill the operator and start it again, without waiting for its Lease to expire."""
        await asyncio.to_thread(self.operator.kill)
        await self.api.inside.delete("Lease", self.namespace, LEASE)
        self.proxy.resume()
        await asyncio.to_thread(self.operator.start)
        self.crashed = True

    @contextlib.contextmanager
    def kept_running(self) -> Iterator[None]:
        """Restart operators that end, as a Deployment does."""

        async def keep() -> None:
            while True:
                await asyncio.sleep(_DEPLOYMENT_S)
                if not self.operator.alive:
                    await asyncio.to_thread(self.operator.start)

        keeping = self.world.background.submit(keep())
        try:
            yield
        finally:
            keeping.cancel()

    def app(self, name: str) -> App:
        """Return a StreamApp that does not exist yet."""
        return App(self, name)

    def violations(self) -> list[str]:
        """Return the violated invariants."""
        return self.kubelets.violations()


class App:
    """A StreamApp and its user."""

    def __init__(self, stage: Stage, name: str) -> None:
        self.stage = stage
        self.name = name
        self.spec: dict[str, Any] = {
            "image": "delays:1",
            "topology": "app:delays",
            "replicas": 2,
            "kafka": {"bootstrapServers": "kafka:9092"},
            "rollout": {"minReady": "300ms"},
        }

    @property
    def streams(self) -> Streams:
        """Its state in Kafka."""
        return self.stage.kubelets.streams(self.stage.namespace, self.name)

    def apply(self, **spec: Any) -> None:
        """Create it, or change fields of its spec."""
        self.spec |= spec
        self.stage.api.apply(
            {
                "apiVersion": "millpond.dev/v1alpha1",
                "kind": "StreamApp",
                "metadata": {"name": self.name, "namespace": self.stage.namespace},
                "spec": self.spec,
            }
        )

    def delete(self) -> None:
        """Request its deletion."""
        self.stage.api.delete("StreamApp", self.stage.namespace, self.name)

    def find(self) -> Object | None:
        """Return the StreamApp; None when it does not exist."""
        return self.stage.api.find("StreamApp", self.stage.namespace, self.name)

    def status(self) -> Object:
        """Return the status for the current spec; empty until the operator has written it."""
        found = self.find() or {}
        status = found.get("status", {})
        return status if status.get("observedGeneration") == found.get("metadata", {}).get("generation") else {}

    def condition(self, type: str) -> Object:
        """Return one of its conditions."""
        return next((each for each in self.status().get("conditions", ()) if each["type"] == type), {})

    def runs(self, image: str | None = None, workers: int | None = None) -> None:
        """Wait until it is Ready with an image and a number of workers, by default those of its spec."""
        image, workers = image or self.spec["image"], self.spec["replicas"] if workers is None else workers

        def running() -> bool:
            status = self.status()
            conditions = {each["type"]: each["status"] for each in status.get("conditions", ())}
            return (
                conditions.get("Ready") == "True"
                and status["workers"] == f"{workers}/{workers}"
                and status["replicas"] == workers
                and status["image"] == image
                and status.get("currentRevision") == status.get("targetRevision")
                and len(self.streams.running()) == self.stage.tasks
            )

        wait_for(running, f"{self.name} runs {image} with {workers} workers", otherwise=self.status)

    def phase_is(self, phase: str) -> None:
        """Wait for a phase."""
        wait_for(lambda: self.status().get("phase") == phase, f"{self.name} is {phase}", otherwise=self.status)

    def ending(self) -> Object:
        """Return its final state, see `final_state.final_state`."""
        return final_state(self.stage.api, self.stage.namespace, self.name)

    def rest(self) -> Object:
        """Wait until nothing has changed for a while; return the final state.

        Returns:
            Its ending.
        """
        return unchanged(self.ending, self.name)

    def ends_like(self, wanted: Object) -> None:
        """Wait until its final state is that of another run."""
        wait_for(
            lambda: self.ending() == wanted,
            f"{self.name} ends like any other",
            poll_s=_ENDING_POLL_S,
            otherwise=lambda: "\n".join(difference(wanted, self.ending())),
        )


def about(app: App) -> Match:
    """Return a match for requests about an application."""

    def match(call: Call) -> bool:
        return call.name == app.name or call.name.startswith((f"{app.name}-", f"{app.name}."))

    return match
