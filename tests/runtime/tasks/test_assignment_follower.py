"""How a worker follows the coordinator's answers, step by step, on a Kafka in memory: Kafka decides about owners."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import millpond as mp
from millpond.protocol import Answer, Epoch, Mark, Role, TakeOver, TaskReport, TopologySummary
from millpond.runtime.offsets.metadata import OffsetMetadata, Partition, encode_metadata
from millpond.runtime.ownership.lookups import TakeOverAnswer
from millpond.runtime.tasks.coordination import Coordination
from millpond.runtime.tasks.instructions import GoBack
from millpond.runtime.topics.plan import make_plan, summary
from millpond.topology import TaskId
from tests.runtime.memory_kafka import Kafka
from tests.runtime.worker_parts import Parts

A, B = TaskId(0, 0), TaskId(0, 1)
IN_A, IN_B = Partition("in", 0), Partition("in", 1)


class _Client:
    """A fake coordinator client: the next answer, and the reports so far.

    Attributes:
        connected_at: the time of the coordinator's last answer; None if it never answered.
    """

    def __init__(self) -> None:
        self.refusal = None
        self.rejected = False
        self.connected_at: float | None = time.monotonic()
        self.reports: list[dict[str, TaskReport]] = []
        self.topologies: list[TopologySummary] = []
        self.found: dict[str, str] = {}
        self._answer: Answer | None = None
        self.latest: Answer | None = None
        self.committed: dict[str, Mark] = {}
        self._revision = 0

    def tell(self, **orders: Any) -> None:
        """Answer the next heartbeat."""
        self._revision += 1
        self._answer = self.latest = Answer(
            epoch=Epoch(1, self._revision), coordinator="c1", revision=self._revision, **orders
        )

    def news(self) -> Answer | None:
        answer, self._answer = self._answer, None
        return answer

    def adopt(self, topology: TopologySummary) -> None:
        self.topologies.append(topology)

    def report(self, tasks: Any, on_disk: Any, found: dict[str, str], *_: Any, committed: Any = (), **__: Any) -> None:
        self.committed = dict(committed)
        self.reports.append(dict(tasks))
        self.found |= found


def goes_back(coordination: Coordination) -> bool:
    """Return whether the loop has to go back to the last commit."""
    return GoBack() in coordination._for_the_loop


class _Scene:
    """A worker with a coordinator."""

    def __init__(self, kafka: Kafka, directory: Path) -> None:
        builder = mp.StreamsBuilder()
        builder.stream("in", key=mp.String, value=mp.String).group_by_key().count(store="counts")
        self.topology = builder.build()
        self.worker = Parts(kafka, self.topology, directory, {"in": 2}, coordinator_url="http://coordinator:1")
        self.client = _Client()
        client: Any = self.client
        self.contact = SimpleNamespace(lost=False, silent_s=0.0, doubtful=False, doubts=0)
        contact: Any = self.contact
        self.unknown = 0
        self.coordination = Coordination(
            self.worker.executor, client, self.worker.config, frozenset({A, B}), contact, self._names_unknown
        )

    def _names_unknown(self) -> None:
        self.unknown += 1

    def turn(self) -> None:
        """Run one turn of the loop: handle answers of Kafka and of the coordinator."""
        for answer in self.worker.executor.registrar.answers():
            if isinstance(answer, TakeOverAnswer):
                self.coordination.taken_over(answer)
            elif not self.coordination.looked_up(answer):
                self.worker.executor.looked_up(answer)
        self.coordination.turn(time.monotonic())
        self.worker.executor.start_restored()

    def turns(self, count: int = 4) -> None:
        """Run several turns."""
        for _ in range(count):
            self.turn()

    def running(self) -> list[TaskId]:
        """Return the tasks that run."""
        return [task.id for task in self.worker.executor.running]


@pytest.fixture
def kafka() -> Kafka:
    """Two records in the first task's input."""
    made = Kafka()
    made.append("in", "a", "1")
    made.append("in", "a", "2")
    return made


@pytest.fixture
def scene(kafka: Kafka, tmp_path: Path) -> Iterator[_Scene]:
    """A worker that holds nothing yet, with a coordinator that answers."""
    made = _Scene(kafka, tmp_path)
    yield made
    made.worker.close()


def test_claimed_task_runs_after_its_take_over(kafka: Kafka, scene: _Scene) -> None:
    """This worker activates its own task at once, and reports the owners in Kafka."""
    scene.client.tell(take_over=(TakeOver(None, {"0_0": "w0", "0_1": "w1"}),))
    scene.turns()
    assert scene.running() == [A]
    assert kafka.committed(IN_B).metadata.owner == "w1"
    assert scene.client.found == {"0_0": "w0", "0_1": "w1"}


def test_task_starts_where_others_said_that_it_was_committed(kafka: Kafka, scene: _Scene) -> None:
    """Kafka first returns an earlier offset and then another owner: both are out of date, and neither is reported."""
    topology = scene.worker.executor.topology
    kafka.commit(IN_A, 2, OffsetMetadata("w0", 5, topology=topology))
    earlier, foreign = Kafka(), Kafka()
    earlier.commit(IN_A, 1, OffsetMetadata("w0", 5, topology=topology))
    foreign.commit(IN_A, 1, OffsetMetadata("w9", 4, topology=topology))
    kafka.past = [earlier.offsets, foreign.offsets]
    scene.client.tell(tasks={"0_0": Role.ACTIVE}, committed={"0_0": Mark(5, 2), "9_9": Mark(1, 1)})
    scene.turns()
    assert scene.running() == [A]
    assert scene.worker.process() == 0
    assert not scene.client.found
    scene.worker.executor.lifecycle.changes += 1
    scene.turn()
    assert scene.client.committed == {"0_0": Mark(5, 2)}


@pytest.mark.parametrize(
    "past",
    [{IN_A: (1, "dead", 2), IN_B: (0, "w3", 3)}, {}],
    ids=["of earlier owners", "of a time without commits"],
)
def test_take_over_succeeds_though_surveys_stay_in_the_past(
    kafka: Kafka, scene: _Scene, past: dict[Partition, tuple[int, str, int]]
) -> None:
    """Requests disagreed about the owner until the next commit, which did not come for half a minute.

    Offsets without an owner may have been reset, so they hinder the first attempt, which is repeated.
    """
    topology = scene.worker.executor.topology
    kafka.commit(IN_A, 2, OffsetMetadata("dead", 3, topology=topology))
    kafka.commit(IN_B, 0, OffsetMetadata("w3", 4, topology=topology))
    kafka.surveyed = {
        row: (offset, encode_metadata(OffsetMetadata(owner, epoch, topology=topology)))
        for row, (offset, owner, epoch) in past.items()
    }
    marks = {"0_0": Mark(3, 2), "0_1": Mark(4, 0)}
    scene.client.tell(take_over=(TakeOver(None, {"0_0": "w0", "0_1": "w0"}),), committed=marks)
    scene.turns()
    assert scene.client.found == {"0_0": "dead", "0_1": "w3"}
    scene.client.tell(take_over=(TakeOver("dead", {"0_0": "w0"}),), committed=marks)
    scene.turns()
    assert scene.running() == [A]
    assert ("abort dead" in kafka.journal) == (not past)


def test_starting_worker_heeds_marks_before_its_first_turn(kafka: Kafka, scene: _Scene) -> None:
    """It announces itself before it carries out orders, and none of them is lost."""
    kafka.commit(IN_A, 2, OffsetMetadata("w0", 5, topology=scene.worker.executor.topology))
    scene.client.tell(tasks={"0_0": Role.ACTIVE}, committed={"0_0": Mark(5, 2)})
    scene.coordination.learn_marks()
    kafka.past = [{IN_A: (1, "")}]
    where = scene.worker.executor.registrar.look_up_now([A]).tasks[A]
    assert where.committed[IN_A].offset == 2
    scene.turns()
    assert scene.running() == [A]


def test_take_over_order_is_carried_out_once(kafka: Kafka, scene: _Scene) -> None:
    """Every answer repeats it until the coordinator knows the result; each repetition would fence a worker."""
    order = (TakeOver("dead", {"0_0": "w0"}),)
    kafka.commit(IN_A, 1, OffsetMetadata("dead", 3, topology=scene.worker.executor.topology))
    for _ in range(3):
        scene.client.tell(take_over=order)
        scene.turns()
    assert kafka.journal.count("init_transactions dead") == 1
    assert scene.running() == [A]


def test_one_take_over_from_an_owner_at_a_time(kafka: Kafka, scene: _Scene) -> None:
    """The second take-over would fence the first, which is this worker's own."""
    kafka.commit(IN_A, 1, OffsetMetadata("dead", 3, topology=scene.worker.executor.topology))
    scene.worker.errands.deferred = True
    scene.client.tell(take_over=(TakeOver("dead", {"0_0": "w0"}),))
    scene.turn()
    scene.client.tell(take_over=(TakeOver("dead", {"0_0": "w0", "0_1": "w0"}),))
    scene.turn()
    assert len(scene.worker.errands._jobs) == 1


def test_worker_never_takes_over_from_itself(kafka: Kafka, scene: _Scene) -> None:
    """A coordinator that considers this worker dead must not make it fence itself."""
    kafka.journal.clear()
    scene.client.tell(take_over=(TakeOver("w0", {"0_0": "w1"}),))
    scene.turns()
    assert "init_transactions w0" not in kafka.journal


@pytest.mark.parametrize(("owner", "fenced"), [("w1", True), ("w0", False), (None, False)])
def test_running_task_that_the_coordinator_gave_away_is_checked(
    kafka: Kafka, scene: _Scene, owner: str | None, fenced: bool
) -> None:
    """The worker goes back only if Kafka names another owner, not if offsets expired or the coordinator is wrong."""
    scene.client.tell(take_over=(TakeOver(None, {"0_0": "w0"}),))
    scene.turns()
    scene.client.tell(tasks={"0_0": Role.ACTIVE})
    scene.turns()
    assert scene.running() == [A]
    if owner is None:
        kafka.offsets.pop(IN_A)
    else:
        kafka.commit(IN_A, 1, OffsetMetadata(owner, 2))
    scene.client.tell(tasks={})
    scene.turns()
    assert goes_back(scene.coordination) is fenced
    assert scene.running() == [A], "it runs until Kafka names another owner"


def test_handed_over_task_is_not_held_under_the_old_answer(kafka: Kafka, scene: _Scene) -> None:
    """The coordinator does not know of the hand-over yet, and still assigns the task to this worker."""
    scene.client.tell(take_over=(TakeOver(None, {"0_0": "w0"}),))
    scene.turns()
    scene.client.tell(tasks={"0_0": Role.ACTIVE}, release={"0_0": "w1"})
    scene.turns()
    scene.worker.commit()
    assert kafka.committed(IN_A).metadata.owner == "w1"
    kafka.journal.clear()
    scene.turns()
    assert scene.worker.executor.held[A].role is Role.STANDBY
    assert kafka.journal == [], "it does not look up a task that it has handed over itself"
    assert scene.client.found["0_0"] == "w1"


def test_handed_over_task_may_be_dropped_in_a_turn_that_measures_lags(scene: _Scene) -> None:
    """The task is a copy for one turn only: its stores are closed just after the lags of copies are measured."""
    scene.client.tell(take_over=(TakeOver(None, {"0_0": "w0"}),))
    scene.turns()
    scene.client.tell(release={"0_0": "w1"})
    scene.turns()
    scene.worker.commit()
    scene.worker.copy()
    assert scene.worker.executor.held[A].restored
    scene.coordination._follower._next_lags = 0.0
    scene.turn()
    assert A not in scene.worker.executor.held


def test_cancelled_hand_over_is_taken_back(kafka: Kafka, scene: _Scene) -> None:
    """An order to release is valid only as long as the answer contains it."""
    scene.client.tell(take_over=(TakeOver(None, {"0_0": "w0"}),))
    scene.turns()
    scene.client.tell(tasks={"0_0": Role.ACTIVE}, release={"0_0": "w1"})
    scene.turns()
    scene.client.tell(tasks={"0_0": Role.ACTIVE})
    scene.turns()
    scene.worker.process()
    scene.worker.commit()
    assert kafka.committed(IN_A).metadata.owner == "w0"


@pytest.mark.parametrize("answers", [True, False])
def test_tasks_naming_this_worker_are_adopted_only_in_silence(kafka: Kafka, scene: _Scene, answers: bool) -> None:
    """While the coordinator answers it assigns tasks; without it a worker activates tasks whose offsets name it."""
    kafka.commit(IN_A, 1, OffsetMetadata("w0", 3, topology=scene.worker.executor.topology))
    scene.client.connected_at = time.monotonic() if answers else None
    scene.coordination._follower._next_search = 0.0
    scene.turns()
    assert scene.running() == ([] if answers else [A])


def test_owners_are_not_looked_up_while_no_broker_answers(kafka: Kafka, scene: _Scene) -> None:
    """The coordinator assigned the tasks of a worker without brokers to others: it detects that when brokers answer."""
    scene.client.tell(take_over=(TakeOver(None, {"0_0": "w0"}),))
    scene.turns()
    scene.contact.silent_s = 40.0
    kafka.journal.clear()
    scene.client.tell()
    scene.turns()
    assert not kafka.journal
    kafka.commit(IN_A, 1, OffsetMetadata("w1", 9, topology=scene.worker.executor.topology))
    scene.contact.silent_s = 0.0
    scene.coordination._follower._retry_at = time.monotonic()
    scene.turns()
    assert goes_back(scene.coordination)


def test_order_for_a_task_that_is_not_known_yet_is_carried_out_later(kafka: Kafka, tmp_path: Path) -> None:
    """An input has new partitions: the worker looks for them, reports its new topology, and claims the new task."""
    scene = _Scene(kafka, tmp_path)
    c, in_c = TaskId(0, 2), Partition("in", 2)
    owners = {str(each): "w0" for each in (A, B, c)}
    orders = {"tasks": dict.fromkeys(owners, Role.ACTIVE), "take_over": (TakeOver(None, owners),)}
    scene.client.tell(**orders)
    scene.turns()
    assert scene.running() == [A, B]
    assert scene.unknown > 0
    assert kafka.committed(in_c).offset is None
    plan = make_plan(scene.topology, {"in": 3}, "app")
    scene.worker.executor.adopt(plan)
    scene.worker.executor.go_back()
    scene.coordination.went_back(plan)
    assert scene.client.topologies == [summary(plan)]
    scene.turns()
    assert scene.running() == [A, B, c]
    assert kafka.committed(in_c).metadata.owner == "w0"
    scene.coordination.went_back(plan)
    assert len(scene.client.topologies) == 1, "nothing has changed since"
    scene.worker.close()
