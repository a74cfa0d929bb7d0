"""New partitions and new topics of a pattern are detected and reported, and read if nothing else changes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import millpond as mp
from millpond.protocol import Role
from millpond.runtime.blockers import Blockers
from millpond.runtime.commit.pipeline import CommitPhase
from millpond.runtime.commit.transaction_size import TransactionSize
from millpond.runtime.offsets.metadata import Partition
from millpond.runtime.topics.plan import Plan, make_plan, summary
from millpond.runtime.topics.watch import TopicWatch
from millpond.runtime.worker.loop import Loop
from millpond.runtime.worker.recovery import Recovery
from millpond.topology import TaskId
from tests.runtime.memory_kafka import Kafka
from tests.runtime.worker_parts import Parts

A = TaskId(0, 0)


def counted() -> Any:
    """A count over one topic."""
    builder = mp.StreamsBuilder()
    builder.stream("in", key=mp.String, value=mp.String).group_by_key().count(store="counts")
    return builder.build()


def copied() -> Any:
    """A topic copied to another: a sub-topology without state."""
    builder = mp.StreamsBuilder()
    builder.stream("in", key=mp.String, value=mp.String).to("out")
    return builder.build()


def matched() -> Any:
    """A count over all topics that match a pattern."""
    builder = mp.StreamsBuilder()
    builder.stream(re.compile("in-.*"), key=mp.String, value=mp.String).group_by_key().count(store="counts")
    return builder.build()


def rekeyed() -> Any:
    """A count behind a repartition topic."""
    builder = mp.StreamsBuilder()
    stream = builder.stream("in", key=mp.String, value=mp.String)
    stream.group_by(lambda _key, value: value, key=mp.String, name="by-value").count(store="counts")
    return builder.build()


LOGGED = {"app-counts-changelog": 2}


class Watched:
    """A watch of topics that the test defines."""

    def __init__(self, topology: Any, topics: dict[str, int], *, more_tasks: bool = False) -> None:
        self._topology = topology
        self.topics = topics
        self.waiting = Blockers()
        self.asked = 0
        self.plan = self.make(topics)
        self.watch = TopicWatch(self.plan, self.make, self.look, 300.0, self.waiting, more_tasks=more_tasks)
        self.now = 0.0
        assert self.watch.turn(self.now) is None

    def make(self, topics: Any) -> Plan:
        return make_plan(self._topology, topics, "app")

    def look(self, known: Mapping[str, int]) -> Future[dict[str, int] | None]:
        self.asked += 1
        self.known = known
        answer: Future[dict[str, int] | None] = Future()
        answer.set_result(dict(self.topics))
        return answer

    def later(self) -> Plan | None:
        """Two turns of the loop, one interval later."""
        self.now += 300.0
        assert self.watch.turn(self.now) is None
        return self.watch.turn(self.now)

    def told(self) -> str:
        trouble = self.waiting.trouble(0.0)
        return "" if trouble is None else f"{trouble.reason}: {trouble.message}"


def test_topics_are_listed_once_per_interval() -> None:
    """A turn between two lists sends no request."""
    made = Watched(counted(), {"in": 2, **LOGGED})
    for _ in range(100):
        assert made.watch.turn(1.0) is None
    assert made.asked == 0
    made.later()
    for _ in range(100):
        made.watch.turn(made.now + 1.0)
    assert made.asked == 1
    assert (made.told(), made.watch.unread) == ("", 0)


def test_partitions_beyond_those_of_the_state_are_reported_and_not_read() -> None:
    """One sentence has the topic, both counts and the cures. It is withdrawn when the topic is as before."""
    made = Watched(counted(), {"in": 2, **LOGGED})
    made.topics["in"] = 5
    assert made.later() is None
    assert made.told().startswith(
        "TopicChanged: topic 'in' has 5 partitions, and this application reads only the first 2"
    )
    assert "'millpond reset'" in made.told()
    assert made.watch.unread == 3
    made.topics["in"] = 2
    assert made.later() is None
    assert (made.told(), made.watch.unread) == ("", 0)


def test_worker_that_starts_later_has_the_same_tasks() -> None:
    """It has the same topology hash, and reports the same."""
    running = Watched(counted(), {"in": 2, **LOGGED})
    late = Watched(counted(), {"in": 5, **LOGGED})
    assert summary(late.plan) == summary(running.plan)
    assert (late.plan.tasks, late.plan.internal) == (running.plan.tasks, running.plan.internal)
    assert "topic 'in' has 5 partitions, and this application reads only the first 2" in late.told()
    assert late.watch.unread == 3


def test_repartition_topic_keeps_its_partitions_when_an_input_grows() -> None:
    """The state depends on the repartition topic's count, so all partitions of the input can be read."""
    topics = {"in": 2, "app-by-value-repartition": 2, **LOGGED}
    later = make_plan(rekeyed(), {**topics, "in": 5}, "app")
    assert {spec.name: spec.partitions for spec in later.internal} == {
        "app-by-value-repartition": 2, "app-counts-changelog": 2,
    }  # fmt: skip
    assert later.unread == ()
    made = Watched(rekeyed(), topics)
    made.topics["in"] = 5
    assert made.later() is None
    assert "topic 'in' has 5 partitions, and this application has tasks for 2 of them" in made.told()


def test_new_partitions_without_state_are_reported_with_the_cure() -> None:
    """Without a coordinator the workers agreed on their tasks at the start, so all of them must restart."""
    made = Watched(copied(), {"in": 2, "out": 2})
    made.topics["in"] = 3
    assert made.later() is None
    assert "topic 'in' has 3 partitions, and this application has tasks for 2 of them" in made.told()
    assert "Stop all workers and start them again" in made.told()
    assert made.watch.unread == 1


def test_new_partitions_without_state_become_tasks_with_a_coordinator() -> None:
    """The topology hash stays that of the other workers, which may not have listed the topics yet."""
    made = Watched(copied(), {"in": 2, "out": 2}, more_tasks=True)
    made.topics["in"] = 3
    new = made.later()
    assert new is not None
    assert new.tasks.keys() == {TaskId(0, number) for number in range(3)}
    assert summary(new).hash == summary(made.plan).hash
    assert summary(new) != summary(made.plan)
    assert (made.told(), made.watch.unread) == ("", 0)
    assert made.later() is None


def test_tasks_never_become_fewer_while_they_run() -> None:
    """A topic that was created again with fewer partitions is noticed by its reader."""
    made = Watched(copied(), {"in": 3, "out": 2}, more_tasks=True)
    made.topics["in"] = 2
    assert made.later() is None
    assert made.watch._plan is made.plan


def test_tasks_of_a_sub_topology_with_internal_topics_stay_as_many() -> None:
    """The first sub-topology follows its input; the second reads an internal topic, which keeps its partitions."""
    made = Watched(rekeyed(), {"in": 2, "app-by-value-repartition": 2, **LOGGED}, more_tasks=True)
    made.topics["in"] = 3
    new = made.later()
    assert new is not None
    assert [task for task in new.tasks if task.subtopology == 1] == [TaskId(1, 0), TaskId(1, 1)]
    assert TaskId(0, 2) in new.tasks
    assert new.internal == made.plan.internal


def test_topics_are_listed_within_a_second_when_another_worker_knows_more() -> None:
    """After an assignment of an unknown task, the watch neither waits for minutes nor lists topics without a pause."""
    made = Watched(copied(), {"in": 2, "out": 2}, more_tasks=True)
    made.later()
    made.topics["in"] = 3
    for _ in range(100):
        made.watch.hurry()
        assert made.watch.turn(made.now + 0.5) is None
    assert made.asked == 1
    made.watch.hurry()
    assert made.watch.turn(made.now + 1.1) is None
    assert made.watch.turn(made.now + 1.1) is not None
    assert made.asked == 2


@pytest.mark.parametrize("partitions", [1, 2])
def test_new_topic_that_matches_is_read_where_tasks_stay_the_same(partitions: int) -> None:
    """Tasks with one of its partitions get another input; the topology hash stays."""
    made = Watched(matched(), {"in-a": 2, **LOGGED})
    made.topics["in-b"] = partitions
    new = made.later()
    assert new is not None
    assert new.tasks == {
        TaskId(0, number): ("in-a", "in-b") if number < partitions else ("in-a",) for number in range(2)
    }
    assert summary(new) == summary(made.plan)
    assert (made.told(), made.watch.unread) == ("", 0)
    assert made.later() is None


def test_new_topic_with_more_partitions_than_tasks_is_read_in_part() -> None:
    """Partitions without a task are reported."""
    made = Watched(matched(), {"in-a": 2, **LOGGED})
    made.topics["in-b"] = 3
    new = made.later()
    assert new is not None
    assert new.tasks[TaskId(0, 1)] == ("in-a", "in-b")
    assert "topic 'in-b' has 3 partitions, and this application reads only the first 2" in made.told()
    assert made.watch.unread == 1


def test_topic_of_a_pattern_that_two_lists_do_not_have_is_no_longer_read() -> None:
    """The second list follows within a second; a topic that is there again was not deleted."""
    made = Watched(matched(), {"in-a": 2, "in-b": 2, **LOGGED})

    def in_a_second() -> Plan | None:
        made.now += 1.1
        assert made.watch.turn(made.now) is None
        return made.watch.turn(made.now)

    del made.topics["in-b"]
    assert made.later() is None
    made.topics["in-b"] = 2
    assert in_a_second() is None
    del made.topics["in-b"]
    assert made.later() is None
    new = in_a_second()
    assert made.asked == 4
    assert new is not None
    assert new.tasks == {TaskId(0, number): ("in-a",) for number in range(2)}
    assert summary(new) == summary(made.plan)
    assert made.later() is None


def test_deleted_topic_that_has_a_name_of_its_own_changes_no_plan() -> None:
    """The code that reads it reports it."""
    made = Watched(counted(), {"in": 2, **LOGGED})
    del made.topics["in"]
    assert [made.later(), made.later(), made.later()] == [None, None, None]


def test_topics_are_compared_only_with_an_answer() -> None:
    """No answer from brokers, or a list without a topic that is read, changes nothing."""
    made = Watched(counted(), {"in": 2, **LOGGED})
    made.topics.clear()
    assert made.later() is None
    made.watch._list_topics = _failed
    assert made.later() is None
    assert made.told() == ""


def _failed(_: object) -> Future[dict[str, int] | None]:
    answer: Future[dict[str, int] | None] = Future()
    answer.set_exception(RuntimeError("away"))
    return answer


@pytest.fixture
def worker(tmp_path: Path) -> Iterator[Parts]:
    """A worker that has processed its only topic."""
    kafka = Kafka()
    kafka.append("in-a", "k", "first")
    made = Parts(kafka, matched(), tmp_path, {"in-a": 1})
    made.own(A)
    assert made.process() == 1
    made.commit()
    yield made
    made.close()


def test_running_task_reads_a_new_topic_from_its_beginning(worker: Parts) -> None:
    """The worker goes back to its last commit and continues, with its counts."""
    kafka = worker.kafka
    kafka.append("in-b", "k", "second")
    worker.executor.adopt(make_plan(matched(), {"in-a": 1, "in-b": 1, "app-counts-changelog": 1}, "app"))
    worker.executor.go_back()
    worker.new_producer()
    worker.executor.hold([A], Role.ACTIVE)
    worker.settle()
    assert worker.consumer.positions == {Partition("in-a", 0): 1, Partition("in-b", 0): 0}
    assert worker.process() == 1
    worker.commit()
    assert kafka.committed(Partition("in-b", 0)).offset == 1
    assert [value for _, value in kafka.values("app-counts-changelog")][-1] == (2).to_bytes(8, "big").decode()


@dataclass(frozen=True)
class _Parted:
    plan: Plan


class _Loop:
    """A worker's loop with a new plan and a commit in flight."""

    def __init__(self) -> None:
        before, self.new = (
            make_plan(matched(), dict.fromkeys(topics, 1), "app") for topics in (["in-1"], ["in-1", "in-2"])
        )
        self.adopted: list[Plan] = []
        self.needed = True
        self.committer = SimpleNamespace(
            phase=CommitPhase.DELIVERING, next_commit=9.0, needed=lambda: self.needed, advance=lambda _: None
        )
        unused: Any = None
        self.parts: Any = SimpleNamespace(
            new_plan=self.new,
            assembly=_Parted(before),
            executor=SimpleNamespace(adopt=self.adopted.append),
            committer=self.committer,
            pace=SimpleNamespace(slow=False, flushed=lambda _: None),
            metrics=SimpleNamespace(commits=0),
            transactions=TransactionSize(10.0),
        )
        recovery: Any = Recovery(self.parts, unused)
        self.recovery = recovery
        recovery.go_back = recovery._adopt_new_plan
        self.loop = Loop(self.parts, unused, recovery, unused)


def test_new_inputs_are_adopted_once_all_is_committed() -> None:
    """Until then the loop processes nothing more; it adopts them once."""
    loop = _Loop()
    assert loop.loop._awaits_commit()
    assert loop.committer.next_commit == 0.0
    loop.loop._advance()
    loop.committer.phase = CommitPhase.IDLE
    loop.loop._advance()
    assert loop.adopted == []
    loop.needed = False
    loop.loop._advance()
    assert loop.adopted == [loop.new]
    assert loop.parts.assembly.plan is loop.new
    assert not loop.loop._awaits_commit()
    loop.loop._advance()
    assert loop.adopted == [loop.new]


def test_new_inputs_are_adopted_when_their_commit_fails() -> None:
    """The watch returns a plan only once, so a worker that goes back for any reason adopts it."""
    loop = _Loop()
    loop.recovery.go_back()
    assert loop.adopted == [loop.new]
    assert loop.parts.new_plan is None
