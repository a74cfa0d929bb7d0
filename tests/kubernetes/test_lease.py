"""The lease: one leader at a time, a growing epoch, and a leader that stops in time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest

from millpond.protocol import clock
from millpond_operator.kubernetes import (
    Client,
    Forbidden,
    LeadershipLost,
    Lease,
    LeaseOptions,
    Unavailable,
)
from millpond_operator.kubernetes.cache import version_of
from millpond_operator.kubernetes.client import Object
from millpond_operator.kubernetes.kinds import LEASE, Kind
from millpond_operator.kubernetes.lease import EPOCH_ANNOTATION
from tests.cluster.api import Api
from tests.cluster.apiserver import SharedApiServer
from tests.kubernetes.support import connection_of, run, until

#: No test waits for the end of a lease: tests that need one set the clock forward.
BRISK = LeaseOptions(
    duration=timedelta(hours=2), renew_deadline=timedelta(hours=1), retry_period=timedelta(milliseconds=50)
)
DURATION_S, DEADLINE_S = BRISK.duration.total_seconds(), BRISK.renew_deadline.total_seconds()


class Clock:
    """A clock that tests set forward: the process looks as if it had been suspended."""

    def __init__(self) -> None:
        self.ahead = 0.0

    def __call__(self) -> float:
        return clock.boottime() + self.ahead


class Cut(Client):
    """A client whose requests tests can make fail."""

    away = False
    refused = 0

    async def get(self, kind: Kind, namespace: str | None, name: str) -> Object:
        self._refuse()
        return await super().get(kind, namespace, name)

    async def replace(self, kind: Kind, object: Object, subresource: str | None = None) -> Object:
        self._refuse()
        return await super().replace(kind, object, subresource)

    def _refuse(self) -> None:
        if self.away:
            self.refused += 1
            raise Unavailable("The API server is away.")


class Slow(Client):
    """A client whose writes succeed, but whose responses come too late."""

    slow = False
    written = 0

    async def replace(self, kind: Kind, object: Object, subresource: str | None = None) -> Object:
        answer = await super().replace(kind, object, subresource)
        self.written += 1
        if self.slow:
            await asyncio.sleep(60)
        return answer


@asynccontextmanager
async def client_of(server: SharedApiServer) -> AsyncIterator[Cut]:
    async with Cut(connection_of(server.admin)) as client:
        yield client


def lease(client: Client, namespace: str, identity: str, **options: Any) -> Lease:
    return Lease(client, namespace, identity, options=BRISK, **options)


def test_first_candidate_leads_while_the_second_waits(api_server: SharedApiServer, namespace: str) -> None:
    """A candidate waits for as long as the leader renews."""

    async def scenario() -> None:
        async with client_of(api_server) as client:
            clock = Clock()
            first, second = (
                lease(client, namespace, "first", clock=clock),
                lease(client, namespace, "second", clock=clock),
            )
            await first.acquire()
            for _ in range(10):
                assert not await second._try_to_acquire(0)
                clock.ahead += 0.8 * DEADLINE_S
                await first._renew()
                first.check()
                with pytest.raises(LeadershipLost, match="second is not the leader"):
                    second.check()

    run(scenario())


def test_dead_leader_is_replaced(api_server: SharedApiServer, namespace: str) -> None:
    """A lease that is not renewed is taken after its duration, not before; by then the old leader has stopped."""

    async def scenario() -> None:
        async with client_of(api_server) as client:
            clock = Clock()
            first, second = (
                lease(client, namespace, "first", clock=clock),
                lease(client, namespace, "second", clock=clock),
            )
            await first.acquire()
            assert not await second._try_to_acquire(0)
            clock.ahead = 0.5 * DURATION_S
            assert not await second._try_to_acquire(0)
            clock.ahead = DURATION_S
            assert not first.leads
            assert await second._try_to_acquire(0)
            assert second.epoch > first.epoch
            second.check()
            with pytest.raises(LeadershipLost):
                await first.hold()

    run(scenario())


def test_a_leader_that_ends_hands_over_at_once(api_server: SharedApiServer, namespace: str) -> None:
    """After a release the next process leads within a few tries, with a greater epoch; the old one writes nothing."""

    async def scenario() -> None:
        async with client_of(api_server) as client:
            changes: list[bool] = []
            first = lease(client, namespace, "first", on_change=changes.append)
            await first.acquire()
            second = lease(client, namespace, "second")
            waiting = asyncio.create_task(second.acquire())
            await asyncio.sleep(0)
            await first.release()
            await waiting
            assert second.epoch > first.epoch
            with pytest.raises(LeadershipLost):
                first.check()
            assert changes == [True, False]
            await first.release()
            second.check()

    run(scenario())


def test_leader_ending_during_a_renewal_hands_over_at_once(api_server: SharedApiServer, namespace: str) -> None:
    """The renewal succeeded without the leader knowing: the lease has another version than it expects."""

    async def scenario() -> None:
        async with Slow(connection_of(api_server.admin)) as client:
            first = lease(client, namespace, "first")
            await first.acquire()
            client.slow = True
            holding = asyncio.create_task(first.hold())
            await until(lambda: client.written, "it was renewed")
            holding.cancel()
            client.slow = False
            await first.release()
            found = await client.get(LEASE, namespace, "millpond-operator")
            assert not found["spec"]["holderIdentity"]

    run(scenario())


def test_frozen_leader_must_not_write(api_server: SharedApiServer, namespace: str) -> None:
    """A process that wakes up after its lease ended is stopped before its first write, and does not renew."""

    async def scenario() -> None:
        async with client_of(api_server) as client:
            clock = Clock()
            first = lease(client, namespace, "first", clock=clock)
            await first.acquire()
            clock.ahead = DEADLINE_S
            with pytest.raises(LeadershipLost, match=f"could not renew its lease for {DEADLINE_S:.0f} s"):
                first.check()
            before = await client.get(LEASE, namespace, "millpond-operator")
            with pytest.raises(LeadershipLost):
                await first.hold()
            assert await client.get(LEASE, namespace, "millpond-operator") == before

    run(scenario())


def test_a_leader_that_cannot_renew_stops_in_time(api_server: SharedApiServer, namespace: str) -> None:
    """It stops before another may lead; if the API server returns earlier, it continues."""

    async def scenario() -> None:
        async with client_of(api_server) as client:
            clock = Clock()
            first = lease(client, namespace, "first", clock=clock)
            await first.acquire()
            holding = asyncio.create_task(first.hold())
            client.away = True
            clock.ahead = 0.5 * DEADLINE_S
            await until(lambda: client.refused, "it tried to renew")
            client.away = False
            held = first._held
            await until(lambda: first._held is not held, "it was renewed")
            clock.ahead = DEADLINE_S
            await until(lambda: first._remaining_s() > 0.5 * DEADLINE_S, "it was renewed again")
            client.away = True
            clock.ahead += DEADLINE_S
            with pytest.raises(LeadershipLost):
                await holding
            assert not first.leads

    run(scenario())


def test_superseded_leader_stops_at_once(api_server: SharedApiServer, namespace: str) -> None:
    """When another process holds the lease, the leader does not wait for its own deadline."""

    async def scenario() -> None:
        async with client_of(api_server) as client:
            first = lease(client, namespace, "first")
            await first.acquire()
            holding = asyncio.create_task(first.hold())
            await client.patch(LEASE, namespace, "millpond-operator", {"spec": {"holderIdentity": "second"}})
            with pytest.raises(LeadershipLost, match="second leads now"):
                await holding

    run(scenario())


def test_foreign_changes_to_the_lease_are_tolerated(api_server: SharedApiServer, namespace: str) -> None:
    """A label on the lease, or its deletion, does not end the leadership, and the epoch stays."""

    async def scenario() -> None:
        async with client_of(api_server) as client:
            first = lease(client, namespace, "first")
            await first.acquire()
            epoch = first.epoch
            holding = asyncio.create_task(first.hold())
            await client.patch(LEASE, namespace, "millpond-operator", {"metadata": {"labels": {"a": "b"}}})
            held = first._held
            await until(lambda: first._held is not held, "it was renewed")
            uid = first._held["metadata"]["uid"]
            await client.delete(LEASE, namespace, "millpond-operator")
            await until(lambda: first._held["metadata"]["uid"] != uid, "it was made anew")
            found = await client.get(LEASE, namespace, "millpond-operator")
            assert found["spec"]["holderIdentity"] == "first"
            assert found["metadata"]["annotations"][EPOCH_ANNOTATION] == str(epoch) == str(first.epoch)
            assert not holding.done()
            holding.cancel()

    run(scenario())


def test_epochs_never_go_back(api_server: SharedApiServer, namespace: str) -> None:
    """Not when the lease is deleted between two leaders, and not below the floor of the caller."""

    async def scenario() -> None:
        async with client_of(api_server) as client:
            first = lease(client, namespace, "first")
            began = int(time.time())
            await first.acquire()
            assert first.epoch >= began
            await first.release()
            second = lease(client, namespace, "second")
            await second.acquire(floor=2 * first.epoch)
            assert second.epoch == 2 * first.epoch + 1
            await second.release()
            third = lease(client, namespace, "third")
            await third.acquire()
            assert third.epoch == second.epoch + 1
            found = await client.get(LEASE, namespace, "millpond-operator")
            assert found["spec"]["leaseTransitions"] == 2

    run(scenario())


def test_one_of_many_candidates_leads(api_server: SharedApiServer, namespace: str) -> None:
    """However many try at the same time."""

    async def scenario() -> None:
        async with client_of(api_server) as client:
            candidates = [lease(client, namespace, f"candidate-{number}") for number in range(8)]
            trying = [asyncio.create_task(each.acquire()) for each in candidates]
            done, others = await asyncio.wait(trying, return_when=asyncio.FIRST_COMPLETED)
            await asyncio.wait(others, timeout=1.0)
            assert len(done) == sum(task.done() for task in trying) == sum(each.leads for each in candidates) == 1
            for task in others:
                task.cancel()

    run(scenario())


def test_missing_lease_permission_fails_at_once(api_server: SharedApiServer, api: Api, namespace: str) -> None:
    """Without permission, retrying is useless."""
    api.create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "w", "namespace": namespace}})
    access = api_server.service_account(api.token(namespace, "w"))

    async def scenario() -> None:
        async with Client(connection_of(access)) as client:
            with pytest.raises(Forbidden):
                await lease(client, namespace, "first").acquire()

    run(scenario())


def test_a_duration_that_others_set_is_put_back(api_server: SharedApiServer, namespace: str) -> None:
    """A longer one would delay candidates, a shorter one would let two lead."""

    async def scenario() -> None:
        async with client_of(api_server) as client:
            first = lease(client, namespace, "first")
            await first.acquire()
            before = first._held["spec"]["leaseDurationSeconds"]
            holding = asyncio.create_task(first.hold())
            for seconds in (86_400, before + 1):
                change = {"spec": {"leaseDurationSeconds": seconds}}
                changed = version_of(await client.patch(LEASE, namespace, "millpond-operator", change))
                # Not one that was on its way before.
                await until(lambda changed=changed: version_of(first._held) > changed, "it was renewed after that")
                found = await client.get(LEASE, namespace, "millpond-operator")
                assert found["spec"]["leaseDurationSeconds"] == before
            assert not holding.done()
            holding.cancel()

    run(scenario())
