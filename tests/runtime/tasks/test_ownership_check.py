"""A worker without transactions writes nothing while another worker may own its tasks, for whatever reason."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import millpond as mp
from millpond.protocol import clock
from millpond.protocol.session import CoordinatorSession
from millpond.runtime.offsets.metadata import OffsetMetadata, Partition
from millpond.runtime.tasks.coordination import Coordination
from millpond.topology import TaskId
from tests.runtime.memory_kafka import Kafka
from tests.runtime.tasks.test_assignment_follower import _Client, goes_back
from tests.runtime.worker_parts import Parts

A = TaskId(0, 0)
IN_A = Partition("in", 0)
SESSION_S = 6.0


class _Clocks(clock.Clocks):
    """Clocks that a test advances."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def boottime(self) -> float:
        return self.now


class _Scene:
    """A worker that runs a task under at_least_once; the test is its coordinator and its loop."""

    def __init__(self, kafka: Kafka, directory: Path, clocks: _Clocks) -> None:
        builder = mp.StreamsBuilder()
        builder.stream("in", key=mp.String, value=mp.String).group_by_key().count(store="counts")
        self.kafka, self.clocks = kafka, clocks
        self.worker = Parts(
            kafka, builder.build(), directory, {"in": 1},
            coordinator_url="http://coordinator:1", processing_guarantee="at_least_once",
        )  # fmt: skip
        self.session = CoordinatorSession(SESSION_S)
        client: Any = _Client()
        client.session = self.session
        self.contact = SimpleNamespace(lost=False, silent_s=0.0, doubtful=False, doubts=0)
        contact: Any = self.contact
        self.coordination = Coordination(self.worker.executor, client, self.worker.config, frozenset({A}), contact)
        self.worker.own(A)
        self.worker.commit(through=False)

    def pass_time(self, seconds: float) -> None:
        self.clocks.now += seconds

    def answered(self, sent_s_ago: float = 0.0) -> None:
        """Let the coordinator answer a heartbeat that was sent so many seconds ago."""
        self.session.answered(self.clocks.now - sent_s_ago)

    def settle(self) -> None:
        """Handle Kafka's answers."""
        for answer in self.worker.executor.registrar.answers():
            assert self.coordination.looked_up(answer)  # type: ignore[arg-type]

    def taken_over(self, by: str) -> None:
        """Let another worker take the task over."""
        before = self.kafka.committed(IN_A).metadata
        self.kafka.commit(IN_A, 2, OffsetMetadata(by, before.epoch + 1, topology=before.topology))


@pytest.fixture
def clocks() -> Iterator[_Clocks]:
    """Replace the clocks of the protocol."""
    made = _Clocks()
    token = clock.CURRENT.set(made)
    yield made
    clock.CURRENT.reset(token)


@pytest.fixture
def scene(tmp_path: Path, clocks: _Clocks) -> Iterator[_Scene]:
    """The worker owns its task, and its coordinator has just answered."""
    kafka = Kafka()
    kafka.append("in", "a", "1")
    made = _Scene(kafka, tmp_path, clocks)
    made.answered()
    yield made
    made.worker.close()


def test_worker_writes_while_heartbeats_are_answered(scene: _Scene) -> None:
    """Its loop may take any time: nobody takes tasks over from a worker whose heartbeats arrive."""
    scene.kafka.journal.clear()
    for _ in range(10):
        scene.pass_time(SESSION_S / 2)
        scene.answered(sent_s_ago=2.0)
    assert scene.coordination.may_write()
    assert not scene.kafka.journal, "Kafka is not asked"


@pytest.mark.parametrize("answered", [False, True])
def test_worker_frozen_past_its_session_asks_before_writing(scene: _Scene, answered: bool) -> None:
    """Even if an answer from before the freeze, or to the first heartbeat after it, arrives first."""
    scene.worker.errands.deferred = True
    scene.pass_time(SESSION_S + 1)
    if answered:
        scene.answered(sent_s_ago=SESSION_S)
        scene.answered()
    assert not scene.coordination.may_write()
    assert not scene.coordination.may_write()
    scene.worker.errands.work()
    scene.settle()
    assert scene.coordination.may_write()
    assert not goes_back(scene.coordination)


@pytest.mark.parametrize("owner", ["w1", "w0"])
def test_worker_whose_task_was_taken_over_goes_back(scene: _Scene, owner: str) -> None:
    """Even if it owns the task again since: another worker has processed records in between."""
    scene.pass_time(SESSION_S + 1)
    scene.taken_over(owner)
    scene.coordination.may_write()
    scene.settle()
    assert goes_back(scene.coordination)
    assert not scene.coordination.may_write()


def test_worker_without_a_coordinator_keeps_asking(scene: _Scene) -> None:
    """It continues with the tasks that it owns, but others may take them over at any time."""
    scene.pass_time(SESSION_S + 1)
    scene.coordination.may_write()
    scene.settle()
    assert scene.coordination.may_write()
    scene.taken_over("w1")
    scene.pass_time(2.0)
    assert not scene.coordination.may_write()
    scene.settle()
    assert goes_back(scene.coordination)


def test_forgotten_offsets_are_not_taken_for_a_take_over(scene: _Scene) -> None:
    """Brokers delete offsets of applications that were idle for long; then nobody else owns the task."""
    scene.kafka.offsets.clear()
    scene.pass_time(SESSION_S + 1)
    scene.coordination.may_write()
    scene.settle()
    assert scene.coordination.may_write()


def test_lookup_that_began_before_the_lapse_is_checked_again(scene: _Scene) -> None:
    """Its answer may name this worker although another one has taken over since, and it would start the task."""
    scene.worker.executor.go_back()
    scene.coordination.went_back(scene.worker.plan)
    scene.pass_time(SESSION_S + 1)
    scene.answered()
    assert scene.coordination.may_write(), "nothing runs that could write"
    scene.taken_over("w1")
    for answer in scene.worker.executor.registrar.answers():
        scene.worker.executor.looked_up(answer)  # type: ignore[arg-type]
    scene.pass_time(2.0)
    scene.answered()
    assert not scene.coordination.may_write()
    scene.settle()
    assert goes_back(scene.coordination)


def test_task_that_an_old_lookup_starts_is_looked_up_before_it_writes(scene: _Scene) -> None:
    """The check has just found that nothing ran: that says nothing about a task that starts right after it."""
    scene.worker.executor.go_back()
    scene.coordination.went_back(scene.worker.plan)
    scene.pass_time(SESSION_S + 1)
    scene.answered()
    assert scene.coordination.may_write(), "nothing runs that could write"
    scene.taken_over("w1")
    for answer in scene.worker.executor.registrar.answers():
        scene.worker.executor.looked_up(answer)  # type: ignore[arg-type]
    assert not scene.coordination.may_write()


def test_brokers_lost_during_a_lookup_take_another_one(scene: _Scene) -> None:
    """Its answer may be from before a take-over that the loss of the brokers led to."""
    scene.worker.errands.deferred = True
    scene.contact.lost = True
    assert not scene.coordination.may_write()
    scene.contact.lost = False
    assert not scene.coordination.may_write()
    scene.worker.errands.work()
    scene.contact.lost = True
    scene.pass_time(2.0)
    scene.answered()
    assert not scene.coordination.may_write()
    scene.taken_over("w1")
    scene.contact.lost = False
    scene.settle()
    assert not scene.coordination.may_write()
    scene.worker.errands.work()
    scene.settle()
    assert goes_back(scene.coordination)


def test_worker_that_lost_its_brokers_asks_before_writing(scene: _Scene) -> None:
    """Its heartbeats arrive all the time, and yet its tasks were assigned to others."""
    scene.contact.lost, scene.contact.silent_s = True, 40.0
    assert not scene.coordination.may_write()
    scene.contact.lost, scene.contact.silent_s = False, 0.0
    scene.taken_over("w1")
    assert not scene.coordination.may_write()
    scene.settle()
    assert goes_back(scene.coordination)


def test_worker_that_misses_some_brokers_asks_before_writing(scene: _Scene) -> None:
    """The others answer, and yet its tasks may be taken over: it writes while Kafka names it, as one that is alone."""
    scene.contact.doubtful = True
    assert not scene.coordination.may_write()
    scene.settle()
    assert scene.coordination.may_write()
    scene.pass_time(2.0)
    scene.taken_over("w1")
    scene.contact.doubts, scene.contact.doubtful = 1, False
    assert not scene.coordination.may_write()
    scene.settle()
    assert goes_back(scene.coordination)


def test_brokers_away_for_a_moment_are_no_doubt(scene: _Scene) -> None:
    """The coordinator moves only tasks of workers that have lost the brokers."""
    scene.contact.silent_s = 3.0
    assert scene.coordination.may_write()


@pytest.mark.parametrize("seen", [{"lost": True, "silent_s": 40.0}, {"doubtful": True}], ids=["all", "some"])
def test_output_of_tasks_given_away_is_dropped(scene: _Scene, seen: dict[str, Any]) -> None:
    """Unsent records of its producer must not mix with those of the next owner: no broker fences it."""
    vars(scene.contact).update(seen)
    client: Any = scene.coordination._client
    client.tell()
    scene.coordination.turn(clock.monotonic())
    assert goes_back(scene.coordination)
