"""A dead letter is in the same commit as the offset after its record, whatever the task waits for."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import millpond as mp
from millpond.runtime.commit.pipeline import CommitPhase, OffsetCommitter
from millpond.runtime.offsets.metadata import Partition
from millpond.topology import TaskId
from tests.runtime.memory_kafka import Kafka, Record
from tests.runtime.worker_parts import Parts

A, B = TaskId(0, 0), TaskId(0, 1)
LEFT = Partition("left", 0)
TOPICS = {"left": 2, "right": 2, "out": 2, "dead": 1}
GUARANTEES = ["at_least_once", "exactly_once"]


def topology() -> Any:
    """Two inputs of one task, which waits for one input while the other is empty."""
    builder = mp.StreamsBuilder()
    builder.stream("left", "right", key=mp.String, value=mp.Long).to("out")
    return builder.build()


@pytest.fixture(params=GUARANTEES)
def start(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    """Start a worker that drops bad records and waits for empty inputs."""
    made: list[Parts] = []

    def begin(kafka: Kafka, *tasks: TaskId, worker: str = "w0") -> Parts:
        parts = Parts(
            kafka, topology(), tmp_path / f"{len(made)}", TOPICS, worker, max_task_idle_ms=60_000,
            processing_guarantee=request.param, deserialization_exception_handler="continue",
            errors_dead_letter_queue_topic_name="dead",
        )  # fmt: skip
        made.append(parts)
        parts.own(*tasks)
        return parts

    yield begin
    for each in made:
        each.close()


def put(kafka: Kafka, partition: Partition, *values: bytes) -> None:
    """Append committed records; a value that does not have eight bytes is bad."""
    log = kafka.logs.setdefault(partition, [])
    log.extend(Record(b"k", value, 1_000, stable=True) for value in values)


def commit(worker: Parts) -> None:
    """Commit what is due; the broker accepts offsets that are committed without a transaction."""
    worker.commit(through=False)
    if isinstance(worker.sink, OffsetCommitter) and worker.committer.phase is not CommitPhase.IDLE:
        offsets = worker.consumer.commits[-1]
        for each in offsets:
            worker.kafka.offsets[Partition(each.topic, each.partition)] = (each.offset, each.metadata)
        worker.sink.on_commit(None, offsets)
    worker.finish()


def turn(worker: Parts) -> None:
    """One turn of the loop: poll, process, send the outbox, and commit."""
    worker.process()
    worker.collector.drain()
    commit(worker)


GOOD, BAD = bytes(8), b"bad"


def test_letter_of_a_waiting_task_is_sent_once_over_restarts(start: Any) -> None:
    """The good record after it waits for the other input, but the dead letter's offset is committed."""
    kafka = Kafka()
    put(kafka, LEFT, BAD, GOOD)
    for _ in range(3):
        worker = start(kafka, A)
        turn(worker)
        assert kafka.committed(LEFT).offset == 1
        assert kafka.values("dead") == [("k", "bad")]


def test_dead_letters_are_counted(start: Any) -> None:
    """Each one, also before its commit; a late record would be none of them."""
    kafka = Kafka()
    put(kafka, LEFT, BAD, BAD, GOOD)
    worker = start(kafka, A)
    turn(worker)
    context = worker.executor.tasks[A].context
    assert (context.dead_letters, context.failed, context.dropped, context.late) == (2, 2, 2, 0)


def test_latency_of_a_commit_is_that_of_its_first_record(start: Any) -> None:
    """It waited longest. A commit without a processed record has none."""
    kafka = Kafka()
    for name in ("left", "right"):
        log = kafka.logs.setdefault(Partition(name, 0), [])
        log.extend(Record(b"k", GOOD, timestamp, stable=True) for timestamp in (1_000, 2_000, 3_000))
    worker = start(kafka, A)
    turn(worker)
    assert worker.first_timestamps == [1_000]
    assert (0, "left", 1_000, 3_000) in worker.input_times
    put(kafka, LEFT, BAD)
    turn(worker)
    turn(worker)
    assert worker.first_timestamps[1:] in ([], [3_000])  # the last one of the other input, which had to wait
    assert worker.executor.tasks[A].first_timestamp == -1


def test_letter_of_a_waiting_task_leaves_no_transaction_open(start: Any) -> None:
    """A transaction is begun for the dead letter, and the task's commit ends it although nothing was processed."""
    kafka = Kafka()
    put(kafka, LEFT, BAD, GOOD)
    worker = start(kafka, A)
    turn(worker)
    assert not worker.collector.in_transaction


def test_commit_of_another_task_takes_no_letter_without_its_offset(start: Any) -> None:
    """The tasks share the outbox: a commit that sends a dead letter must contain the offset after its record."""
    kafka = Kafka()
    put(kafka, LEFT, BAD, GOOD)
    for name in ("left", "right"):
        put(kafka, Partition(name, 1), GOOD)
    worker = start(kafka, A, B)
    turn(worker)
    assert kafka.committed(Partition("left", 1)).offset == 1
    assert (kafka.committed(LEFT).offset, kafka.values("dead")) == (1, [("k", "bad")])


def test_letter_before_a_hand_over_is_not_sent_again(start: Any) -> None:
    """The commit that hands the task over is past the bad record, so the next owner does not read it."""
    kafka = Kafka()
    put(kafka, LEFT, BAD, GOOD)
    worker = start(kafka, A)
    worker.process()
    worker.collector.drain()
    worker.executor.release(A, "w1")
    commit(worker)
    turn(start(kafka, A, worker="w1"))
    assert kafka.values("dead") == [("k", "bad")]
    assert kafka.committed(LEFT).metadata.owner == "w1"


def test_bad_record_behind_good_ones_waits_for_its_turn(start: Any) -> None:
    """Its dead letter is not sent before the records before it are processed, so it is sent only once."""
    kafka = Kafka()
    put(kafka, LEFT, GOOD, BAD)
    worker = start(kafka, A)
    turn(worker)
    assert (kafka.committed(LEFT).offset, kafka.values("dead")) == (0, [])
    put(kafka, Partition("right", 0), GOOD)
    turn(worker)
    turn(worker)
    assert (kafka.committed(LEFT).offset, kafka.values("dead")) == (2, [("k", "bad")])


def test_nothing_but_bad_records_moves_the_committed_offset(start: Any) -> None:
    """The last record was dropped, and the offset after it is committed with its dead letter."""
    kafka = Kafka()
    put(kafka, LEFT, BAD, BAD)
    turn(start(kafka, A))
    assert (kafka.committed(LEFT).offset, kafka.values("dead")) == (2, [("k", "bad"), ("k", "bad")])
    assert start(kafka, A).process() == 0
    assert len(kafka.values("dead")) == 2


def test_bad_record_read_while_a_commit_is_in_flight_sends_nothing(start: Any) -> None:
    """Its dead letter belongs to the next commit, whose offsets are past it, not to the one in flight."""
    kafka = Kafka()
    put(kafka, LEFT, GOOD)
    put(kafka, Partition("right", 0), GOOD)
    worker = start(kafka, A)
    worker.process()
    worker.commit(through=False)
    put(kafka, LEFT, BAD)
    for partition, messages, _ in worker.consumer.read():
        if messages:
            worker.executor.by_input[partition].add(partition.topic, messages)
    assert worker.executor.active.outbox == []
    assert worker.executor.by_input[LEFT].inputs["left"].position == 1
