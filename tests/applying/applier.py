"""An Applier on a real API server, for one StreamApp; the cache is fed by what is read, as watches would."""

from __future__ import annotations

import copy
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from millpond_operator.controllers.reconcile.applier import Applier
from millpond_operator.controllers.rollout.decide import Decision
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
    """Counts writes; of what is applied or deleted, those that were taken."""

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
    """What one test works with."""

    def __init__(self, client: CountingClient, raw: Object) -> None:
        self.client = client
        self.cache = Cache()
        self.now = 1000.0
        self.raw = raw
        self.applier = Applier(client, self.cache, SURROUNDINGS, lambda: self.now)

    @property
    def app(self) -> StreamApp:
        """The StreamApp as it is now."""
        return parse(self.raw)

    def change(self, **spec: Any) -> None:
        """What the person wants now."""
        self.raw = copy.deepcopy(self.raw)
        self.raw["spec"] |= spec
        self.raw["metadata"]["generation"] += 1

    async def see(self) -> None:
        """What watches show: all that has the label of the application."""
        for kind in WATCHED:
            items, version = await self.client.list(kind, self.app.namespace, labels=f"{APP}={self.app.name}")
            self.cache.resynced(kind, items, version, self.app.namespace)

    def decision(self, replicas: int = 0, revision: str = "", current: str = "") -> Decision:
        """To run so many workers."""
        wanted = revision_of(pod_template(self.app, SURROUNDINGS))
        return Decision(AppPhase.RUNNING, revision or wanted, replicas, AppStatus(current_revision=current))

    async def make_set(self, decision: Decision | None = None) -> bool:
        """Apply the StatefulSet."""
        template = pod_template(self.app, SURROUNDINGS)
        return await self.applier.stateful_set(self.app, decision or self.decision(), template, revision_of(template))

    async def pass_by(self, decision: Decision | None = None) -> bool:
        """Apply the StatefulSet as it is seen now, and once more if somebody else wrote it meanwhile."""
        while True:
            await self.see()
            try:
                return await self.make_set(decision)
            except Conflict:
                continue

    async def writes_of(self, work: Callable[[], Any]) -> int:
        """How many writes something takes."""
        before = self.client.writes
        await work()
        return self.client.writes - before


@asynccontextmanager
async def bench_of(server: SharedApiServer, raw: Object) -> AsyncIterator[Bench]:
    """A bench for a StreamApp as the API server gave it."""
    async with CountingClient(connection_of(server.admin)) as client:
        yield Bench(client, raw)
