"""The coordinator inside the operator: terms, limits, and what is forgotten."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

import msgspec
import pytest

from millpond.protocol import Answer, Epoch, Heartbeat, Refusal, RefusalCode, SubtopologySummary, TopologySummary
from millpond_operator.controllers.assignments import most_tasks
from millpond_operator.controllers.hosting import Hosting
from millpond_operator.coordinator import StoreError
from millpond_operator.kubernetes import Cache, Object, Unavailable, kinds
from millpond_operator.resources import StreamApp, view_of
from tests.kubernetes.support import until
from tests.resources.examples import stream_app
from tests.simulation.running import simulate

EPOCH = 1_700_000_000
KEY = ("shop", "delays")


class Api:
    """Applies whatever it is given, unless it is away."""

    def __init__(self) -> None:
        self.applied: list[Object] = []
        self.away = False

    async def apply(self, _kind: object, object: Object) -> Object:
        if self.away:
            raise Unavailable("away")
        self.applied.append(object)
        metadata = object["metadata"] | {"resourceVersion": str(len(self.applied))}
        return object | {"metadata": metadata}


class Hosted:
    """A StreamApp that is served, and one of its workers."""

    def __init__(self, api: Api | None = None, **spec: Any) -> None:
        self.api = api or Api()
        self.cache = Cache()
        self.changes: list[tuple[str, str]] = []
        self.hosting = Hosting(self.api, self.cache, EPOCH, lambda *key: self.changes.append(key))  # type: ignore[arg-type]
        self.app: StreamApp = stream_app(**spec)
        self.sequence = 0

    async def __aenter__(self) -> Self:
        await self.hosting.serve(self.app, pinned="")
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.hosting.stop()

    @property
    def term(self) -> int:
        found = self.hosting.coordinator.application("delays", "shop")
        assert found is not None
        return found.engine.epoch.term

    async def beat(self, partitions: int = 4, **fields: Any) -> Answer | Refusal:
        self.sequence += 1
        topology = TopologySummary("h1", (SubtopologySummary(0, partitions, True, ("s",), {"in": partitions}),))
        heartbeat = Heartbeat(
            application="delays",
            worker="delays-0",
            incarnation="i",
            sequence=self.sequence,
            topology_hash="h1",
            topology=topology,
            **fields,
        )
        found = self.hosting.coordinator.application("delays", "shop")
        assert found is not None
        return await found.heartbeat(heartbeat)


def served(scenario: Callable[[Hosted], Any], **spec: Any) -> None:
    async def with_hosted() -> None:
        async with Hosted(**spec) as hosted:
            await scenario(hosted)

    simulate(with_hosted())


def test_worker_of_a_later_coordinator_raises_the_term() -> None:
    """The lease says who leads: the assignment goes on after what the worker knows, as soon as it can be written."""

    async def scenario(hosted: Hosted) -> None:
        refusal = await hosted.beat(epoch=Epoch(EPOCH + 5), coordinator="z")
        assert isinstance(refusal, Refusal)
        assert hosted.changes == [KEY]
        hosted.api.away = True
        for _ in range(2):
            with pytest.raises(StoreError, match="away"):
                await hosted.hosting.serve(hosted.app, pinned="")
        hosted.api.away = False
        await hosted.hosting.serve(hosted.app, pinned="")
        assert hosted.term > EPOCH + 5
        assert isinstance(await hosted.beat(epoch=Epoch(EPOCH + 5), coordinator="z"), Answer)

    served(scenario)


def test_worker_cannot_exhaust_the_terms() -> None:
    """Neither at once nor step by step."""

    async def scenario(hosted: Hosted) -> None:
        refusal = await hosted.beat(epoch=Epoch(2**63 - 1), coordinator="z")
        assert isinstance(refusal, Refusal)
        assert refusal.code is RefusalCode.NOT_LEADING
        assert not hosted.changes
        for _ in range(1_100):
            await hosted.beat(epoch=Epoch(hosted.term), coordinator="z")
            await hosted.hosting.serve(hosted.app, pinned="")
        assert EPOCH + 900 < hosted.term <= EPOCH + 1_001
        writes = len(hosted.api.applied)
        await hosted.beat(epoch=Epoch(hosted.term), coordinator="z")
        await hosted.hosting.serve(hosted.app, pinned="")
        assert len(hosted.api.applied) == writes

    served(scenario)


def test_a_streamapp_that_is_deleted_leaves_nothing_behind() -> None:
    """Not even one that waits to be served in a later term: a new one of that name begins with the leader's."""

    async def scenario(hosted: Hosted) -> None:
        await hosted.beat(epoch=Epoch(EPOCH + 500), coordinator="z")
        await hosted.hosting.forget(*KEY)
        assert hosted.hosting.coordinator.application("delays", "shop") is None
        for found in list(hosted.cache.all(kinds.STREAM_ASSIGNMENT)):
            hosted.cache.gone(kinds.STREAM_ASSIGNMENT, found)
        await hosted.hosting.serve(hosted.app, pinned="")
        assert hosted.term <= EPOCH + 1

    served(scenario)


def test_a_topology_whose_assignment_could_not_be_written_is_refused() -> None:
    """The StreamApp can say why; the largest one that is let in fits, whatever standbys it has."""

    async def scenario(hosted: Hosted) -> None:
        most = most_tasks(hosted.app.spec.standby_replicas)
        refusal = await hosted.beat(most + 1)
        assert isinstance(refusal, Refusal)
        refused = hosted.hosting.refused(hosted.app)["delays-0"]
        assert refused.message == refusal.message
        assert f"{most:,}" in refused.message
        assert isinstance(await hosted.beat(most), Answer)

        def assigned() -> bool:
            return len(view_of(hosted.api.applied[-1]).active) == most

        await until(assigned, "an assignment")
        assert len(msgspec.json.encode(hosted.api.applied[-1])) < 1_200_000

    # The session outlasts the planning, in which nothing is heard of the worker.
    served(scenario, sessionTimeout="10m")
    served(scenario, sessionTimeout="10m", standbyReplicas=1)
