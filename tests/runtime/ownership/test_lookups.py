"""Lookups and take-overs in threads beside the loop, whose consumers get no answer or fail."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import KafkaError, TopicPartition

from millpond.runtime.kafka.consumer_threads import ConsumerThreads
from millpond.runtime.offsets.metadata import OffsetMetadata, Partition
from millpond.runtime.ownership import takeover
from millpond.runtime.ownership.lookups import OwnershipLookups, TakeOverAnswer
from millpond.runtime.ownership.takeover import OffsetStore
from millpond.topology import TaskId
from tests.runtime.memory_kafka import Consumer, Kafka, Producer, error

A, IN_A = TaskId(0, 0), Partition("in", 0)


class Client(Consumer):
    """A consumer whose first requests get no answer, or fail; a closed one cannot be used, as with the real client.

    Attributes:
        silent: the number of requests that get no answer, of all consumers.
    """

    silent: int

    def __init__(self, kafka: Kafka, made: list[Client]) -> None:
        super().__init__(kafka)
        self._closed = False
        self._made = made
        made.append(self)

    def _check(self) -> None:
        if self._closed:
            raise RuntimeError("Consumer closed")

    def committed(self, partitions: list[TopicPartition], timeout: float = 0) -> list[TopicPartition]:
        self._check()
        first = self._made[0]
        if first.silent:
            first.silent -= 1
            raise error(KafkaError._TIMED_OUT, retriable=True)
        return super().committed(partitions, timeout)

    def consumer_group_metadata(self) -> str:
        self._check()
        return super().consumer_group_metadata()

    def close(self) -> None:
        self._closed = True


class Scene:
    """A worker's lookups, with real threads on a Kafka in memory.

    Attributes:
        silent: the number of requests for committed offsets that get no answer.
    """

    def __init__(self) -> None:
        self.kafka = Kafka()
        self.kafka.append("in", "a", "1")
        self.kafka.commit(IN_A, 1, OffsetMetadata("w0", 3, topology="h"))
        self.consumers: list[Client] = []
        self.failures: list[Exception] = []
        self.fenced = 0
        self._silent = 0
        self.threads = ConsumerThreads("lookups", 1, self._consumer)
        cluster: Any = self.kafka
        store = OffsetStore(self.threads.consumer, self.threads.forget_consumer, self._surveyor, lambda: False, 5.0)
        self.lookups = OwnershipLookups(
            self.threads, cluster, store, lambda _: ([IN_A], []), self._fencing, lambda *_: 0, lambda _: None, "h"
        )

    def silence(self, requests: int) -> None:
        """Let a number of requests for committed offsets get no answer."""
        self._silent = requests

    def _consumer(self) -> Any:
        client = Client(self.kafka, self.consumers)
        client.silent, self._silent = self._silent, 0
        return client

    def _surveyor(self) -> Any:
        return Consumer(self.kafka, stable=False)

    def _fencing(self, owner: str) -> Any:
        self.fenced += 1
        producer = Producer(self.kafka, owner)
        producer.init_transactions()
        if self.failures:
            raise self.failures.pop(0)
        return producer


@pytest.fixture
def scene() -> Iterator[Scene]:
    """Lookups of a worker; the one task is owned by another worker."""
    made = Scene()
    yield made
    made.threads.close()


def test_take_over_commits_with_the_consumer_that_got_an_answer(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """The joint read and the first stable read get no answer, so the thread's consumer is closed and replaced."""
    monkeypatch.setattr(takeover, "_REQUEST_TIMEOUT_S", 0.0)
    scene.silence(2)
    answer = scene.lookups.take_over_now("w0", {A: "w1"})
    assert answer == TakeOverAnswer("w0", {A: "w1"})
    assert len(scene.consumers) == 2
    assert scene.kafka.committed(IN_A).metadata.owner == "w1"


def test_unexpected_error_of_a_take_over_is_followed_by_a_new_fencing_and_a_new_read(scene: Scene) -> None:
    """The loop gets the answer of the second attempt, and the worker goes on."""
    scene.failures.append(RuntimeError("nobody expected this"))
    scene.lookups.take_over("w0", {A: "w1"})
    answer = _answer(scene)
    assert answer == TakeOverAnswer("w0", {A: "w1"})
    assert scene.fenced == 2


def test_error_that_comes_again_ends_the_worker(scene: Scene) -> None:
    """A defect that stays is told, instead of being tried for ever."""
    scene.failures += [RuntimeError("first"), RuntimeError("second")]
    scene.lookups.take_over("w0", {A: "w1"})
    with pytest.raises(RuntimeError, match="second"):
        _answer(scene)


def _answer(scene: Scene) -> Any:
    while True:
        for answer in scene.lookups.answers():
            return answer
