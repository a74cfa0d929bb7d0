"""Claims and take-overs step by step, on a Kafka in memory: fencing, reads and commits."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Message, TopicPartition

from millpond.errors import BrokerError, OwnershipError
from millpond.runtime.commit.pipeline import portions, topic_partitions
from millpond.runtime.missing_rights import Access
from millpond.runtime.offsets.metadata import CommittedOffset, OffsetMetadata, Partition, claim_of, next_epoch, takeable
from millpond.runtime.ownership.takeover import (
    UNOWNED,
    OffsetStore,
    commit_directly,
    commit_under,
    init_producer,
    take_over,
)
from millpond.topology import TaskId
from tests.runtime.memory_kafka import Consumer, Kafka, Producer, error

A, B = TaskId(0, 0), TaskId(0, 1)
IN_A, IN_B, ADDED = Partition("in", 0), Partition("in", 1), Partition("added", 0)
INPUTS = {A: [IN_A, ADDED], B: [IN_B]}


def _of(owner: str | None, epoch: int = 3) -> OffsetMetadata:
    return OffsetMetadata(owner, epoch, 50, {"p": 7}, topology="h")


@pytest.fixture
def kafka() -> Kafka:
    """Both tasks are owned by w0, at epoch 3; one input of the first was added and has no owner."""
    made = Kafka()
    made.commit(IN_A, 10, _of("w0"))
    made.commit(IN_B, 0, _of("w0"))
    Producer(made, "w0").init_transactions()
    made.journal.clear()
    return made


def _fencing(kafka: Kafka) -> Callable[[str], Producer]:
    def initialise(owner: str) -> Producer:
        producer = Producer(kafka, owner)
        producer.init_transactions()
        return producer

    return initialise


def _store(kafka: Kafka) -> OffsetStore:
    return OffsetStore(lambda: Consumer(kafka), lambda: None, lambda: Consumer(kafka, stable=False), lambda: False, 1.0)


def _take_over(kafka: Kafka, previous: str | None, owners: dict, fencing: Callable[[str], Producer] | None) -> list:
    taken = take_over(fencing, lambda: Consumer(kafka), _store(kafka), INPUTS, owners, previous, lambda _: 99, "new")
    return sorted(taken)


def test_take_over_fences_before_it_reads(kafka: Kafka) -> None:
    """Offsets read before the previous owner is fenced may be behind its last commit."""
    former = kafka.holders["w0"]
    assert _take_over(kafka, "w0", {A: "w1", B: "w2"}, _fencing(kafka)) == [A, B]
    assert kafka.journal == [
        "init_transactions w0",
        "committed",
        "begin_transaction w0",
        "send_offsets w0",
        "survey",
        "commit w0",
    ]
    with pytest.raises(OwnershipError):
        commit_under(former, "group", {IN_A: (11, _of("w0"))}, {}, _store(kafka).check_unchanged)


def test_take_over_changes_owner_and_epoch_only(kafka: Kafka) -> None:
    """Offsets, partition times and processor metadata stay; an input without an offset begins at its start."""
    _take_over(kafka, "w0", {A: "w1", B: "w2"}, _fencing(kafka))
    expected = OffsetMetadata("w1", 4, 50, {"p": 7}, topology="new")
    assert kafka.committed(IN_A) == CommittedOffset(10, expected)
    assert kafka.committed(IN_B) == CommittedOffset(0, OffsetMetadata("w2", 4, 50, {"p": 7}, topology="new"))
    assert kafka.committed(ADDED) == CommittedOffset(99, OffsetMetadata("w1", 4, topology="new"))


def test_take_over_leaves_tasks_that_changed_owner_meanwhile(kafka: Kafka) -> None:
    """A task that its owner handed over before it died belongs to its next owner."""
    kafka.commit(IN_A, 12, _of("w3", 4))
    assert _take_over(kafka, "w0", {A: "w1", B: "w1"}, _fencing(kafka)) == [B]
    assert kafka.committed(IN_A) == CommittedOffset(12, _of("w3", 4))
    assert _take_over(kafka, "w0", {A: "w1", B: "w1"}, _fencing(kafka)) == []


def test_take_over_leaves_inputs_of_a_third_owner(kafka: Kafka) -> None:
    """If the inputs of a task name several owners, only those of the dead owner, or without an owner, change."""
    kafka.commit(ADDED, 5, _of("w3", 4))
    assert _take_over(kafka, "w0", {A: "w1"}, _fencing(kafka)) == [A]
    assert kafka.committed(ADDED) == CommittedOffset(5, _of("w3", 4))
    assert kafka.committed(IN_A).metadata.owner == "w1"


def test_claim_of_unowned_tasks_takes_no_owned_one(kafka: Kafka) -> None:
    """The id for unowned tasks fences no owner."""
    assert _take_over(kafka, None, {A: "w1", B: "w1"}, _fencing(kafka)) == []
    kafka.offsets.pop(IN_B)
    assert _take_over(kafka, None, {A: "w1", B: "w1"}, _fencing(kafka)) == [B]
    assert kafka.committed(IN_B) == CommittedOffset(99, OffsetMetadata("w1", 1, topology="new"))
    assert f"init_transactions {UNOWNED}" in kafka.journal
    assert "init_transactions w0" not in kafka.journal


def test_rival_that_is_fenced_commits_nothing(kafka: Kafka) -> None:
    """Of two workers that take over from a third one, the first to initialise its id loses."""

    def overtaken(owner: str) -> Producer:
        producer = _fencing(kafka)(owner)
        _take_over(kafka, "w0", {A: "w2", B: "w2"}, _fencing(kafka))
        kafka.commit(IN_A, 10, _of("w0"))  # as the slower one still sees it
        return producer

    with pytest.raises(OwnershipError):
        _take_over(kafka, "w0", {A: "w1"}, overtaken)
    assert kafka.committed(IN_B).metadata.owner == "w2"


def test_open_transaction_of_another_owner_is_not_waited_for(kafka: Kafka) -> None:
    """Tasks of another owner may have pending offsets; the others are read without them."""
    kafka.commit(IN_B, 4, _of("w3", 4))
    other = _fencing(kafka)("w3")
    other.send_offsets_to_transaction([TopicPartition(*IN_B, 5, "{}")], "group", 1)
    assert _take_over(kafka, "w0", {A: "w1", B: "w1"}, _fencing(kafka)) == [A]
    assert kafka.committed(IN_B).metadata.owner == "w3"


def test_take_over_without_transactions_checks_the_owner_too(kafka: Kafka) -> None:
    """Under at_least_once nothing is fenced, but no live owner's task is taken over."""
    kafka.commit(IN_A, 12, _of("w3", 4))
    assert _take_over(kafka, "w0", {A: "w1", B: "w1"}, None) == [B]
    assert kafka.committed(IN_B).metadata == OffsetMetadata("w1", 4, 50, {"p": 7}, topology="new")


def _many(count: int) -> dict:
    return {Partition("topic", each): (each, OffsetMetadata("w" * 200, 1)) for each in range(count)}


def test_offsets_of_several_requests_are_one_transaction(kafka: Kafka) -> None:
    """Half of a take-over would leave the other half to a dead worker whose id is in use by now."""
    many = _many(2_000)
    producer = _fencing(kafka)("w0")
    kafka.journal.clear()
    commit_under(producer, "group", many, {}, _store(kafka).check_unchanged)
    requests = kafka.journal.count("send_offsets w0")
    assert requests == len(portions(topic_partitions(many))) > 1
    assert kafka.journal == ["begin_transaction w0", *["send_offsets w0"] * requests, "commit w0"]
    assert len([each for each in kafka.offsets if each.topic == "topic"]) == 2_000


def test_direct_commit_raises_the_error_of_one_partition(kafka: Kafka) -> None:
    """The client raises no error for a single partition."""

    class Refusing(Consumer):
        def commit(self, *, offsets: list, asynchronous: bool) -> list:
            class Refused:
                error = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)

            return [Refused()]

    with pytest.raises(Exception, match="TOPIC_AUTHORIZATION_FAILED"):
        commit_directly(Refusing(kafka), {IN_A: (1, _of("w0"))})


def test_initialisation_retries_with_a_new_client_while_a_transaction_ends(kafka: Kafka) -> None:
    """The broker rejects the next producer until the open transaction is aborted."""
    made: list[Producer] = []

    def make() -> Producer:
        producer = Producer(kafka, "w0")
        if len(made) < 2:
            producer.failures["init_transactions"] = [error(KafkaError.CONCURRENT_TRANSACTIONS, retriable=True)]
        made.append(producer)
        return producer

    assert init_producer(make, lambda: False, 5.0) is made[2]
    assert kafka.holders["w0"] is made[2]


def test_silent_client_is_replaced_within_two_seconds(kafka: Kafka) -> None:
    """A client that was made while the broker was away may not find it; a new client does at once."""
    made: list[Producer] = []
    waited: list[float] = []

    class Silent(Producer):
        def init_transactions(self, timeout: float = 0) -> None:
            waited.append(timeout)
            raise error(KafkaError._TIMED_OUT, retriable=True)

    def make() -> Producer:
        made.append(Producer(kafka, "w0") if made else Silent(kafka, "w0"))
        return made[-1]

    assert init_producer(make, lambda: False, 5.0) is made[1]
    assert sum(waited) < 2


def test_few_clients_are_made_while_a_transaction_does_not_end(kafka: Kafka) -> None:
    """A partition without a leader keeps it open for minutes; the client then retries by itself."""
    made: list[Producer] = []
    waited: list[float] = []

    class Turned(Producer):
        def init_transactions(self, timeout: float = 0) -> None:
            waited.append(timeout)
            if sum(waited) < 60:
                raise error(KafkaError.CONCURRENT_TRANSACTIONS, retriable=True)
            super().init_transactions(timeout)

    def make() -> Producer:
        made.append(Turned(kafka, "w0"))
        return made[-1]

    assert init_producer(make, lambda: False, 5.0) is made[-1]
    quick, seconds_each = 5, 10
    assert len(made) <= quick + 1 + 60 / seconds_each


def test_initialisation_gives_up_on_a_lasting_error(kafka: Kafka) -> None:
    """A worker without permission for its transactional id reports it at once."""
    producer = Producer(kafka, "w0")
    producer.failures["init_transactions"] = [error(KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)]
    with pytest.raises(BrokerError, match="cannot begin transactions"):
        init_producer(lambda: producer, lambda: False, 5.0)


def test_epoch_grows_from_the_highest_of_a_tasks_inputs() -> None:
    """An added input has no epoch; the owner has that of the others."""
    committed = {IN_A: CommittedOffset(1, _of("w0", 5)), ADDED: CommittedOffset(None, OffsetMetadata())}
    assert next_epoch(committed) == 6


@pytest.mark.parametrize(
    ("previous", "owners", "expected"),
    [
        ("w0", ["w0", None], True),
        ("w0", ["w0", "w3"], True),
        ("w0", ["w3"], False),
        ("w0", [None], False),
        (None, [None, None], True),
        (None, [None, "w0"], False),
    ],
)
def test_task_can_be_taken_only_from_its_owner(previous: str | None, owners: list, expected: bool) -> None:
    """From a worker that an input names; without an owner only if no input names one."""
    committed = {Partition("in", each): CommittedOffset(1, _of(owner)) for each, owner in enumerate(owners)}
    assert takeable(previous, committed) is expected
    assert claim_of("w9", committed)[1] == min((each for each in owners if each), default=None)


@pytest.mark.parametrize("code", [KafkaError._TIMED_OUT, KafkaError._TIMED_OUT_QUEUE, KafkaError._WAIT_COORD])
def test_request_for_offsets_that_timed_out_is_repeated(code: int) -> None:
    """Also one that the client has not sent: the brokers may be starting."""
    answers: list[list[TopicPartition] | KafkaException] = [
        KafkaException(KafkaError(code)),
        [TopicPartition("in", 0, 7)],
    ]

    def committed(_wanted: object, timeout: float) -> list[TopicPartition]:
        answer = answers.pop(0)
        if isinstance(answer, KafkaException):
            raise answer
        return answer

    consumer: Any = SimpleNamespace(committed=committed, poll=lambda _: None)
    store = OffsetStore(lambda: consumer, lambda: None, lambda: consumer, lambda: False, 5.0)
    assert store.read([IN_A])[IN_A].offset == 7


@pytest.mark.parametrize("code", [KafkaError._DESTROY_BROKER, KafkaError.UNKNOWN])
def test_offsets_are_read_again_after_a_broker_was_replaced(kafka: Kafka, code: int) -> None:
    """A frozen broker made the client return this error, which ended the worker; an unclear error may pass, too."""
    consumer = Consumer(kafka)
    consumer.failures.append(error(code))
    store = OffsetStore(lambda: consumer, lambda: None, lambda: Consumer(kafka, stable=False), lambda: False, 5.0)
    assert store.read([IN_A])[IN_A].offset == 10


def test_user_without_the_right_to_the_group_is_told_at_once(kafka: Kafka) -> None:
    """No repetition helps."""
    consumer = Consumer(kafka)
    consumer.failures += [error(KafkaError.GROUP_AUTHORIZATION_FAILED, retriable=True)] * 2
    store = OffsetStore(lambda: consumer, lambda: None, lambda: Consumer(kafka, stable=False), lambda: False, 5.0)
    with pytest.raises(BrokerError, match="cannot read the committed offsets"):
        store.read([IN_A])
    assert len(consumer.failures) == 1


def test_transactions_begin_with_a_new_producer_after_an_error_that_ends_one(kafka: Kafka) -> None:
    """The client does not offer to repeat the call, but another producer may begin."""
    made = []

    def make() -> Producer:
        producer = Producer(kafka, "w0")
        if not made:
            producer.failures["init_transactions"] = [error(KafkaError._DESTROY_BROKER)]
        made.append(producer)
        return producer

    assert init_producer(make, lambda: False, 20.0) is made[1]


def test_right_to_the_group_that_is_missing_is_told_by_an_event(kafka: Kafka) -> None:
    """The request itself only times out."""
    events = [Message(error=KafkaError(KafkaError.GROUP_AUTHORIZATION_FAILED)), None]
    consumer: Any = Consumer(kafka)
    consumer.failures += [error(KafkaError._TIMED_OUT, retriable=True)]
    consumer.poll = lambda _: events.pop(0)
    access = Access("User:alice", "app")
    store = OffsetStore(lambda: consumer, lambda: None, lambda: consumer, lambda: False, 5.0, access)
    with pytest.raises(BrokerError, match=r"authorization failed.*User:alice lacks Read on group 'app'"):
        store.read([IN_A])
