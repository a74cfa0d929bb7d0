"""A Kafka cluster of three processes, which can be stopped, killed and frozen: each is a broker and a controller."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Self

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from millpond.broker import EmbeddedBroker
from millpond.runtime.kafka.leading_brokers import coordinating_partition
from tests.support import set_up
from tests.support.broker import free_port
from tests.support.kafka import eventually

__all__ = ("LED", "NODES", "KafkaCluster")

NODES = (1, 2, 3)
"""The ids of the brokers."""
LED = (_OFFSETS, _TRANSACTIONS) = ("__consumer_offsets", "__transaction_state")
"""The topics whose leaders are coordinators."""
_PARTITIONS = 6
_TIMEOUT_S = 3.0
_CREATED_S = 60.0
_PROPERTIES = {
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "offsets.topic.replication.factor": "3",
    "offsets.topic.num.partitions": str(_PARTITIONS),
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "transaction.state.log.num.partitions": str(_PARTITIONS),
    "share.coordinator.state.topic.replication.factor": "3",
    "share.coordinator.state.topic.min.isr": "2",
    # What a cluster has by default; an embedded broker shortens them, since it is alone.
    "broker.session.timeout.ms": "9000",
    "broker.heartbeat.interval.ms": "2000",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "10000",
    "log.retention.check.interval.ms": "86400000",
}
_JVM = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")


class KafkaCluster:
    """Three brokers with replication factor 3, two in-sync replicas and a rack each: a, b and c.

    Args:
        directory: the directory of the brokers' data and logs.
        properties: settings of all brokers, which override those of this module.
        make: makes one broker from its directory and `port`, `properties`, `heap_mb` and `jvm_options`.
    """

    def __init__(
        self,
        directory: Path,
        properties: dict[str, str] | None = None,
        make: Callable[..., EmbeddedBroker] = EmbeddedBroker,
    ) -> None:
        controllers = {node: free_port() for node in NODES}
        voters = ",".join(f"{node}@127.0.0.1:{port}" for node, port in controllers.items())
        self.brokers: dict[int, EmbeddedBroker] = {}
        for node, controller in controllers.items():
            port = free_port()
            own = {
                "node.id": str(node),
                "broker.rack": "abc"[node - 1],
                "controller.quorum.voters": voters,
                "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}",
            }
            self.brokers[node] = make(
                directory / f"broker-{node}",
                port=port,
                properties=_PROPERTIES | own | (properties or {}),
                heap_mb=384,
                jvm_options=_JVM,
            )
        self._frozen: set[int] = set()
        self.bootstrap_servers = ""

    def start(self) -> Self:
        """Start all brokers at once; return when all are registered.

        Raises:
            BrokerError: one did not become ready.
        """
        with set_up.without_limit(), ThreadPoolExecutor(len(NODES)) as pool:
            list(pool.map(lambda each: each.start(), self.brokers.values()))
        self.bootstrap_servers = ",".join(each.bootstrap_servers for each in self.brokers.values())
        self.admin = self._client()
        self.await_all()
        return self

    def close(self) -> None:
        """Stop all brokers; frozen ones continue first."""
        for node in list(self._frozen):
            self.thaw(node)
        with ThreadPoolExecutor(len(NODES)) as pool:
            list(pool.map(lambda each: each.kill(), self.brokers.values()))
        for each in self.brokers.values():
            each.close()

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.close()
            raise

    def __exit__(self, *_: object) -> None:
        self.close()

    def create_topics(self, *topics: NewTopic) -> None:
        """Create topics; return when each broker that is not frozen knows them, since a client may ask any of them."""
        for made in self.admin.create_topics(list(topics)).values():
            made.result(_CREATED_S)
        names = {topic.topic for topic in topics}

        def known() -> bool:
            # A new client first asks the broker whose address it has.
            try:
                found = [
                    self._client(each).list_topics(timeout=_TIMEOUT_S).topics for each in self.answering.split(",")
                ]
            except KafkaException:
                return False
            return all(names <= topics.keys() and not any(topics[name].error for name in names) for topics in found)

        eventually(known, f"each broker knows {sorted(names)}")

    def freeze(self, node: int) -> None:
        """Stop the process of a broker by SIGSTOP: its connections stay open, and nothing answers."""
        self._signal(node, signal.SIGSTOP)
        self._frozen.add(node)

    def thaw(self, node: int) -> None:
        """Continue a frozen broker; one that runs stays as it is."""
        self._signal(node, signal.SIGCONT)
        self._frozen.discard(node)

    @contextlib.contextmanager
    def frozen(self, node: int) -> Iterator[None]:
        """Freeze a broker for the time of the block."""
        self.freeze(node)
        try:
            yield
        finally:
            self.thaw(node)

    def group_coordinator(self, group: str) -> int:
        """Return the broker that coordinates a group.

        Raises:
            KafkaException: no broker answered.
        """
        return self.leaders(_OFFSETS)[coordinating_partition(group, _PARTITIONS)]

    def transaction_coordinator(self, transactional_id: str) -> int:
        """Return the broker that coordinates the transactions of an id.

        Raises:
            KafkaException: no broker answered.
        """
        return self.leaders(_TRANSACTIONS)[coordinating_partition(transactional_id, _PARTITIONS)]

    def leaders(self, topic: str) -> dict[int, int]:
        """Return the leader of each partition of a topic; -1 if it has none.

        Raises:
            KafkaException: no broker answered.
        """
        try:
            described = self.admin.list_topics(topic, timeout=_TIMEOUT_S).topics[topic]
        except KafkaException:
            self.admin = self._client()  # the other one may wait for a frozen broker
            raise
        return {number: partition.leader for number, partition in described.partitions.items()}

    def in_sync(self) -> bool:
        """Return whether all brokers are registered, and all replicas of all topics are in sync."""
        try:
            found = self.admin.list_topics(timeout=5)
        except KafkaException:
            self.admin = self._client()
            return False
        return len(found.brokers) == len(NODES) and all(
            set(partition.isrs) == set(partition.replicas) and partition.leader in partition.isrs
            for topic in found.topics.values()
            for partition in topic.partitions.values()
        )

    def await_all(self) -> None:
        """Wait until all brokers are registered and all replicas are in sync."""
        eventually(self.in_sync, "all replicas are in sync", timeout_s=120)

    @property
    def answering(self) -> str:
        """The addresses of brokers that are not frozen: a new client may wait for one that is."""
        return ",".join(each.bootstrap_servers for node, each in self.brokers.items() if node not in self._frozen)

    def _client(self, servers: str = "") -> AdminClient:
        return AdminClient({"bootstrap.servers": servers or self.answering, "log_level": 0})

    def _signal(self, node: int, number: int) -> None:
        pid = self.brokers[node].pid
        assert pid is not None, f"broker {node} does not run"
        os.kill(pid, number)
