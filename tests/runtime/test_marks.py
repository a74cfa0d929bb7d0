"""Kafka answers with offsets of the past: nobody goes on from there."""

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
    """Seconds that pass when the test says so."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def _found(left: int | None, right: int | None, epoch: int = 3) -> dict[Partition, CommittedOffset]:
    metadata = OffsetMetadata("w0", epoch)
    return {LEFT: CommittedOffset(left, metadata), RIGHT: CommittedOffset(right, metadata)}


def _marks(clock: Clock | None = None) -> Marks:
    marks = Marks(clock or Clock())
    marks.tell(TASK, [LEFT, RIGHT], mark_of(_found(10, 20)))
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
def test_answer_is_out_of_date_that_tells_less_than_is_known(
    found: dict[Partition, CommittedOffset], outdated: bool
) -> None:
    """Of two owners the later one counts, of one owner the greater offsets."""
    assert _marks().outdated(found) is outdated


def test_mark_never_goes_back() -> None:
    """What others tell may be older than what this worker knows."""
    marks = _marks()
    marks.tell(TASK, [LEFT, RIGHT], Mark(3, 5))
    assert marks.outdated(_found(10, 19))


def test_offsets_that_stay_set_back_count_after_half_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    """Somebody may have done it on purpose; both is said, once."""
    clock = Clock()
    marks = _marks(clock)
    with caplog.at_level(logging.WARNING):
        for clock.now in (0.0, 10.0, 29.9):
            assert marks.outdated(_found(0, 0))
        clock.now = 30.0
        assert not marks.outdated(_found(0, 0))
        assert not marks.outdated(_found(0, 0))
    first, second = caplog.messages
    assert "older than what was committed" in first
    assert "were set back" in second


def test_each_doubt_has_its_own_half_minute() -> None:
    """A broker that told the right offsets meanwhile may be restarted again."""
    clock = Clock()
    marks = _marks(clock)
    assert marks.outdated(_found(0, 0))
    clock.now = 20.0
    assert not marks.outdated(_found(10, 20))
    clock.now = 40.0
    assert marks.outdated(_found(0, 0))


def test_doubt_that_was_given_up_leaves_its_time_to_no_later_one() -> None:
    """The task was another worker's meanwhile."""
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
    """It asks again, as while a broker refuses to answer; a single try gives up."""
    kafka = Kafka()
    for partition, each in _found(10, 20).items():
        kafka.commit(partition, each.offset or 0, each.metadata)
    behind: dict[Partition, tuple[int, str]] = {LEFT: (4, ""), RIGHT: (5, "")}
    store = OffsetStore(lambda: Consumer(kafka), lambda: None, lambda: Consumer(kafka), lambda: False, 5.0)
    store.marks.tell(TASK, [LEFT, RIGHT], mark_of(_found(10, 20)))
    kafka.past = [behind]
    assert store.try_read([LEFT, RIGHT], 1.0) is None
    kafka.past = [{}, behind, behind]
    assert store.read([LEFT, RIGHT]) == _found(10, 20)


def test_take_over_goes_on_where_the_dead_owner_was() -> None:
    """A broker that tells an earlier owner, and then an earlier offset, changes neither."""
    kafka = Kafka()
    kafka.commit(LEFT, 10, OffsetMetadata("w0", 3, topology="h"))
    Producer(kafka, "w0").init_transactions()
    store = OffsetStore(lambda: Consumer(kafka), lambda: None, lambda: Consumer(kafka), lambda: False, 5.0)
    store.marks.tell(TASK, [LEFT], Mark(3, 10))

    def fencing(owner: str) -> Producer:
        producer = Producer(kafka, owner)
        producer.init_transactions()
        return producer

    older, other = Kafka(), Kafka()
    older.commit(LEFT, 2, OffsetMetadata("w0", 3, topology="h"))
    other.commit(LEFT, 1, OffsetMetadata("w9", 1, topology="h"))
    kafka.past = [other.offsets, kafka.offsets, older.offsets, other.offsets]
    taken = take_over(fencing, Consumer(kafka), store, {TASK: [LEFT]}, {TASK: "w1"}, "w0", lambda _: 0, "h")
    assert list(taken) == [TASK]
    assert kafka.committed(LEFT) == CommittedOffset(10, OffsetMetadata("w1", 4, topology="h"))


def test_mark_that_was_wrong_is_not_learnt_again() -> None:
    """The coordinator goes on to tell it, and every question would be doubted for half a minute more."""
    clock = Clock()
    marks = _marks(clock)
    assert marks.outdated(_found(0, 0, epoch=1))
    clock.now = 30.0
    assert not marks.outdated(_found(0, 0, epoch=1))
    marks.tell(TASK, [LEFT, RIGHT], mark_of(_found(10, 20)))
    assert not marks.outdated(_found(0, 0, epoch=1))
    marks.tell(TASK, [LEFT, RIGHT], mark_of(_found(5, 5, epoch=1)))
    assert marks.outdated(_found(0, 0, epoch=1))


def test_little_patience_with_brokers_ends_no_worker_for_a_wrong_mark() -> None:
    """It would end at each start, and never come to believe Kafka."""
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
