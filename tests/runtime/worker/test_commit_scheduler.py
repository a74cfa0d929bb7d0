"""The order of a commit, step by step, on a Kafka in memory: records, offsets, and only then the state file."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

import millpond as mp
from millpond.protocol import Role, TaskState
from millpond.runtime.commit.pipeline import CommitFailed, CommitPhase, OffsetCommitter
from millpond.runtime.commit.record_collector import RecordCollector
from millpond.runtime.offsets.metadata import OffsetMetadata, Partition
from millpond.topology import TaskId
from tests.runtime.memory_kafka import Consumer, Kafka, Producer, error
from tests.runtime.worker_parts import Parts

A, B = TaskId(0, 0), TaskId(0, 1)
IN, CHANGELOG = Partition("in", 0), Partition("app-counts-changelog", 0)
TOPICS = {"in": 2, "out": 2, "copy": 2}


def topology() -> Any:
    """Return a topology that forwards each record at once, and its counts with each commit."""
    builder = mp.StreamsBuilder()
    stream = builder.stream("in", key=mp.String, value=mp.String)
    stream.to("copy", key=mp.String, value=mp.String)
    stream.group_by_key().count(store="counts").to_stream().map_values(str).to("out", key=mp.String, value=mp.String)
    return builder.build()


@pytest.fixture
def kafka() -> Kafka:
    """Three records for one key."""
    made = Kafka()
    for each in range(3):
        made.append("in", "a", str(each))
    return made


@pytest.fixture
def worker(kafka: Kafka, tmp_path: Path) -> Iterator[Parts]:
    """A worker that has processed all of them and committed nothing."""
    made = Parts(kafka, topology(), tmp_path, TOPICS)
    made.own(A, B)
    assert made.process() == 3
    kafka.journal.clear()
    yield made
    made.close()


def _position(kafka: Kafka) -> int | None:
    return kafka.committed(IN).offset


def _await(condition: Callable[[], bool]) -> None:
    """Wait for the thread that commits."""
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, "the commit does not go on"
        time.sleep(0.001)


def test_state_is_written_after_the_offsets_are_committed(kafka: Kafka, worker: Parts) -> None:
    """Records first, then offsets, then the transaction, and the state file last."""
    worker.commit()
    steps = list(dict.fromkeys(each.split(" w0")[0] for each in kafka.journal))
    assert steps == ["begin_transaction", "produce", "send_offsets", "survey", "commit", "write state"]
    assert _position(kafka) == 3
    assert kafka.values("out") == [("a", "3")]
    assert kafka.values("copy") == [("a", "0"), ("a", "1"), ("a", "2")]


def test_rows_and_changelog_offset_are_one_write(kafka: Kafka, worker: Parts) -> None:
    """A crash between two writes would leave rows beyond the offset, or an offset beyond the rows."""
    worker.commit()
    ((rows, offsets),) = worker.written
    assert [(store, number, len(each)) for store, number, each in rows] == [("counts", 0, 1)]
    assert offsets == {("counts", 0): (len(kafka.logs[CHANGELOG]), b"")}


def test_task_that_comes_back_keeps_the_offset_up_to_which_it_was_restored(
    kafka: Kafka, worker: Parts, tmp_path: Path
) -> None:
    """What the worker wrote before the task moved away is not the end of the changelog; its state would go back."""
    worker.commit()
    worker.executor.release(A, "w1")
    worker.commit()
    other = Parts(kafka, topology(), tmp_path, TOPICS, worker="w1")
    other.executor.hold([A], Role.ACTIVE)
    other.settle()
    kafka.append("in", "b", "3")
    assert other.process() == 1
    other.executor.release(A, "w0")
    other.commit()
    other.close()
    worker.executor.hold([A], Role.ACTIVE)
    worker.settle()
    restored = worker.offset_on_disk("counts")
    assert restored == len(kafka.logs[CHANGELOG])
    worker.written.clear()
    worker.ahead_ms += 61_000  # now rows are written although nothing changed: the time as of which they are complete
    kafka.append("in", None, "a record without a key changes no count")
    assert worker.process() == 1
    worker.commit()
    assert [offsets for _, offsets in worker.written] == [{("counts", 0): (restored, b"")}]


def test_transaction_is_committed_when_all_records_are_acknowledged(kafka: Kafka, worker: Parts) -> None:
    """The offsets follow the first acknowledged record, and count only when all records have arrived."""
    worker.producer.delivers = False
    worker.commit(through=False)
    worker.committer.advance(time.monotonic())
    assert "send_offsets w0" not in kafka.journal
    worker.producer.acknowledge(1)
    worker.committer.advance(time.monotonic())
    _await(lambda: "send_offsets w0" in kafka.journal)
    for _ in range(5):
        worker.committer.advance(time.monotonic())
    assert worker.committer.phase is CommitPhase.DELIVERING
    assert "commit w0" not in kafka.journal
    assert worker.written == []
    worker.producer.delivers = True
    worker.finish()
    assert _position(kafka) == 3


def test_offsets_wait_until_all_records_are_acknowledged(kafka: Kafka, tmp_path: Path) -> None:
    """At least once: an offset that is committed before its output could outlive the output."""
    worker = Parts(kafka, topology(), tmp_path, TOPICS, processing_guarantee="at_least_once")
    worker.own(A, B)
    assert worker.process() == 3
    kafka.journal.clear()
    worker.producer.delivers = False
    worker.commit(through=False)
    for _ in range(5):
        worker.committer.advance(time.monotonic())
    assert worker.committer.phase is CommitPhase.DELIVERING
    assert "commit offsets" not in kafka.journal
    worker.producer.delivers = True
    worker.committer.advance(time.monotonic())
    assert kafka.journal[-1] == "commit offsets"
    worker.close()


def test_refused_offsets_fail_the_commit_while_records_are_delivered(worker: Parts) -> None:
    """A worker whose offsets are rejected goes back at once, whether or not its records are delivered."""
    worker.producer.delivers = False
    worker.producer.failures["send_offsets"] = [error(KafkaError.INVALID_TXN_STATE)]
    worker.commit(through=False)
    worker.producer.acknowledge(1)
    with pytest.raises(CommitFailed):
        worker.finish()
    assert worker.committer.phase is CommitPhase.DELIVERING


def test_commit_given_up_during_delivery_commits_nothing(kafka: Kafka, worker: Parts) -> None:
    """The offsets are already in the transaction, which is never committed."""
    worker.producer.delivers = False
    worker.commit(through=False)
    worker.producer.acknowledge(1)
    worker.committer.advance(time.monotonic())
    _await(lambda: "send_offsets w0" in kafka.journal)
    worker.sink.close()
    worker.sink._thread.join(60)
    assert not worker.sink._thread.is_alive()
    assert "commit w0" not in kafka.journal
    assert _position(kafka) == 0


def test_nothing_is_written_when_the_transaction_fails(kafka: Kafka, worker: Parts) -> None:
    """The state file never contains what Kafka does not."""
    worker.producer.failures["commit"] = [error(KafkaError.INVALID_TXN_STATE)]
    with pytest.raises(CommitFailed):
        worker.commit()
    assert worker.written == []
    assert worker.offset_on_disk("counts") is None


def test_repeated_commit_sends_the_worker_back(kafka: Kafka, worker: Parts) -> None:
    """The unanswered request may still arrive, in the next transaction of the same producer."""
    worker.producer.failures["commit"] = [error(KafkaError._TIMED_OUT, retriable=True)]
    with pytest.raises(CommitFailed, match="repeated"):
        worker.commit()
    assert _position(kafka) == 3


def test_fenced_commit_says_so(kafka: Kafka, worker: Parts) -> None:
    """A worker that lost its transactional id looks up the owners of its tasks."""
    worker.producer_of("w0")
    with pytest.raises((CommitFailed, KafkaException)) as raised:
        worker.commit()
    cause = raised.value
    assert cause.fenced if isinstance(cause, CommitFailed) else cause.args[0].code() == KafkaError._FENCED
    assert _position(kafka) == 0
    assert worker.written == []


def test_rejected_changelog_record_fails_the_commit(kafka: Kafka, worker: Parts) -> None:
    """State without its changelog record could not be restored."""
    worker.producer.delivers = False
    worker.commit(through=False)
    worker.producer.fail_deliveries(KafkaError.MSG_SIZE_TOO_LARGE)
    with pytest.raises(KafkaException):
        worker.finish()
    assert "commit w0" not in kafka.journal


def test_records_processed_during_a_commit_belong_to_the_next(kafka: Kafka, worker: Parts) -> None:
    """Neither their offsets nor their rows are in the commit in flight, and none of them is lost."""
    worker.producer.delivers = False
    worker.commit(through=False)
    kafka.append("in", "a", "3")
    kafka.append("in", "b", "4")
    assert worker.process() == 2
    worker.producer.delivers = True
    worker.finish()
    assert _position(kafka) == 3
    assert [len(rows) for _, _, rows in worker.written[0][0]] == [1]
    worker.commit()
    assert _position(kafka) == 5
    assert sorted(kafka.values("out")) == [("a", "3"), ("a", "4"), ("b", "1")]
    assert worker.offset_on_disk("counts") == len(kafka.logs[CHANGELOG])
    assert kafka.values("copy") == [("a", "0"), ("a", "1"), ("a", "2"), ("a", "3"), ("b", "4")]


def test_commit_that_fails_is_made_again_from_the_committed_offsets(kafka: Kafka, worker: Parts) -> None:
    """After going back the same records count once, in the output and in the state."""
    worker.producer.failures["commit"] = [error(KafkaError.INVALID_TXN_STATE)]
    with pytest.raises(CommitFailed):
        worker.commit()
    worker.new_producer()
    worker.executor.go_back()
    worker.settle()
    assert worker.process() == 3
    worker.commit()
    assert kafka.values("out") == [("a", "3")]
    assert kafka.values("copy") == [("a", "0"), ("a", "1"), ("a", "2")]
    assert _position(kafka) == 3


def test_idle_tasks_are_committed_before_their_offsets_expire(kafka: Kafka, worker: Parts) -> None:
    """Brokers delete the offsets of tasks without records, and the owners in them."""
    worker.commit()
    kafka.journal.clear()
    worker.commit()
    assert "commit w0" not in kafka.journal
    worker.committer._next_refresh = 0.0
    worker.commit()
    assert "commit w0" in kafka.journal
    assert kafka.committed(Partition("in", 1)).offset == 0


def test_idle_task_is_handed_over(kafka: Kafka, worker: Parts) -> None:
    """Only its next owner is to commit."""
    worker.commit()
    worker.executor.release(B, "w1")
    assert worker.committer.needed()
    worker.commit()
    metadata = kafka.committed(Partition("in", 1)).metadata
    assert (metadata.owner, metadata.epoch) == ("w1", 2)
    assert kafka.committed(IN).metadata.owner == "w0"


def test_task_is_handed_over_before_it_ran(kafka: Kafka, tmp_path: Path) -> None:
    """The next owner restores the task itself, so it need not wait until this one has."""
    kafka.logs[CHANGELOG] = []
    other = Parts(kafka, topology(), tmp_path / "other", TOPICS)
    other.own(A)
    other.process()
    other.commit()
    other.close()
    worker = Parts(kafka, topology(), tmp_path / "empty", TOPICS)
    worker.executor.hold([A], Role.ACTIVE)
    for answer in worker.executor.registrar.answers():
        worker.executor.looked_up(answer)
    assert worker.executor.held[A].state is TaskState.RESTORING
    worker.executor.release(A, "w1")
    worker.commit()
    committed = kafka.committed(IN)
    assert (committed.offset, committed.metadata.owner, committed.metadata.epoch) == (3, "w1", 2)
    assert committed.metadata.partition_time == 1_000
    worker.close()


def test_copy_left_by_a_hand_over_has_the_last_commit(kafka: Kafka, worker: Parts) -> None:
    """The rows of the last commit are on disk before the task becomes a copy, which follows from there."""
    worker.executor.release(A, "w1")
    worker.commit()
    held = worker.executor.held[A]
    assert held.role is Role.STANDBY
    (changelog,) = held.changelogs
    assert changelog.position == worker.offset_on_disk("counts") == len(kafka.logs[CHANGELOG])
    assert held.stores["counts"].get("a").value == 3


def test_task_processes_nothing_more_while_it_is_handed_over(kafka: Kafka, worker: Parts) -> None:
    """Records after the last commit are for the next owner."""
    worker.executor.release(A, "w1")
    worker.producer.delivers = False
    worker.commit(through=False)
    kafka.append("in", "a", "3")
    assert worker.process() == 0
    worker.producer.delivers = True
    worker.finish()
    assert _position(kafka) == 3
    assert kafka.values("copy") == [("a", "0"), ("a", "1"), ("a", "2")]


@pytest.mark.parametrize("room", [1, 2, 3, 9])
def test_full_producer_queue_loses_and_doubles_nothing(room: int) -> None:
    """The record that did not fit into the full queue is sent first when there is room."""
    kafka = Kafka()
    producer: Any = Producer(kafka)
    producer.room = room
    rows = [("out", str(each).encode(), b"k", 0, None, None, 1_000, None) for each in range(10)]
    RecordCollector(producer, transactional=False).send(rows)
    assert [value for _, value in kafka.values("out")] == [str(each) for each in range(10)]


def _offset_committer() -> tuple[OffsetCommitter, Consumer]:
    consumer: Any = Consumer(Kafka())
    committer = OffsetCommitter(consumer)
    committer.start({IN: (3, OffsetMetadata("w0", 1)), Partition("in", 1): (5, OffsetMetadata("w0", 1))}, {})
    committer.complete()
    return committer, consumer


def _answer(consumer: Consumer, *codes: int | None) -> list[Any]:
    class Answered(TopicPartition):
        error: Any = None

    answers = []
    for each, code in zip(consumer.commits[-1], codes, strict=True):
        answered = Answered(each.topic, each.partition, each.offset)
        answered.error = None if code is None else KafkaError(code)
        answers.append(answered)
    return answers


def test_offset_commit_is_done_when_every_partition_is_taken() -> None:
    """At least once: the answer has an error for each partition."""
    committer, consumer = _offset_committer()
    assert not committer.done()
    committer.on_commit(None, _answer(consumer, None, None))
    assert committer.done()


def test_offset_commit_fails_when_one_partition_is_refused() -> None:
    """The success of other partitions does not hide it."""
    committer, consumer = _offset_committer()
    committer.on_commit(None, _answer(consumer, None, KafkaError.TOPIC_AUTHORIZATION_FAILED))
    with pytest.raises(CommitFailed):
        committer.done()


def test_offset_commit_is_retried_while_the_coordinator_moves() -> None:
    """A temporary error is no failure."""
    committer, consumer = _offset_committer()
    committer.on_commit(None, _answer(consumer, None, KafkaError.NOT_COORDINATOR))
    assert not committer.done()
    assert len(consumer.commits) == 2
    committer.on_commit(None, _answer(consumer, None, None))
    assert committer.done()


def test_answer_to_an_earlier_offset_commit_does_not_count() -> None:
    """It may arrive after the worker has gone back and committed something else."""
    committer, consumer = _offset_committer()
    earlier = _answer(consumer, None, None)
    committer.start({IN: (9, OffsetMetadata("w0", 1))}, {})
    committer.on_commit(None, earlier)
    assert not committer.done()
    committer.complete()
    committer.on_commit(None, earlier)
    assert not committer.done()


def _go_back(worker: Parts) -> None:
    worker.new_producer()
    worker.executor.go_back()
    worker.settle()


def test_nothing_is_committed_from_offsets_of_the_past(kafka: Kafka, worker: Parts) -> None:
    """A coordinator that was frozen answers as before, and no mark knows a commit whose outcome is unknown."""
    worker.commit()
    before = dict(kafka.offsets)
    kafka.append("in", "a", "3")
    worker.process()
    worker.commit(through=False)
    _await(lambda: _position(kafka) == 4)

    kafka.past = [before]
    _go_back(worker)
    assert worker.process() == 1, "the record that is committed is processed again"
    with pytest.raises(CommitFailed, match=r"is 4 \(epoch 1\), and this worker continued from 3"):
        worker.commit()
    assert _position(kafka) == 4
    assert kafka.values("out") == [("a", "3"), ("a", "4")]

    _go_back(worker)
    kafka.append("in", "a", "4")
    worker.process()
    worker.commit()
    assert kafka.values("out") == [("a", "3"), ("a", "4"), ("a", "5")]


def test_only_the_first_commit_of_a_task_is_compared(kafka: Kafka, worker: Parts) -> None:
    """Then the worker itself knows what is committed."""
    compared: list[Any] = []
    worker.sink._check = lambda expected, _left_s: compared.append(dict(expected))
    worker.commit()
    kafka.append("in", "a", "3")
    worker.process()
    worker.commit()
    assert [sorted(each) for each in compared] == [[IN], []]
