"""Topic ids, configurations and offsets from a real broker, on which reusing local state depends."""

from __future__ import annotations

from datetime import timedelta

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer

from millpond.errors import BrokerError
from millpond.runtime.kafka.admin import KafkaAdmin
from millpond.runtime.offsets.metadata import Partition
from millpond.runtime.topics.identity import TopicIdentity
from tests.conftest import CreateTopic
from tests.support import kafka
from tests.support.broker import Broker


@pytest.fixture
def cluster(broker: Broker) -> KafkaAdmin:
    """An admin client of the broker."""
    settings = {"bootstrap.servers": broker.bootstrap_servers}
    return KafkaAdmin(settings, patience=timedelta(seconds=30), stopping=lambda: False)


def test_topic_created_again_has_another_id(broker: Broker, create_topic: CreateTopic, cluster: KafkaAdmin) -> None:
    """Its name is the same."""
    topic = create_topic("log", cleanup_policy="compact", delete_retention_ms="5000", max_message_bytes="7000")
    before = cluster.facts([topic])[topic]
    assert before == TopicIdentity(before.id, 5_000, only_compacted=True)
    assert cluster.facts([topic])[topic] == before
    assert cluster.max_message_bytes(topic) == 7_000
    kafka.delete_topics(broker.bootstrap_servers, [topic])
    kafka.eventually(lambda: topic not in kafka.topic_names(broker.bootstrap_servers), "it is deleted")
    kafka.create_topic(broker.bootstrap_servers, topic)
    after = cluster.facts([topic])[topic]
    assert after.id not in {"", before.id}
    assert after.delete_retention_ms is None
    assert not after.only_compacted


def test_end_offsets_exclude_open_transactions(
    broker: Broker, create_topic: CreateTopic, cluster: KafkaAdmin, app_id: str
) -> None:
    """A copy is complete without uncommitted records."""
    topic = create_topic("log")
    source = Partition(topic, 0)

    def end() -> int:
        return int(cluster.ask_ends([source])[source].result(60).offset)

    kafka.produce(broker.bootstrap_servers, topic, [("a", "1")])
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "transactional.id": app_id}, logger=kafka.log)
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce(topic, b"2")
    producer.flush(60)
    assert (end(), cluster.ranges([source])[source]) == (1, (0, 2))
    producer.commit_transaction(60)
    kafka.eventually(lambda: end() == 3, "the marker of the transaction is written")


def test_unanswered_request_fails_without_a_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next request is sent by a new client."""
    monkeypatch.setattr("millpond.runtime.kafka.admin._REQUEST_TIMEOUT_S", 0.2)
    silent = KafkaAdmin({"bootstrap.servers": "127.0.0.1:1"}, patience=timedelta(), stopping=lambda: False)
    answer = silent.ask_ends([Partition("log", 0)])[Partition("log", 0)]
    with pytest.raises(KafkaException):
        answer.result(60)
    with pytest.raises(BrokerError):
        silent.facts(["log"])


def test_ends_that_a_new_leader_does_not_know_are_awaited(monkeypatch: pytest.MonkeyPatch) -> None:
    """For a moment after its election, a leader does not know the end offset (KIP-207)."""
    cluster = KafkaAdmin({"bootstrap.servers": "127.0.0.1:1"}, patience=timedelta(seconds=30), stopping=lambda: False)
    answers = [KafkaException(KafkaError(KafkaError.OFFSET_NOT_AVAILABLE)), {Partition("log", 0): 0}]

    def listed(*_: object) -> object:
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        if isinstance(answer, KafkaException):
            raise answer
        return answer

    monkeypatch.setattr("millpond.runtime.kafka.admin.read_offsets", listed)
    monkeypatch.setattr("millpond.runtime.kafka.admin.answers", lambda *_: True)
    assert cluster.ranges([Partition("log", 0)]) == {Partition("log", 0): (0, 0)}


def test_offsets_by_time_are_those_of_the_first_record_that_is_not_older(
    broker: Broker, create_topic: CreateTopic, cluster: KafkaAdmin
) -> None:
    """A partition whose records are all older has none."""
    source = Partition(create_topic("log"), 0)
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers}, logger=kafka.log)
    for time_ms in (1_000, 5_000, 3_000):
        producer.produce(source.topic, b"x", timestamp=time_ms)
    producer.flush(60)
    found = [cluster.offsets_at({source: time_ms})[source] for time_ms in (0, 2_000, 5_000, 5_001)]
    assert found == [0, 1, 1, None]
    assert cluster.offsets_at({}) == {}
