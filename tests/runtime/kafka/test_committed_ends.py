"""Copies of inputs follow the committed offsets that a real broker returns."""

from __future__ import annotations

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from millpond.runtime.kafka import committed_ends
from millpond.runtime.kafka.committed_ends import CommittedEnds
from millpond.runtime.offsets.metadata import Partition
from tests.conftest import CreateTopic
from tests.support import kafka
from tests.support.broker import Broker


def test_open_transaction_does_not_count(broker: Broker, create_topic: CreateTopic, app_id: str) -> None:
    """A copy follows what its task has committed, and a partition without a commit has been read up to nothing."""
    topic = create_topic("log", partitions=2)
    read, unread = Partition(topic, 0), Partition(topic, 1)
    settings = {"bootstrap.servers": broker.bootstrap_servers, "group.id": app_id}
    ends = CommittedEnds(lambda: Consumer({**settings, "isolation.level": "read_uncommitted"}, logger=kafka.log))
    consumer = Consumer(settings, logger=kafka.log)
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "transactional.id": app_id}, logger=kafka.log)
    producer.init_transactions(60)

    def commit(offset: int) -> None:
        producer.begin_transaction()
        offsets = [TopicPartition(topic, 0, offset)]
        producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), 20)

    def committed() -> list[int]:
        try:
            return [int(each.result(60).offset) for each in ends.ask_ends([read, unread]).values()]
        except KafkaException:
            return []  # the group has no coordinator yet

    commit(3)
    kafka.eventually(lambda: committed() == [0, 0], "the group has its coordinator")
    producer.commit_transaction(60)
    kafka.eventually(lambda: committed() == [3, 0], "the offset is committed")
    commit(5)
    assert committed() == [3, 0]
    producer.abort_transaction(60)
    consumer.close()
    ends.close()


def test_request_without_an_answer_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """The copy then keeps its bound."""
    monkeypatch.setattr(committed_ends, "_REQUEST_TIMEOUT_S", 0.2)
    ends = CommittedEnds(
        lambda: Consumer({"bootstrap.servers": "127.0.0.1:1", "group.id": "group", "log_level": 0}, logger=kafka.log)
    )
    answer = ends.ask_ends([Partition("log", 0)])[Partition("log", 0)]
    with pytest.raises(KafkaException):
        answer.result(60)
    ends.unanswered()
    ends.close()
