"""Outdated committed offsets from Kafka: no worker continues from them."""

from __future__ import annotations

import logging

import pytest

from millpond.protocol import Mark
from millpond.runtime.offsets.marks import Marks, mark_of
from millpond.runtime.offsets.metadata import CommittedOffset, OffsetMetadata, Partition
from millpond.runtime.ownership.takeover import OffsetStore, take_over
from millpond.topology import TaskId
from tests.runtime.memory_kafka import Consumer, Kafka, Producer

TASK, LEFT, RIGHT = TaskId(0, 0), Partition("left", 0), Partition("right", 0)


class Clock:
    """A clock that the test advances, in seconds."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def _found(left: int | None, right: int | None, epoch: int = 3) -> dict[Partition, CommittedOffset]:
    metadata = OffsetMetadata("w0", epoch)
    return {LEFT: CommittedOffset(left, metadata), RIGHT: CommittedOffset(right, metadata)}


def _marks(clock: Clock | None = None) -> Marks:
    marks = Marks(clock or Clock())
    marks.record(TASK, [LEFT, RIGHT], mark_of(_found(10, 20)))
    return marks


@pytest.mark.parametrize(
    ("found", "outdated"),
    [
        (_found(10, 20), False),
        (_found(11, 20), False),
        (_found(10, 19), True),
        (_found(10, None), True),
        (_found(50, 50, epoch=2), True),
        (_found(0, 0, epoch=4), False),
        ({LEFT: _found(1, 1)[LEFT]}, False),
    ],
    ids=["same", "later", "less", "none", "earlier owner", "later owner", "a part of the inputs"],
)
def test_answer_below_a_known_commit_is_outdated(found: dict[Partition, CommittedOffset], outdated: bool) -> None:
    """Of two epochs the higher one counts; within one epoch, the higher offsets."""
    assert _marks().outdated(found) is outdated


def test_mark_never_goes_back() -> None:
    """The coordinator may report an older commit than the worker knows."""
    marks = _marks()
    marks.record(TASK, [LEFT, RIGHT], Mark(3, 5))
    assert marks.outdated(_found(10, 19))


def test_offsets_that_stay_reset_are_accepted_after_30_seconds(caplog: pytest.LogCaptureFixture) -> None:
    """They may have been reset on purpose. Each of the two steps is logged once."""
    clock = Clock()
    marks = _marks(clock)
    with caplog.at_level(logging.WARNING):
        for clock.now in (0.0, 10.0, 29.9):
            assert marks.outdated(_found(0, 0))
        clock.now = 30.0
        assert not marks.outdated(_found(0, 0))
        assert not marks.outdated(_found(0, 0))
    first, second = caplog.messages
    assert "older than the last known commit" in first
    assert "were reset" in second


def test_each_rejection_lasts_30_seconds() -> None:
    """A broker that returned correct offsets meanwhile may restart again."""
    clock = Clock()
    marks = _marks(clock)
    assert marks.outdated(_found(0, 0))
    clock.now = 20.0
    assert not marks.outdated(_found(10, 20))
    clock.now = 40.0
    assert marks.outdated(_found(0, 0))


def test_rejection_after_a_pause_lasts_30_seconds_again() -> None:
    """Another worker had the task meanwhile."""
    clock = Clock()
    marks = _marks(clock)
    assert marks.outdated(_found(0, 0))
    clock.now = 100.0
    assert marks.outdated(_found(0, 0))
    clock.now = 129.9
    assert marks.outdated(_found(0, 0))
    clock.now = 130.0
    assert not marks.outdated(_found(0, 0))


def test_read_waits_until_kafka_has_all_offsets() -> None:
    """It retries, as it does while a broker rejects requests; a single try fails."""
    kafka = Kafka()
    for partition, each in _found(10, 20).items():
        kafka.commit(partition, each.offset or 0, each.metadata)
    behind: dict[Partition, tuple[int, str]] = {LEFT: (4, ""), RIGHT: (5, "")}
    store = OffsetStore(lambda: Consumer(kafka), lambda: None, lambda: Consumer(kafka), lambda: False, 5.0)
    store.marks.record(TASK, [LEFT, RIGHT], mark_of(_found(10, 20)))
    kafka.past = [behind]
    assert store.try_read([LEFT, RIGHT], 1.0) is None
    kafka.past = [{}, behind, behind]
    assert store.read([LEFT, RIGHT]) == _found(10, 20)


def test_take_over_continues_from_the_dead_owners_last_commit() -> None:
    """Answers with a former owner, or with an older offset, are rejected."""
    kafka = Kafka()
    kafka.commit(LEFT, 10, OffsetMetadata("w0", 3, topology="h"))
    Producer(kafka, "w0").init_transactions()
    store = OffsetStore(lambda: Consumer(kafka), lambda: None, lambda: Consumer(kafka), lambda: False, 5.0)
    store.marks.record(TASK, [LEFT], Mark(3, 10))

    def fencing(owner: str) -> Producer:
        producer = Producer(kafka, owner)
        producer.init_transactions()
        return producer

    older, other = Kafka(), Kafka()
    older.commit(LEFT, 2, OffsetMetadata("w0", 3, topology="h"))
    other.commit(LEFT, 1, OffsetMetadata("w9", 1, topology="h"))
    kafka.past = [other.offsets, kafka.offsets, older.offsets, other.offsets]
    taken = take_over(fencing, lambda: Consumer(kafka), store, {TASK: [LEFT]}, {TASK: "w1"}, "w0", lambda _: 0, "h")
    assert list(taken) == [TASK]
    assert kafka.committed(LEFT) == CommittedOffset(10, OffsetMetadata("w1", 4, topology="h"))


def test_discarded_mark_is_not_recorded_again() -> None:
    """The coordinator keeps sending it; otherwise every answer would be rejected for another 30 s."""
    clock = Clock()
    marks = _marks(clock)
    assert marks.outdated(_found(0, 0, epoch=1))
    clock.now = 30.0
    assert not marks.outdated(_found(0, 0, epoch=1))
    marks.record(TASK, [LEFT, RIGHT], mark_of(_found(10, 20)))
    assert not marks.outdated(_found(0, 0, epoch=1))
    marks.record(TASK, [LEFT, RIGHT], mark_of(_found(5, 5, epoch=1)))
    assert marks.outdated(_found(0, 0, epoch=1))


def test_short_timeout_does_not_fail_a_worker_with_a_wrong_mark() -> None:
    """Otherwise it would fail at every start and never accept Kafka's answer."""
    kafka = Kafka()
    for partition, each in _found(1, 1).items():
        kafka.commit(partition, each.offset or 0, each.metadata)
    store = OffsetStore(lambda: Consumer(kafka), lambda: None, lambda: Consumer(kafka), lambda: False, 0.0)
    store.marks = _marks(clock := Clock())

    def pass_on() -> Consumer:
        clock.now += 10.0
        return Consumer(kafka)

    store._consumer = pass_on
    assert store.read([LEFT, RIGHT]) == _found(1, 1)
