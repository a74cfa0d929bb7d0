"""Committed offsets that go back in an unclean leader election of `__consumer_offsets`, on a real cluster of three."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import NewTopic

import millpond as mp
from millpond.errors import OffsetsLost
from millpond.runtime.kafka.clients import log
from millpond.runtime.kafka.leading_brokers import coordinating_partition
from tests.runtime.running import Running
from tests.support import kafka
from tests.support.broker import OwnBroker
from tests.support.clusters.kafka import NODES, KafkaCluster

_OFFSETS, _TRANSACTIONS = "__consumer_offsets", "__transaction_state"
#: Two replicas of each offset: the third broker keeps a majority of the controllers while one of the two is down. All
#: other topics have three replicas.
_BROKERS = {
    "offsets.topic.replication.factor": "2",
    "broker.session.timeout.ms": "6000",
    "broker.heartbeat.interval.ms": "500",
}
#: One replica of offsets is enough, and one that lags may lead. Other topics lose nothing.
_UNCLEAN = {"unclean.leader.election.enable": "true", "min.insync.replicas": "1"}


@pytest.fixture
def cluster(own_brokers: type[OwnBroker], tmp_path: Path) -> Iterator[KafkaCluster]:
    """Three brokers, of which two know each offset."""
    with KafkaCluster(tmp_path / "cluster", _BROKERS, make=own_brokers) as made:
        yield made


def _copied() -> mp.Topology:
    builder = mp.StreamsBuilder()
    builder.stream("in", key=mp.String, value=mp.String).to("out")
    return builder.build()


@pytest.mark.long
@pytest.mark.timeout(900)
def test_worker_stops_and_names_the_commits_that_were_lost(cluster: KafkaCluster, app_id: str, tmp_path: Path) -> None:
    """No record is processed twice: the result of each is there once when the worker has ended."""
    cluster.create_topics(NewTopic("in", 1, 3), NewTopic("out", 1, 3))
    number = coordinating_partition(app_id, 6)
    settings = {"processing.guarantee": "exactly_once", "task.timeout.ms": 240_000}

    def produce(first: int, count: int) -> None:
        kafka.produce(cluster.answering, "in", [("k", str(each)) for each in range(first, first + count)])

    def committed() -> int:
        return kafka.committed_offsets(cluster.answering, app_id, "in").get(0, (0, None))[0]

    def partition(topic: str, number: int) -> Any:
        # A client that knows a frozen broker may wait for it.
        found = kafka.admin(cluster.answering).list_topics(topic, timeout=30)
        return found.topics[topic].partitions[number]

    def offsets_partition() -> Any:
        return partition(_OFFSETS, number)

    def others_follow(leader: int, follower: int) -> bool:
        (third,) = {*NODES} - {leader, follower}
        rest = [partition(topic, 0) for topic in ("in", "out")]
        rest += [partition(_TRANSACTIONS, each) for each in range(6)]
        return all(third in each.isrs for each in rest)

    running = Running(_copied(), cluster.bootstrap_servers, app_id, tmp_path / "state", settings).start()
    try:
        produce(0, 100)
        running.wait(lambda: committed() == 100, "100 records are committed", 90)
        kafka.alter_topic(cluster.answering, _OFFSETS, **_UNCLEAN)
        kafka.eventually(lambda: len(offsets_partition().isrs) == 2, "both replicas are in sync", 90)
        leader = offsets_partition().leader
        (follower,) = set(offsets_partition().replicas) - {leader}
        cluster.freeze(follower)
        kafka.eventually(lambda: offsets_partition().isrs == [leader], "the follower is out of sync", 90)
        produce(100, 100)
        running.wait(lambda: committed() == 200, "200 records are committed, which one broker knows", 120)
        kafka.eventually(lambda: others_follow(leader, follower), "the third broker has all the rest", 90)
        cluster.brokers[leader].kill()
        cluster.thaw(follower)
        kafka.eventually(lambda: offsets_partition().leader == follower, "the follower leads", 90)
        kafka.eventually(lambda: committed() == 100, "the commits are lost", 90)
        # The worker would commit later offsets, from memory: it has to look them up.
        other = Producer({"bootstrap.servers": cluster.answering, "transactional.id": f"{app_id}-w0"}, logger=log)
        other.init_transactions(60)
        produce(200, 10)
        error = running.join(180)
    finally:
        running.worker.stop()
        running.join(90)
    assert isinstance(error, OffsetsLost), error
    assert f"group '{app_id}' have gone back: in-0 at 100 instead of 200." in str(error)
    assert [int(row.value or b"") for row in kafka.read(cluster.answering, "out")] == list(range(200))
