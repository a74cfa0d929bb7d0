"""Queries while partitions have no owner, move, or have an owner that does not answer."""

from __future__ import annotations

import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest

import millpond as mp
from millpond.protocol import Member, Role, TaskState, View
from millpond.queries import FailureReason, QueryFailed
from millpond.runtime.http.server import HttpServer
from tests.queries.application import APPLICATION, Worker
from tests.queries.conftest import failure_of
from tests.support.kafka import eventually

LONG = timedelta(seconds=60)
SHORT = timedelta(seconds=1)


def count(value):
    return mp.ValueAndTimestamp(value, 1)


@pytest.fixture
def background():
    with ThreadPoolExecutor(4) as executor:
        yield executor


def figure(worker, name):
    return worker.registry.get_sample_value(name, {"application_id": APPLICATION, "worker": worker.name})


def place_elsewhere(application, partition, address):
    """Set in the coordinator's view that another worker at an address owns the partition."""
    view = application.coordinator.view
    owners = {**view.owners, f"0_{partition}": "other"}
    members = (*view.members, Member("other", address))
    application.coordinator.view = View(APPLICATION, view.epoch, members=members, owners=owners, active=owners)


def test_a_query_waits_for_the_next_owner(start, background):
    """While no worker has the partition, the query retries; the next owner answers it."""
    application = start(3, 3)
    partition = application.put("counts", "key", count(7))
    old = application.owners[partition]
    new, asked = [each for each in application.workers if each is not old]
    old.drop(partition)
    store = application.client(asked, timeout=LONG).store("counts")
    answer = background.submit(store.get, "key")
    rows = background.submit(lambda: [(row.key, row.value) for row in store.all()])
    before = application.coordinator.asked
    eventually(lambda: application.coordinator.asked > before + 2, "the query looks for an owner")
    assert not answer.done()
    new.take(partition)
    application.owners[partition] = new
    application.publish()
    assert answer.result(60) == 7
    assert rows.result(60) == [("key", 7)]


def test_a_query_fails_at_its_deadline_and_says_why(start):
    """The reason is for programs; the message names partition, store and the last failure."""
    application = start(2, 2)
    partition = application.put("counts", "key", count(7))
    owner = application.owners[partition]
    other = next(each for each in application.workers if each is not owner)
    store = application.client(other, timeout=SHORT).store("counts")

    def failure():
        began = time.monotonic()
        failed = failure_of(lambda: store.get("key"))
        assert time.monotonic() - began >= SHORT.total_seconds()
        assert failed.partitions == (partition,)
        assert f"partition {partition} of store 'counts' could not be read within 1000 ms" in str(failed)
        assert len(str(failed).splitlines()) == 1
        return failed

    owner.alter(partition, state=TaskState.RESTORING)
    assert failure().reason is FailureReason.NOT_ACTIVE
    owner.alter(partition, role=Role.STANDBY, state=TaskState.RUNNING)
    assert failure().reason is FailureReason.NOT_ACTIVE
    owner.drop(partition)
    assert failure().reason is FailureReason.NOT_PRESENT


def test_owner_answers_until_the_hand_over(start):
    """A task that is being handed over still answers: its last commit is the newest."""
    application = start(2, 2)
    partition = application.put("counts", "key", count(7))
    application.owners[partition].alter(partition, state=TaskState.RELEASING)
    for worker in application.workers:
        assert application.client(worker).store("counts").get("key") == 7


def test_hanging_owner_is_abandoned_when_the_task_moved(start, background):
    """A paused process accepts connections but answers nothing; the query does not wait for it until the deadline."""
    application = start(2, 2)
    partition = application.put("counts", "key", count(7))
    owner = application.owners[partition]
    asked = next(each for each in application.workers if each is not owner)
    with socket.socket() as hung:
        hung.bind(("127.0.0.1", 0))
        hung.listen()
        place_elsewhere(application, partition, f"http://127.0.0.1:{hung.getsockname()[1]}")
        answer = background.submit(application.client(asked, timeout=LONG).store("counts").get, "key")
        rows = background.submit(lambda: len(list(application.client(asked, timeout=LONG).store("counts").all())))
        hung.accept()[0].close()  # and the second attempt hangs
        eventually(lambda: figure(asked, "millpond_query_forwarded_total") >= 2, "both ask the one that hangs")
        application.publish()
        # A query that waited for the deadline would fail.
        assert answer.result(90) == 7
        assert rows.result(90) == 1


def test_wrong_metadata_causes_no_forwarding_loop(start):
    """Workers that see each other as the owner send one request each: a worker's request is never forwarded."""
    application = start(2, 2)
    partition = application.put("counts", "key", count(7))
    first, second = application.workers
    for worker in application.workers:
        if worker is application.owners[partition]:
            worker.drop(partition)
    view = application.coordinator.view
    there = {f"0_{partition}": second.name}
    back = {f"0_{partition}": first.name}
    application.coordinator.view = View(APPLICATION, view.epoch, members=view.members, owners=there, active=back)
    with pytest.raises(QueryFailed) as raised:
        application.client(first, timeout=SHORT).store("counts").get("key")
    assert raised.value.reason is FailureReason.NOT_PRESENT
    assert 0 < figure(first, "millpond_query_forwarded_total") < 60
    assert figure(second, "millpond_query_forwarded_total") == 0


def test_cached_metadata_serves_while_the_coordinator_is_away(start):
    """A failed coordinator does not matter as long as no task moves."""
    application = start(3, 3)
    application.put("counts", "key", count(7))
    stores = [application.client(each).store("counts") for each in application.workers]
    assert [store.get("key") for store in stores] == [7, 7, 7]
    application.coordinator.broken = True
    assert [store.get("key") for store in stores] == [7, 7, 7]


def test_without_a_coordinator_only_local_tasks_are_found(start):
    """A worker that has never reached its coordinator still answers for its own tasks."""
    application = start(2, 2)
    application.coordinator.broken = True
    partition = application.put("counts", "key", count(7))
    owner = application.owners[partition]
    other = next(each for each in application.workers if each is not owner)
    assert application.client(owner, timeout=LONG).store("counts").get("key") == 7
    with pytest.raises(QueryFailed, match="no worker is known") as raised:
        application.client(other, timeout=SHORT).store("counts").get("key")
    assert raised.value.reason is FailureReason.NOT_PRESENT


def test_answers_of_another_application_are_not_used(start):
    """An address may be reused by another application: its worker rejects the request."""
    application, other = start(2, 2), start(1, 2, alone=True)
    partition = application.put("counts", "key", count(7))
    other.put("counts", "key", count(13))
    other.workers[0].service._local[1].application = "other"
    asked = next(each for each in application.workers if each is not application.owners[partition])
    place_elsewhere(application, partition, other.urls()[0])
    failed = failure_of(lambda: application.client(asked, timeout=SHORT).store("counts").get("key"))
    assert "status 404" in str(failed)
    assert failed.reason is FailureReason.NOT_PRESENT


def test_starting_worker_rejects_and_the_client_tries_another(start, monkeypatch):
    """The routes exist before the worker knows its stores; until then it rejects queries."""
    monkeypatch.setattr(Worker, "start_answering", lambda worker: None)
    application = start(2, 2)
    partition = application.put("counts", "key", count(7))
    starting, ready = application.workers
    monkeypatch.undo()
    ready.start_answering()
    with pytest.raises(QueryFailed, match=f"'{starting.name}' is starting") as raised:
        application.client(starting, timeout=SHORT).store("counts").get("key")
    assert raised.value.reason is FailureReason.NOT_ACTIVE
    if application.owners[partition] is starting:
        application.move(partition, ready)
    assert application.client(starting, ready, timeout=LONG).store("counts").get("key") == 7


def test_dead_workers_are_named(start):
    """No URL answers: the error names the URLs and what to check."""
    application = start(1, 1, alone=True)
    client = application.client(timeout=SHORT)
    application.workers[0].http.stop()
    with pytest.raises(QueryFailed, match=r"no worker answers at 127\.0\.0\.1:\d+ \(.*'http\.host'") as raised:
        client.store("counts").get("key")
    assert raised.value.reason is FailureReason.NOT_PRESENT


def test_foreign_service_at_the_address_is_named(start, background):
    """A web server that is not a worker."""
    with HttpServer("127.0.0.1", 0) as server:
        application = start(1, 1, alone=True)
        application.workers[0].site, real = server.main, application.workers[0].site
        client = application.client(timeout=SHORT)
        application.workers[0].site = real
        with pytest.raises(QueryFailed, match="not as a millpond worker does"):
            client.store("counts").get("key")


def test_metadata_follows_the_assignment(start):
    """Every worker returns partition, task, active worker and standbys of a key, with their addresses."""
    threads = set(threading.enumerate())
    application = start(3, 3)
    partition = application.put("counts", "key", count(7))
    owner = application.owners[partition]
    standby = next(each for each in application.workers if each is not owner)
    standby.follow(partition)
    application.standbys[partition] = (standby,)
    application.publish()
    expected = {
        "store": "counts",
        "partition": partition,
        "task": f"0_{partition}",
        "active": {"worker": owner.name, "address": owner.http.url},
        "standbys": [{"worker": standby.name, "address": standby.http.url}],
    }
    for worker in application.workers:
        client = application.client(worker)
        assert client.metadata("counts", "key") == expected
        places = client.partitions("counts")
        assert [each["active"]["worker"] for each in places] == [application.owners[each].name for each in range(3)]
    assert len(set(threading.enumerate()) - threads) < 60
