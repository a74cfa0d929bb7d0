"""Outdated committed offsets from Kafka: no worker continues from them."""

from __future__ import annotations

import logging

import pytest

from millpond.errors import OffsetsLost
from millpond.protocol import Mark
from millpond.runtime.missing_rights import Access
from millpond.runtime.offsets.marks import Marks, mark_of
from millpond.runtime.offsets.metadata import CommittedOffset, OffsetMetadata, Partition, encode_metadata
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


def _reset(left: int | None, right: int | None) -> dict[Partition, CommittedOffset]:
    """Offsets that a person has committed, or none: nobody owns the task."""
    return {LEFT: CommittedOffset(left, OffsetMetadata()), RIGHT: CommittedOffset(right, OffsetMetadata())}


def _of_group(clock: Clock) -> Marks:
    """Marks of an application with exactly_once."""
    marks = Marks(clock, "app")
    marks.record(TASK, [LEFT, RIGHT], mark_of(_found(10, 20)), {LEFT: 10, RIGHT: 20})
    return marks


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


def test_commits_that_brokers_have_lost_end_the_wait_with_the_choices() -> None:
    """The offsets name an owner, so millpond has committed them, earlier: going on would process records twice."""
    clock = Clock()
    marks = _of_group(clock)
    for clock.now in (0.0, 10.0, 29.9):
        assert marks.outdated(_found(10, 17))
    clock.now = 30.0
    with pytest.raises(OffsetsLost) as lost:
        marks.outdated(_found(10, 17))
    told = str(lost.value)
    assert told.startswith(
        "task 0_0: the committed offsets of group 'app' have gone back: right-0 at 17 instead of 20. "
    )
    assert "--group app --reset-offsets --topic right:0 --to-offset 20 --execute' continues behind" in told
    assert "--all-topics --to-current --execute' processes the records in between again" in told
    assert "left" not in told
    with pytest.raises(OffsetsLost):  # asked again, it is not believed a moment later
        marks.outdated(_found(10, 17))
    assert not marks.outdated(_found(10, 20))


def test_lost_commits_of_all_tasks_are_told_at_once() -> None:
    """Otherwise a person would have to choose, start and wait once for each task."""
    clock = Clock()
    marks = Marks(clock, "app")
    rows = [Partition("in", number) for number in range(4)]
    lost, owner = rows[:2], OffsetMetadata("w0", 3)
    for each in rows:
        marks.record(TaskId(0, each.partition), [each], Mark(3, 20), {each: 20})
    reset = CommittedOffset(5, OffsetMetadata())
    found = {
        **dict.fromkeys(lost, CommittedOffset(7, owner)),
        rows[2]: reset,
        rows[3]: CommittedOffset(20, owner),
    }
    assert marks.outdated(found)
    clock.now = 30.0
    with pytest.raises(OffsetsLost) as told:
        marks.outdated(found)
    text = str(told.value)
    assert text.startswith("tasks 0_0, 0_1: the committed offsets of group 'app' have gone back: in-0 at 7 instead of")
    assert all(f"--topic in:{each.partition} --to-offset 20 --execute'" in text for each in lost)
    assert not any(f"in:{each.partition}" in text for each in rows[2:])


@pytest.mark.parametrize("found", [_reset(10, 17), _reset(10, 20), _reset(None, None)], ids=["back", "same", "none"])
def test_offsets_that_a_person_has_reset_are_no_loss(found: dict[Partition, CommittedOffset]) -> None:
    """Each of the choices leads out: `kafka-consumer-groups.sh` and `millpond reset` leave no owner."""
    clock = Clock()
    marks = _of_group(clock)
    assert marks.outdated(found)
    clock.now = 30.0
    assert not marks.outdated(found)


@pytest.mark.parametrize("left", [4, 10, None], ids=["back", "same", "deleted"])
def test_offsets_of_one_input_that_a_person_has_reset_are_no_loss(left: int | None) -> None:
    """`kafka-consumer-groups.sh --topic` resets one input of a join; the other one still names an owner."""
    clock = Clock()
    marks = _of_group(clock)
    found = {**_found(10, 20, epoch=2), LEFT: _reset(left, None)[LEFT]}
    assert marks.outdated(found)
    clock.now = 30.0
    assert not marks.outdated(found)


def test_choice_to_continue_behind_the_last_known_commit_leads_out() -> None:
    """The commands reset the inputs that are behind, and the lost commit was of a later owner."""
    clock = Clock()
    marks = Marks(clock, "app")
    marks.record(TASK, [LEFT, RIGHT], Mark(4, 30), {LEFT: 10, RIGHT: 20})
    assert marks.outdated(_found(10, 17))
    clock.now = 30.0
    with pytest.raises(OffsetsLost, match="--topic right:0 --to-offset 20"):
        marks.outdated(_found(10, 17))
    again = Marks(clock, "app")
    again.record(TASK, [LEFT, RIGHT], Mark(4, 30))  # as the coordinator tells it to the next start
    chosen = {**_found(10, 17), RIGHT: _reset(None, 20)[RIGHT]}
    assert again.outdated(chosen)
    clock.now = 60.0
    assert not again.outdated(chosen)


def test_input_that_was_added_does_not_hide_lost_commits() -> None:
    """It has no committed offset yet, and no owner, and nobody has reset anything."""
    clock = Clock()
    marks = Marks(clock, "app")
    marks.record(TASK, [LEFT, RIGHT], Mark(3, 10))  # of the coordinator: the sum of all inputs
    found = {**_found(4, 0), RIGHT: _reset(None, None)[RIGHT]}
    assert marks.outdated(found)
    assert marks.rejecting
    clock.now = 30.0
    with pytest.raises(OffsetsLost):
        marks.outdated(found)
    clock.now = 91.0
    assert not marks.rejecting


def test_lost_commits_that_only_the_coordinator_knows_are_told_by_their_sums() -> None:
    """It knows the offset of a single input; of several, the sum."""
    for inputs, told in (
        ([LEFT], "left-0 at 4 instead of 90"),
        ([LEFT, RIGHT], "an owner of epoch 3 and offsets whose sum is 9, instead of epoch 7 and 90"),
    ):
        clock = Clock()
        marks = Marks(clock, "app")
        marks.record(TASK, inputs, Mark(7, 90))
        assert marks.outdated(_found(4, 5))
        clock.now = 30.0
        with pytest.raises(OffsetsLost, match=told):
            marks.outdated(_found(4, 5))


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


def test_broker_that_crashes_again_while_it_loads_has_lost_nothing() -> None:
    """It gave one old answer, was away for long, and the next one is old again: it is still loading."""
    clock = Clock()
    marks = _of_group(clock)
    assert marks.outdated(_found(10, 17))
    clock.now = 45.0
    assert marks.outdated(_found(10, 17))
    clock.now = 74.9
    assert marks.outdated(_found(10, 17))
    assert not marks.outdated(_found(10, 20))


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
    store = OffsetStore(
        lambda: Consumer(kafka), lambda: None, lambda: Consumer(kafka, stable=False), lambda: False, 5.0
    )
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


def test_read_of_lost_commits_ends_whatever_the_patience() -> None:
    """So it does not wait for ever, and nothing is processed twice in silence; nobody else can answer better."""
    kafka = Kafka()
    for partition, each in _found(1, 1).items():
        kafka.commit(partition, each.offset or 0, each.metadata)
    clock = Clock()

    def pass_on() -> Consumer:
        clock.now += 10.0
        return Consumer(kafka)

    store = OffsetStore(
        pass_on, lambda: None, lambda: Consumer(kafka), lambda: False, 0.0, Access("User:me", "app"), exactly_once=True
    )
    store.marks._now = clock
    store.marks.record(TASK, [LEFT, RIGHT], mark_of(_found(10, 20)))
    with pytest.raises(OffsetsLost, match="group 'app'"):
        store.read([LEFT, RIGHT])
    with pytest.raises(OffsetsLost, match="group 'app'"):
        store.try_read([LEFT, RIGHT], 1.0)


def test_old_answer_that_does_not_wait_for_transactions_proves_no_loss() -> None:
    """A broker that has loaded its log twice gives such answers until the next commit; those of `read` are right."""
    kafka = Kafka()
    for partition, each in _found(10, 20).items():
        kafka.commit(partition, each.offset or 0, each.metadata)
    kafka.surveyed = {each: (1, encode_metadata(OffsetMetadata("w0", 3))) for each in (LEFT, RIGHT)}
    clock = Clock()
    store = OffsetStore(
        lambda: Consumer(kafka), lambda: None, lambda: Consumer(kafka, stable=False), lambda: False, 5.0,
        Access("User:me", "app"), exactly_once=True,
    )  # fmt: skip
    store.marks._now = clock
    store.marks.record(TASK, [LEFT, RIGHT], mark_of(_found(10, 20)))
    stuck = store.read
    store.read = lambda partitions: {}  # type: ignore[method-assign] # waits for an open transaction meanwhile
    for clock.now in (0.0, 31.0, 62.0):
        assert store.survey([LEFT, RIGHT]) == {}
    store.read = stuck  # type: ignore[method-assign]
    assert store.survey([LEFT, RIGHT]) == _found(10, 20)
