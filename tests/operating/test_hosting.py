"""The coordinator inside the operator: terms, limits and deleted StreamApps."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any, Self

import msgspec
import pytest

from millpond.protocol import (
    Answer,
    Epoch,
    Heartbeat,
    Refusal,
    RefusalCode,
    SubtopologySummary,
    TopologySummary,
    clock,
)
from millpond_operator.controllers.coordinator_host.assignment_store import most_tasks
from millpond_operator.controllers.coordinator_host.host import CoordinatorHost
from millpond_operator.coordinator import KafkaClaim, StoreError
from millpond_operator.kubernetes import Cache, Object, Unavailable, kinds
from millpond_operator.kubernetes.cache import Key
from millpond_operator.resources import APP, StreamApp, view_of
from tests.kubernetes.support import until
from tests.resources.examples import stream_app
from tests.simulation.running import simulate

EPOCH = 1_700_000_000
KEY = ("shop", "delays")
CLAIM = KafkaClaim("K")


class Api:
    """An API server that accepts everything unless it is unavailable."""

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
    """A served StreamApp and one of its workers."""

    def __init__(self, api: Api | None = None, **spec: Any) -> None:
        self.api = api or Api()
        self.cache = Cache()
        self.changes: list[tuple[str, str]] = []
        self.hosting = CoordinatorHost(self.api, self.cache, EPOCH, lambda *key: self.changes.append(key))  # type: ignore[arg-type]
        self.app: StreamApp = stream_app(**spec)
        self.sequence = self.version = 0
        self.replicas = 1

    async def __aenter__(self) -> Self:
        await self.hosting.serve(self.app, pinned="", claim=CLAIM)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.hosting.stop()

    @property
    def term(self) -> int:
        found = self.hosting.coordinator.application("delays", "shop/delays")
        assert found is not None
        return found.engine.epoch.term

    def has_pods(
        self, uid: str = "p1", owner: str | None = "s1", set_owner: str | None = None, ends_in_s: float | None = None
    ) -> None:
        """Put its StatefulSet and a pod into the cache; one that is being deleted, if its grace period has an end."""
        self.version += 1
        where = {"namespace": "shop", "resourceVersion": str(self.version)}
        controls = {"kind": "StatefulSet", "name": "delays", "uid": owner, "controller": True}
        owns = {"kind": "StreamApp", "name": "delays", "uid": set_owner or self.app.uid, "controller": True}
        pod: Object = {
            "name": "delays-0",
            "uid": uid,
            "ownerReferences": [controls] if owner else [],
            "labels": {APP: "delays"},
        }
        if ends_in_s is not None:
            ends = clock.now() + timedelta(seconds=ends_in_s)
            pod["deletionTimestamp"] = ends.strftime("%Y-%m-%dT%H:%M:%SZ")
        whole = {"name": "delays", "uid": "s1", "ownerReferences": [owns]}
        self.cache.put(kinds.STATEFUL_SET, {"metadata": where | whole, "spec": {"replicas": self.replicas}})
        self.cache.put(kinds.POD, {"metadata": where | pod})

    def known(self, uid: str = "p1") -> bool:
        """Return whether a token that is bound to its pod counts as a worker's."""
        application = self.hosting._application_of("shop", "delays")
        return application == "delays" and self.hosting._is_worker("shop", "delays", "delays-0", uid)

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
            kafka_cluster=CLAIM.cluster,
            **fields,
        )
        found = self.hosting.coordinator.application("delays", "shop/delays")
        assert found is not None
        return await found.heartbeat(heartbeat)


def served(scenario: Callable[[Hosted], Any], **spec: Any) -> None:
    async def with_hosted() -> None:
        async with Hosted(**spec) as hosted:
            await scenario(hosted)

    simulate(with_hosted())


def test_worker_of_a_later_coordinator_raises_the_term() -> None:
    """The Lease decides who leads: the next assignment has a later term than the worker knows."""

    async def scenario(hosted: Hosted) -> None:
        refusal = await hosted.beat(epoch=Epoch(EPOCH + 5), coordinator="z")
        assert isinstance(refusal, Refusal)
        assert hosted.changes == [KEY]
        hosted.api.away = True
        for _ in range(2):
            with pytest.raises(StoreError, match="away"):
                await hosted.hosting.serve(hosted.app, pinned="", claim=CLAIM)
        hosted.api.away = False
        await hosted.hosting.serve(hosted.app, pinned="", claim=CLAIM)
        assert hosted.term > EPOCH + 5
        assert isinstance(await hosted.beat(epoch=Epoch(EPOCH + 5), coordinator="z"), Answer)

    served(scenario)


def test_worker_cannot_exhaust_the_terms() -> None:
    """It can exhaust them neither at once nor step by step."""

    async def scenario(hosted: Hosted) -> None:
        refusal = await hosted.beat(epoch=Epoch(2**63 - 1), coordinator="z")
        assert isinstance(refusal, Refusal)
        assert refusal.code is RefusalCode.NOT_LEADING
        assert not hosted.changes
        for _ in range(1_100):
            await hosted.beat(epoch=Epoch(hosted.term), coordinator="z")
            await hosted.hosting.serve(hosted.app, pinned="", claim=CLAIM)
        assert EPOCH + 900 < hosted.term <= EPOCH + 1_001
        writes = len(hosted.api.applied)
        await hosted.beat(epoch=Epoch(hosted.term), coordinator="z")
        await hosted.hosting.serve(hosted.app, pinned="", claim=CLAIM)
        assert len(hosted.api.applied) == writes

    served(scenario)


def test_a_streamapp_that_is_deleted_leaves_nothing_behind() -> None:
    """A new StreamApp of the same name begins with the leader's term."""

    async def scenario(hosted: Hosted) -> None:
        await hosted.beat(epoch=Epoch(EPOCH + 500), coordinator="z")
        await hosted.hosting.forget(*KEY)
        assert hosted.hosting.coordinator.application("delays", "shop/delays") is None
        for found in list(hosted.cache.all(kinds.STREAM_ASSIGNMENT)):
            hosted.cache.remove(kinds.STREAM_ASSIGNMENT, found)
        await hosted.hosting.serve(hosted.app, pinned="", claim=CLAIM)
        assert hosted.term <= EPOCH + 1

    served(scenario)


@pytest.mark.slow
def test_a_topology_whose_assignment_could_not_be_written_is_refused() -> None:
    """The StreamApp reports why; the largest admitted topology fits, whatever its standbys."""

    async def scenario(hosted: Hosted) -> None:
        most = most_tasks(hosted.app.spec.standby_replicas)
        refusal = await hosted.beat(most + 1)
        assert isinstance(refusal, Refusal)
        refused = hosted.hosting.rejected(hosted.app)["delays-0"]
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


def test_application_that_is_not_served_any_more_is_served_again() -> None:
    """Its workers are not admitted, which requests a pass, and the pass serves it."""

    async def scenario(hosted: Hosted) -> None:
        hosted.has_pods()
        assert isinstance(await hosted.beat(), Answer)
        assert hosted.known()
        hosted.changes.clear()
        await hosted.hosting.coordinator.remove("delays", "shop/delays")
        assert not hosted.known()
        assert set(hosted.changes) == {KEY}
        await hosted.hosting.serve(hosted.app, pinned="", claim=CLAIM)
        assert hosted.known()
        assert isinstance(await hosted.beat(), Answer)

    served(scenario)


def test_two_applications_of_one_id_are_served_apart() -> None:
    """They are in one namespace on two Kafka clusters; forgetting one does not affect the other."""

    async def scenario(hosted: Hosted) -> None:
        other = replace(stream_app(applicationId="delays"), name="other", uid="2")
        await hosted.hosting.serve(other, pinned="", claim=KafkaClaim("L"))
        assert isinstance(await hosted.beat(), Answer)
        view = hosted.hosting.view(other)
        assert view is not None
        assert not view.members
        await hosted.hosting.forget("shop", "other")
        assert hosted.hosting.view(other) is None
        assert isinstance(await hosted.beat(), Answer)

    served(scenario)


def test_worker_is_a_pod_of_its_own_statefulset() -> None:
    """A former pod of that name, a pod without an owner and a pod of another StatefulSet do not count."""

    async def scenario(hosted: Hosted) -> None:
        assert not hosted.known(), "the pod is not known"
        hosted.has_pods(owner=None)
        assert not hosted.known()
        hosted.has_pods(owner="another")
        assert not hosted.known()
        hosted.has_pods(set_owner="another")
        assert not hosted.known()
        hosted.replicas = 0
        hosted.has_pods()
        assert not hosted.known(), "it is one too many"
        hosted.replicas = 1
        hosted.has_pods()
        assert not hosted.known("another")
        assert hosted.known()
        hosted.has_pods(owner=None)
        assert hosted.known(), "its StatefulSet was deleted around it and is recreated"
        hosted.has_pods(uid="p2", owner=None)
        assert not hosted.known("p2")
        await hosted.hosting.serve(hosted.app, pinned="", claim=CLAIM)
        assert not hosted.known(), "it is gone"

    served(scenario)


def test_token_of_a_pod_that_was_deleted_is_nobodys_at_once() -> None:
    """No pass over the StreamApp is needed. A pod of a lost node counts as deleted a minute after its grace period."""

    async def scenario(hosted: Hosted) -> None:
        hosted.has_pods()
        assert hosted.known()
        hosted.cache.remove(kinds.POD, Key("shop", "delays-0"), hosted.version + 1)
        assert not hosted.known()
        hosted.version += 1
        hosted.has_pods(ends_in_s=30)
        assert hosted.known()
        await asyncio.sleep(88)  # as in the API server, a minute later
        assert hosted.known()
        await asyncio.sleep(3)
        assert not hosted.known()
        hosted.has_pods(ends_in_s=-90)  # to a leader that did not know it, too
        hosted.hosting._hosted[KEY].accepted.clear()
        assert not hosted.known()
        assert not hosted.known()

    served(scenario)
