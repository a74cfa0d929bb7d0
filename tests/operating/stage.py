"""A cluster of one namespace with nodes, an operator behind a proxy that makes trouble, and users of StreamApps.

with Stage(api, background, api_server, namespace, tmp_path) as stage:
    stage.start()
    app = stage.app("delays")
    app.apply(replicas=2)
    app.runs("delays:1", 2)
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Self, TypeVar

from tests.cluster.api import Api, Object
from tests.cluster.apiserver import SharedApiServer
from tests.cluster.background import Background
from tests.cluster.calls import Call, Match
from tests.cluster.faultproxy import FaultProxy
from tests.cluster.images import Image, topology
from tests.cluster.kubelets import Kubelets
from tests.cluster.streams import Streams
from tests.operating.endings import difference, ending
from tests.operating.process import PATIENCE_S, Operator, grant_rights

__all__ = ("App", "Stage", "about", "unchanged", "wait_for")

LEASE = "millpond-operator"
POLL_S = 0.2
T = TypeVar("T")
#: What has not changed for so long has come to rest: controllers pause between two steps.
_REST_S = 3.0


class Stage:
    """The namespace and all that works in it.

    Args:
        api: a user's, with all rights.
        background: for what serves and simulates.
        api_server: the real one.
        namespace: the operator's and the applications'.
        directory: for kubeconfig and log.
        settings: of the operator, without their prefix.
        tasks: of each application.
        tick_s: how often a worker looks for news.

    Attributes:
        crashed: set when `crash` has come to its end.
    """

    def __init__(
        self,
        api: Api,
        background: Background,
        api_server: SharedApiServer,
        namespace: str,
        directory: Path,
        settings: dict[str, str] | None = None,
        tasks: int = 4,
        tick_s: float = 0.02,
    ) -> None:
        self.api = api
        self.namespace = namespace
        self._background = background
        self._server = api_server
        self._directory = directory
        self._settings = settings
        self.tasks = tasks
        self.crashed = threading.Event()
        self.kubelets = Kubelets(background, api_server.admin, namespace, operator_namespace=namespace, tick_s=tick_s)
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
            operator.kill()
            if kind is not None:
                print(f"\n{operator.log}:\n{operator.tail(100)}")
        for proxy in self.proxies:
            proxy.__exit__()
        self.kubelets.__exit__()

    def add_operator(self) -> Operator:
        """Have one more operator, which is not started, behind a proxy of its own."""
        proxy = FaultProxy(self._background, self._server.admin, self._server.authority).__enter__()
        self.proxies.append(proxy)
        name = f"operator-{len(self.operators)}"
        operator = Operator(self.api, proxy.access, self.namespace, self._directory, self._settings, name)
        self.operators.append(operator)
        return operator

    @property
    def proxy(self) -> FaultProxy:
        """Before the first operator."""
        return self.proxies[0]

    @property
    def operator(self) -> Operator:
        """The first one."""
        return self.operators[0]

    def start(self) -> None:
        """Start the first operator, and wait until it leads."""
        self.operator.start()
        self.operator.await_leading()

    def crash(self) -> None:
        """Kill the operator, and start it again; the lease of the dead is not waited for."""
        self.operator.kill()
        self.api.delete("Lease", self.namespace, LEASE)
        self.proxy.resume()
        self.operator.start()
        self.crashed.set()

    @contextlib.contextmanager
    def kept_running(self) -> Iterator[None]:
        """As a Deployment does: an operator that ended starts again."""
        over = threading.Event()

        def keep() -> None:
            while not over.wait(0.05):
                if not self.operator.alive:
                    self.operator.start()

        keeper = threading.Thread(target=keep, name="deployment")
        keeper.start()
        try:
            yield
        finally:
            over.set()
            keeper.join()

    def app(self, name: str) -> App:
        """One that does not exist yet."""
        return App(self, name)

    def violations(self) -> list[str]:
        """What must never be."""
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
        """What it has in Kafka."""
        return self.stage.kubelets.streams(self.stage.namespace, self.name)

    def apply(self, **spec: Any) -> None:
        """Create it, or change these fields of its spec."""
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
        """Ask for its deletion."""
        self.stage.api.delete("StreamApp", self.stage.namespace, self.name)

    def find(self) -> Object | None:
        """As it is."""
        return self.stage.api.find("StreamApp", self.stage.namespace, self.name)

    def status(self) -> Object:
        """As the operator wrote it for the spec as it is now; empty until it did."""
        found = self.find() or {}
        status = found.get("status", {})
        return status if status.get("observedGeneration") == found.get("metadata", {}).get("generation") else {}

    def condition(self, type: str) -> Object:
        """One of its conditions."""
        return next((each for each in self.status().get("conditions", ()) if each["type"] == type), {})

    def runs(self, image: str | None = None, workers: int | None = None) -> None:
        """Wait until it is Ready, with an image and so many workers, by default those of its spec."""
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
        """See `endings.ending`."""
        return ending(self.stage.api, self.stage.namespace, self.name)

    def rest(self) -> Object:
        """Wait until nothing has changed for a while.

        Returns:
            Its ending.
        """
        return unchanged(self.ending, self.name)

    def ends_like(self, wanted: Object) -> None:
        """Wait until everything is as it was another time."""
        wait_for(
            lambda: self.ending() == wanted,
            f"{self.name} ends like any other",
            otherwise=lambda: "\n".join(difference(wanted, self.ending())),
        )


def about(app: App) -> Match:
    """What is asked for about an application."""

    def match(call: Call) -> bool:
        return call.name == app.name or call.name.startswith((f"{app.name}-", f"{app.name}."))

    return match


def unchanged(look: Callable[[], T], what: str) -> T:
    """Wait until something has not changed for a while.

    Args:
        look: asks for it.
        what: in words.

    Returns:
        What it is.

    Raises:
        AssertionError: it does not come to that.
    """
    found, since, deadline = look(), time.monotonic(), time.monotonic() + PATIENCE_S
    while time.monotonic() - since < _REST_S:
        assert time.monotonic() < deadline, f"{what} does not come to rest"
        time.sleep(POLL_S)
        if (now := look()) != found:
            found, since = now, time.monotonic()
    return found


def wait_for(
    condition: Callable[[], object],
    what: str,
    seconds: float = PATIENCE_S,
    otherwise: Callable[[], object] = lambda: "",
    poll_s: float = POLL_S,
) -> None:
    """Wait until a condition holds that takes requests to find out.

    Args:
        condition: what.
        what: in words.
        seconds: how long.
        otherwise: what there is instead.
        poll_s: how often it is looked at; what is only passing wants more than others.

    Raises:
        AssertionError: it does not.
    """
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"waited {seconds} s in vain: {what}\n{otherwise()}"
        time.sleep(poll_s)
