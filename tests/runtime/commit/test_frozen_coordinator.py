"""Three brokers, of which the one that coordinates a group is frozen and continues when another one has replaced it."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import NewTopic

from millpond.runtime.commit.pipeline import topic_partitions
from millpond.runtime.commit.unchanged_offsets import OffsetsChanged
from millpond.runtime.kafka.consumer_threads import ConsumerThreads
from millpond.runtime.kafka.replaceable_consumer import close_in_background
from millpond.runtime.offsets.metadata import CommittedOffset, OffsetMetadata, Partition
from millpond.runtime.ownership.takeover import OffsetStore, commit_under
from tests.support import kafka
from tests.support.broker import OwnBroker
from tests.support.clusters.kafka import KafkaCluster

GROUP, ROW = "app", Partition("in", 0)
OWNER = OffsetMetadata("w0", 1, topology="h")

pytestmark = [pytest.mark.long, pytest.mark.timeout(400)]


@pytest.fixture(scope="module")
def cluster(own_brokers: type[OwnBroker], tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaCluster]:
    with KafkaCluster(tmp_path_factory.mktemp("cluster"), make=own_brokers) as made:
        made.create_topics(NewTopic(ROW.topic, 1, 3))
        made.await_all()
        yield made


def _reader(cluster: KafkaCluster, isolation: str = "read_committed") -> Consumer:
    settings = {
        "group.id": GROUP,
        "socket.timeout.ms": 5_000,
        "isolation.level": isolation,
        "enable.auto.commit": False,
    }
    return Consumer({"bootstrap.servers": cluster.bootstrap_servers, **settings}, logger=kafka.log)


def _coordinated_by_another(cluster: KafkaCluster, frozen: int) -> bool:
    try:
        return cluster.group_coordinator(GROUP) not in {frozen, -1}
    except KafkaException:
        return False


def _commit(cluster: KafkaCluster, offset: int) -> bool:
    consumer = _reader(cluster)  # one that knew the frozen broker would wait for it
    try:
        consumer.commit(offsets=topic_partitions({ROW: (offset, OWNER)}), asynchronous=False)
    except KafkaException:
        return False
    finally:
        close_in_background(consumer)
    return True


def test_offsets_of_a_coordinator_that_was_frozen_are_not_used(cluster: KafkaCluster) -> None:
    """Lookups wait for it, another worker commits through its successor, and then it continues, and answers."""
    servers = {"bootstrap.servers": cluster.bootstrap_servers}
    kafka.eventually(lambda: _commit(cluster, 5), "an offset is committed")
    threads = ConsumerThreads("test", 3, lambda: _reader(cluster))
    store = OffsetStore(
        threads.consumer, threads.forget_consumer, lambda: _reader(cluster, "read_uncommitted"), lambda: False, 120.0
    )
    for each in [threads.run(lambda: store.read([ROW])) for _ in range(3)]:
        assert each.result(60)[ROW].offset == 5
    cluster.await_all()
    frozen = cluster.group_coordinator(GROUP)
    with cluster.frozen(frozen):
        kafka.eventually(lambda: _coordinated_by_another(cluster, frozen), "another broker coordinates the group")
        kafka.eventually(lambda: _commit(cluster, 8), "its successor commits")
        lookups = [threads.run(lambda: store.read([ROW])) for _ in range(3)]
        time.sleep(0.5)  # they ask the frozen broker
        cluster.thaw(frozen)
        assert [each.result(120)[ROW].offset for each in lookups] == [8, 8, 8]
    cluster.await_all()

    producer = Producer({**servers, "transactional.id": f"{GROUP}-w0"}, logger=kafka.log)
    producer.init_transactions(60)
    check, group = store.check_unchanged, _reader(cluster).consumer_group_metadata()
    with pytest.raises(OffsetsChanged, match=r"is 8 \(epoch 1\), and this worker continued from 5"):
        commit_under(producer, group, {ROW: (6, OWNER)}, {ROW: CommittedOffset(5, OWNER)}, check)
    commit_under(producer, group, {ROW: (9, OWNER)}, {ROW: CommittedOffset(8, OWNER)}, check)
    assert threads.run(lambda: store.read([ROW])).result(60)[ROW].offset == 9
    threads.close()
