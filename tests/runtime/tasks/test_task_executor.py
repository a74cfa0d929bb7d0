"""Tasks that a worker activates, resumes and hands over, step by step, on a Kafka in memory."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import millpond as mp
from millpond.cli.run.command import command as run
from millpond.errors import BrokerError, OwnershipError, TopicError
from millpond.protocol import Mark, Role, TaskState
from millpond.runtime.offsets.metadata import Claim, OffsetMetadata, Partition
from millpond.runtime.tasks.events import Keep, TakenAway
from millpond.runtime.topics.identity import digest_of
from millpond.runtime.topics.plan import make_plan
from millpond.runtime.worker.startup import announce, claim_everything
from millpond.topology import TaskId
from tests.runtime.memory_kafka import Kafka
from tests.runtime.worker_parts import Parts

A, B = TaskId(0, 0), TaskId(0, 1)
IN_A, IN_B, CHANGELOG = Partition("in", 0), Partition("in", 1), Partition("app-counts-changelog", 0)


def _topology() -> Any:
    builder = mp.StreamsBuilder()
    builder.stream("in", key=mp.String, value=mp.String).group_by_key().count(store="counts")
    return builder.build()


@pytest.fixture
def kafka() -> Kafka:
    """Three records for one key, in the first task's input."""
    made = Kafka()
    for each in range(3):
        made.append("in", "a", str(each))
    return made


@pytest.fixture
def worker(kafka: Kafka, tmp_path: Path) -> Iterator[Parts]:
    """A worker that owns nothing yet."""
    made = Parts(kafka, _topology(), tmp_path, {"in": 2})
    yield made
    made.close()


def _owned_by(kafka: Kafka, worker: Parts, owner: str, *, epoch: int = 3, topology: str | None = None) -> None:
    named = worker.executor.topology if topology is None else topology
    for each in (IN_A, IN_B):
        kafka.commit(each, 1, OffsetMetadata(owner, epoch, topology=named))


def _told(worker: Parts) -> list[tuple[TaskId, Claim, str | None]]:
    """Collect the tasks that the executor reports as not this worker's."""
    told: list[tuple[TaskId, Claim, str | None]] = []

    def foreign(task: TaskId, claim: Claim, owner: str | None) -> None:
        told.append((task, claim, owner))

    worker.executor.on_not_owned = foreign
    return told


def test_owned_task_resumes_at_its_committed_offset(kafka: Kafka, worker: Parts) -> None:
    """The task resumes with the epoch in Kafka."""
    _owned_by(kafka, worker, "w0")
    worker.executor.hold([A], Role.ACTIVE)
    worker.settle()
    assert worker.executor.held[A].epoch == 3
    assert worker.process() == 2


@pytest.mark.parametrize("owner", ["w1", None])
def test_task_of_another_or_of_nobody_is_not_run(kafka: Kafka, worker: Parts, owner: str | None) -> None:
    """The order does not count, since Kafka names another owner or none."""
    if owner is not None:
        _owned_by(kafka, worker, owner)
    told = _told(worker)
    worker.executor.hold([A], Role.ACTIVE)
    worker.settle()
    assert told == [(A, Claim.CLAIM if owner is None else Claim.FOREIGN, owner)]
    assert worker.executor.running == []


@pytest.mark.parametrize("admitted", [False, True])
def test_task_of_another_topology_waits_for_admission(kafka: Kafka, worker: Parts, admitted: bool) -> None:
    """Its stores may have another meaning in that topology, so only the coordinator can admit this one."""
    _owned_by(kafka, worker, "w0", topology="other")
    worker.executor.claims.admitted = lambda: admitted
    told = _told(worker)
    worker.executor.hold([A], Role.ACTIVE)
    worker.settle()
    assert [task.id for task in worker.executor.running] == ([A] if admitted else [])
    assert told == ([] if admitted else [(A, Claim.RESUME, "w0")])


def test_answer_to_an_earlier_lookup_is_ignored(kafka: Kafka, worker: Parts) -> None:
    """Another commit may have moved the offsets since that lookup."""
    _owned_by(kafka, worker, "w0")
    worker.errands.deferred = True
    worker.executor.hold([A], Role.ACTIVE)
    worker.errands.work()
    worker.executor.drop([A])
    worker.executor.hold([A], Role.ACTIVE)
    worker.settle()
    assert worker.executor.held[A].state is TaskState.ACQUIRING
    kafka.commit(IN_A, 3, OffsetMetadata("w0", 3, topology=worker.executor.topology))
    worker.errands.work()
    worker.settle()
    assert worker.process() == 0


def test_lookup_reads_ends_and_ids_after_offsets(kafka: Kafka, worker: Parts) -> None:
    """Then everything that was committed before lies below the ends, and in these topics or in former ones."""
    _owned_by(kafka, worker, "w0")
    kafka.journal.clear()
    worker.executor.registrar.look_up_now([A])
    assert kafka.journal == ["committed", "ranges", "ids"]


def test_task_that_is_not_looked_up_is_not_handed_over(kafka: Kafka, worker: Parts) -> None:
    """Its offsets are unknown, so nothing can be committed for it."""
    _owned_by(kafka, worker, "w0")
    worker.errands.deferred = True
    worker.executor.hold([A], Role.ACTIVE)
    worker.executor.release(A, "w1")
    assert worker.executor.to_release() == []
    assert not worker.committer.needed()
    worker.errands.work()
    worker.settle()
    assert [held.id for held in worker.executor.to_release()] == [A]


def test_hand_over_that_is_taken_back_names_this_worker(kafka: Kafka, worker: Parts) -> None:
    """A hand-over can be cancelled until its commit begins."""
    worker.own(A)
    worker.process()
    worker.executor.release(A, "w1")
    worker.executor.handle(Keep(A))
    worker.commit()
    assert kafka.committed(IN_A).metadata == OffsetMetadata(
        "w0", 1, 1_000, topology=worker.executor.topology, changelogs=digest_of([CHANGELOG.topic]),
        topic=digest_of(["in"]),
    )  # fmt: skip


def test_going_back_forgets_what_is_not_committed(kafka: Kafka, worker: Parts) -> None:
    """Records are processed again from the committed offset, on the committed state."""
    worker.own(A)
    worker.process()
    worker.commit()
    kafka.append("in", "a", "3")
    worker.process()
    worker.new_producer()
    worker.executor.go_back()
    worker.settle()
    assert worker.process() == 1
    worker.commit()
    assert worker.executor.held[A].stores["counts"].get("a").value == 4
    assert kafka.committed(IN_A).offset == 4


def test_worker_that_goes_back_does_so_to_its_own_last_commit(kafka: Kafka, worker: Parts) -> None:
    """Its commit failed since the broker restarted, and the broker now returns offsets from before its last commits."""
    worker.own(A)
    before = dict(kafka.offsets)
    worker.process()
    worker.commit()
    kafka.append("in", "a", "3")
    worker.process()
    worker.new_producer()
    kafka.past = [before, before]
    worker.executor.go_back()
    worker.settle()
    assert worker.process() == 1
    worker.commit()
    assert worker.executor.held[A].stores["counts"].get("a").value == 4
    assert kafka.committed(IN_A).offset == 4


def test_worker_tells_how_far_its_running_tasks_are(kafka: Kafka, worker: Parts) -> None:
    """It reports no marks for copies."""
    worker.own(A)
    worker.process()
    worker.commit()
    held = worker.executor.held[A]
    assert held.mark == Mark(1, kafka.committed(IN_A).offset or 0)
    worker.executor.handle(TakenAway(A))
    assert held.role is Role.STANDBY
    assert held.mark is None


def test_going_back_keeps_no_order_to_hand_over(kafka: Kafka, worker: Parts) -> None:
    """The coordinator repeats the order if it is still valid."""
    worker.own(A)
    worker.executor.release(A, "w1")
    worker.new_producer()
    worker.executor.go_back()
    worker.settle()
    assert worker.executor.to_release() == []
    worker.process()
    worker.commit()
    assert kafka.committed(IN_A).metadata.owner == "w0"


def test_second_process_of_a_worker_is_found_by_the_epoch(kafka: Kafka, worker: Parts) -> None:
    """The second process announced itself under the same id with a higher epoch."""
    worker.own(A)
    kafka.commit(IN_A, 2, OffsetMetadata("w0", 2, topology=worker.executor.topology))
    worker.executor.go_back()
    with pytest.raises(OwnershipError, match="another process runs as worker 'w0'"):
        worker.settle()


def test_lost_task_leaves_a_copy_of_what_is_committed(kafka: Kafka, worker: Parts) -> None:
    """What was processed since the last commit is dropped: the next owner processes it again."""
    worker.own(A)
    worker.process()
    worker.commit()
    kafka.append("in", "a", "3")
    worker.process()
    worker.executor.handle(TakenAway(A))
    held = worker.executor.held[A]
    assert held.role is Role.STANDBY
    assert held.stores["counts"].get("a").value == 3
    assert worker.process() == 0


def test_promoted_copy_has_the_former_owners_last_commit(kafka: Kafka, worker: Parts, tmp_path: Path) -> None:
    """A copy reads to the end of the changelog after its worker has become the owner."""
    other = Parts(kafka, _topology(), tmp_path / "other", {"in": 2}, worker="w1")
    other.own(A)
    worker.executor.hold([A], Role.STANDBY)
    worker.settle()
    other.process()
    other.executor.release(A, "w0")
    other.commit()
    other.close()
    kafka.append("in", "a", "3")
    worker.executor.hold([A], Role.ACTIVE)
    for answer in worker.executor.registrar.answers():
        worker.executor.looked_up(answer)  # type: ignore[arg-type]
    worker.executor.start_restored()
    assert worker.executor.running == [], "it does not run before its changelog is read"
    worker.settle()
    assert worker.process() == 1
    worker.commit()
    assert worker.executor.held[A].stores["counts"].get("a").value == 4
    assert kafka.committed(IN_A).metadata.epoch == 2


def test_announcement_raises_epochs_of_own_tasks_only(kafka: Kafka, worker: Parts) -> None:
    """A worker that starts writes its new epoch into the offset metadata of its own tasks only."""
    _owned_by(kafka, worker, "w0")
    kafka.commit(IN_B, 7, OffsetMetadata("w1", 5))
    producer: Any = worker.producer
    announce(worker.executor, worker.config, producer, [A, B])
    assert kafka.committed(IN_A).metadata == OffsetMetadata("w0", 4, topology=worker.executor.topology)
    assert kafka.committed(IN_A).offset == 1
    assert kafka.committed(IN_B).metadata == OffsetMetadata("w1", 5)


def test_worker_alone_takes_over_only_when_told_to(kafka: Kafka, worker: Parts) -> None:
    """Without --take-over tasks of another worker are rejected; with it, they are taken over under that worker's id."""
    kafka.commit(IN_B, 7, OffsetMetadata("w1", 5))
    registrar = worker.executor.registrar
    with pytest.raises(OwnershipError, match=r"belongs? to worker 'w1'") as refused:
        claim_everything(registrar, worker.config, [A, B], take_over=False)
    # What it advises is there.
    options = {option for parameter in run.params for option in parameter.opts}
    advised, development = str(refused.value).split("When it runs")
    assert set(re.findall(r"--[a-z-]+", advised)) == {"--worker-id", "--take-over"} <= options
    assert "millpond dev --workers 2" in development
    assert "'coordinator.url'" in development
    assert kafka.committed(IN_A).metadata.owner is None
    claim_everything(registrar, worker.config, [A, B], take_over=True)
    assert [kafka.committed(each).metadata.owner for each in (IN_A, IN_B)] == ["w0", "w0"]
    assert kafka.committed(IN_B).metadata.epoch == 6


def test_take_over_reports_the_owner_that_kafka_has(kafka: Kafka, worker: Parts) -> None:
    """A task that another worker owned by then is reported with that owner."""
    _owned_by(kafka, worker, "w3")
    taken = worker.executor.registrar.take_over_now("w1", {A: "w0"})
    assert taken.owners == {A: "w3"}


def test_naming_excludes_tasks_of_another_topology(kafka: Kafka, worker: Parts) -> None:
    """Tasks whose offsets name this worker and no other topology may be resumed without an order."""
    _owned_by(kafka, worker, "w0")
    kafka.commit(IN_B, 1, OffsetMetadata("w0", 3, topology="other"))
    assert worker.executor.registrar.tasks_naming("w0", [A, B]) == [A]


def _two_inputs(reset: str | timedelta | None = None, new: Any = "new") -> Any:
    builder = mp.StreamsBuilder()
    old = builder.stream("in", key=mp.String, value=mp.String)
    old.merge(builder.stream(new, key=mp.String, value=mp.String, reset=reset)).to("out")
    return builder.build()


@pytest.mark.parametrize(
    ("application", "source", "start"),
    [
        ("latest", None, 4),
        ("earliest", None, 0),
        ("earliest", "latest", 4),
        ("latest", "earliest", 0),
        ("by_duration:PT2H", None, 2),
        ("latest", timedelta(hours=2), 2),
        ("none", timedelta(days=2), 1),
        ("none", timedelta(0), 4),
        ("by_duration:2h", "earliest", 0),
        ("none", timedelta(days=999_999), 0),
    ],
)
@pytest.mark.parametrize("new", ["new", re.compile("n.w")])
def test_input_new_to_a_task_starts_by_its_reset_policy(
    kafka: Kafka, tmp_path: Path, application: str, source: str | timedelta | None, start: int, new: Any
) -> None:
    """Its reset policy decides, not the other input's offset; the first commit keeps the start position."""
    now = int(time.time() * 1000)
    for hours in (72, 24, 1, 1):
        kafka.append("new", "n", str(hours), now - hours * 3_600_000)
    topics = {"in": 1, "new": 1, "out": 1}
    worker = Parts(kafka, _two_inputs(source, new), tmp_path, topics, auto_offset_reset=application)
    try:
        kafka.commit(IN_A, 1, OffsetMetadata("w0", 3, topology="the one before"))
        worker.executor.hold([A], Role.ACTIVE)
        worker.settle()
        new = Partition("new", 0)
        assert worker.consumer.positions == {IN_A: 1, new: start}
        worker.commit()
        assert kafka.committed(new).offset == start
    finally:
        worker.close()


@pytest.mark.parametrize(
    ("application", "source", "named"),
    [
        ("none", None, r"'auto\.offset\.reset' is none: set it"),
        ("latest", "none", "reset= of its source is none: write"),
    ],
)
def test_input_new_to_a_task_is_refused_where_the_reset_policy_is_none(
    kafka: Kafka, tmp_path: Path, application: str, source: str | None, named: str
) -> None:
    """The worker must not choose an offset by itself."""
    topics = {"in": 1, "new": 1, "out": 1}
    worker = Parts(kafka, _two_inputs(source), tmp_path, topics, auto_offset_reset=application)
    try:
        kafka.commit(IN_A, 1, OffsetMetadata("w0", 3, topology="the one before"))
        worker.executor.hold([A], Role.ACTIVE)
        with pytest.raises(TopicError, match=f"new-0 has no committed offset and {named} "):
            worker.settle()
    finally:
        worker.close()


def _matched() -> Any:
    builder = mp.StreamsBuilder()
    builder.stream(re.compile("in-.*"), key=mp.String, value=mp.String).group_by_key().count(store="counts")
    return builder.build()


@pytest.mark.parametrize("adopted", [True, False])
@pytest.mark.parametrize("what", ["look up", "take over"])
def test_lookup_of_a_deleted_topic_is_repeated_without_it(
    kafka: Kafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str, adopted: bool
) -> None:
    """The plan without the topic was adopted meanwhile; with the same plan the error stays."""
    topics = {"in-a": 1, "in-b": 1}
    worker = Parts(kafka, _matched(), tmp_path, topics)
    smaller = make_plan(_matched(), {"in-a": 1, "app-counts-changelog": 1}, "app")
    asked: list[set[str]] = []
    ranges = kafka.ranges

    def lost(partitions: Any) -> Any:
        asked.append({each.topic for each in partitions})
        if "in-b" not in asked[-1]:
            return ranges(partitions)
        if adopted:
            worker.executor.adopt(smaller)
        raise BrokerError("cannot read the first and last offsets of topics: Unknown topic or partition")

    monkeypatch.setattr(kafka, "ranges", lost)
    registrar = worker.executor.registrar

    def request() -> object:
        return registrar.look_up_now([A]) if what == "look up" else registrar.take_over_now("w1", {A: "w0"})

    try:
        if adopted:
            request()
            assert len(asked) == 2
        else:
            with pytest.raises(BrokerError, match="Unknown topic"):
                request()
    finally:
        worker.close()


@pytest.mark.parametrize("owner", ["w1", None])
def test_error_of_a_task_of_another_leaves_everything_closable(kafka: Kafka, worker: Parts, owner: str | None) -> None:
    """The owner is told, the worker can be closed, and its state directory is free for a replacement."""
    if owner is not None:
        _owned_by(kafka, worker, owner)
    worker.executor.hold([A, B], Role.ACTIVE)
    with pytest.raises(OwnershipError, match=r"taken over by worker 'w1'|has no owner in Kafka any more"):
        worker.settle()
    assert list(worker.executor.held) == list(worker.executor.lifecycle.tasks)
    worker.executor.close()
    assert not worker.executor.held


def test_stores_of_all_tasks_are_closed_although_one_fails(
    kafka: Kafka, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The first error is raised, the second is logged, and no task or store stays open."""

    class Sulking(mp.Processor[str, str, str, str]):
        def process(self, record: mp.Record[str, str]) -> None:
            del record

        def close(self) -> None:
            raise ValueError("will not close")

    builder = mp.StreamsBuilder()
    words = builder.stream("in", key=mp.String, value=mp.String)
    words.process(Sulking)
    words.group_by_key().count(store="counts")
    worker = Parts(kafka, builder.build(), tmp_path, {"in": 2})
    worker.own(A, B)
    stores = [store for each in worker.executor.held.values() for store in each.stores.values()]
    closed: list[Any] = []
    for each in stores:
        each.close = lambda each=each: closed.append(each)
    with pytest.raises(ValueError, match="will not close"):
        worker.executor.close()
    assert closed == stores
    assert not worker.executor.held
    assert caplog.text.count("will not close") >= 1
    worker.sink.close()
    worker.state_file.close()
