"""An Applier on a real API server, for one StreamApp; reads fill the cache as watches would."""

from __future__ import annotations

import copy
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from millpond_operator.controllers.reconcile.applier import Applier
from millpond_operator.controllers.rollout.model import Decision
from millpond_operator.controllers.rollout.status import AppPhase, AppStatus
from millpond_operator.kubernetes import Cache, Client, Conflict, Kind, Object, kinds
from millpond_operator.resources import APP, StreamApp, Surroundings, parse, pod_template, revision_of
from tests.cluster.apiserver import SharedApiServer
from tests.kubernetes.support import connection_of

SURROUNDINGS = Surroundings("https://millpond-coordinator.millpond-system.svc:7070", "-----BEGIN", 4, "millpond-system")
WATCHED = (
    kinds.SERVICE_ACCOUNT,
    kinds.CONFIG_MAP,
    kinds.SERVICE,
    kinds.POD_DISRUPTION_BUDGET,
    kinds.NETWORK_POLICY,
    kinds.STATEFUL_SET,
    kinds.CONTROLLER_REVISION,
    kinds.JOB,
    kinds.STREAM_ASSIGNMENT,
    kinds.PERSISTENT_VOLUME_CLAIM,
)


class CountingClient(Client):
    """A client that counts writes; of applies and deletes, only those that were accepted."""

    writes: int = 0

    async def apply(self, kind: Kind, object: Object, **options: Any) -> Object:
        answer = await super().apply(kind, object, **options)
        self.writes += 1
        return answer

    async def patch(self, *arguments: Any, **options: Any) -> Object:
        self.writes += 1
        return await super().patch(*arguments, **options)

    async def delete(self, *arguments: Any, **options: Any) -> Object | None:
        answer = await super().delete(*arguments, **options)
        self.writes += 1
        return answer


class Bench:
    """The client, cache and applier of one test."""

    def __init__(self, client: CountingClient, raw: Object) -> None:
        self.client = client
        self.cache = Cache()
        self.now = 1000.0
        self.raw = raw
        self.applier = Applier(client, self.cache, SURROUNDINGS, lambda: self.now)

    @property
    def app(self) -> StreamApp:
        """The current StreamApp."""
        return parse(self.raw)

    def change(self, **spec: Any) -> None:
        """Change the specification as a user does."""
        self.raw = copy.deepcopy(self.raw)
        self.raw["spec"] |= spec
        self.raw["metadata"]["generation"] += 1

    async def see(self) -> None:
        """Fill the cache with all objects that have the label of the application, as watches do."""
        for kind in WATCHED:
            items, version = await self.client.list(kind, self.app.namespace, labels=f"{APP}={self.app.name}")
            self.cache.resynced(kind, items, version, self.app.namespace)

    def decision(self, replicas: int = 0, revision: str = "", current: str = "") -> Decision:
        """Return a decision to run this many workers."""
        wanted = revision_of(pod_template(self.app, SURROUNDINGS))
        return Decision(AppPhase.RUNNING, revision or wanted, replicas, AppStatus(current_revision=current))

    async def make_set(self, decision: Decision | None = None) -> bool:
        """Apply the StatefulSet."""
        template = pod_template(self.app, SURROUNDINGS)
        return await self.applier.stateful_set(self.app, decision or self.decision(), template, revision_of(template))

    async def pass_by(self, decision: Decision | None = None) -> bool:
        """Apply the StatefulSet over its current version, and again after a conflict."""
        while True:
            await self.see()
            try:
                return await self.make_set(decision)
            except Conflict:
                continue

    async def writes_of(self, work: Callable[[], Any]) -> int:
        """Return how many writes an action takes."""
        before = self.client.writes
        await work()
        return self.client.writes - before


@asynccontextmanager
async def bench_of(server: SharedApiServer, raw: Object) -> AsyncIterator[Bench]:
    """Provide a bench for a StreamApp of the API server."""
    async with CountingClient(connection_of(server.admin)) as client:
        yield Bench(client, raw)
