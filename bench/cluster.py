"""The broker of a bench: topics of a run, and committed offsets of a group."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

_TIMEOUT: Final = 30.0  # seconds for one request

BROKER: Final = {
    "log.segment.delete.delay.ms": "1000",  # deleted topics free the disk after a second, not a minute
    "broker.session.timeout.ms": "30000",  # a busy machine must not make it look dead
}
"""Settings of the broker."""
JVM: Final = ("-XX:-UsePerfData",)
"""Options of every JVM: without them it writes statistics to a mapped file, and stops while the disk is busy."""


class Cluster:
    """One broker."""

    def __init__(self, bootstrap: str) -> None:
        """Connect lazily to `bootstrap` (`host:port`)."""
        self.bootstrap = bootstrap
        self._admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})  # this client outlives the broker

    def create(self, topic: str, partitions: int, replicas: int = 1) -> None:
        """Create `topic` without retention.

        Raises:
            KafkaException: the broker rejected it.
        """
        config = {"retention.ms": "-1"}
        new = NewTopic(topic, num_partitions=partitions, replication_factor=replicas, config=config)
        self._admin.create_topics([new])[topic].result(_TIMEOUT)

    def delete(self, prefixes: Iterable[str]) -> None:
        """Delete every topic whose name starts with one of `prefixes`; ignore topics that do not exist any more."""
        wanted = tuple(prefixes)
        names = [name for name in self._admin.list_topics(timeout=_TIMEOUT).topics if name.startswith(wanted)]
        if names:
            for deleted in self._admin.delete_topics(names).values():
                deleted.exception(_TIMEOUT)

    def size(self, topic: str, partitions: int) -> int:
        """Return the sum of the end offsets of `topic`.

        Raises:
            KafkaException: the broker did not answer in time.
        """
        return self.ends([TopicPartition(topic, partition) for partition in range(partitions)])

    def ends(self, partitions: Iterable[TopicPartition]) -> int:
        """Return the sum of the end offsets of `partitions`.

        Raises:
            KafkaException: the broker did not answer in time.
        """
        latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]
        asked = dict.fromkeys(partitions, latest)
        return sum(each.result(_TIMEOUT).offset for each in self._admin.list_offsets(asked).values())

    def partitions(self, prefix: str, *, but: str) -> list[TopicPartition]:
        """Return the partitions of all topics whose names start with `prefix` and do not end with `but`."""
        return [
            TopicPartition(name, partition)
            for name, topic in self._admin.list_topics(timeout=_TIMEOUT).topics.items()
            if name.startswith(prefix) and not name.endswith(but)
            for partition in topic.partitions
        ]


class Group:
    """The progress of one consumer group through its input, read by a consumer that never joins it.

    Committed offsets are not read by the admin client: librdkafka 2.16 crashes if there is no coordinator of the group
    yet.
    """

    def __init__(self, cluster: Cluster, group: str, topic: str, partitions: int) -> None:
        """Watch `group` on all `partitions` of `topic`, and on its own repartition topics, named after it."""
        # read_uncommitted: returns at once, with the offsets before the open transaction, instead of waiting for its
        # end.
        self._consumer = Consumer(
            {
                "bootstrap.servers": cluster.bootstrap,
                "group.id": group,
                "enable.auto.commit": False,
                "isolation.level": "read_uncommitted",
                "log_level": 0,
            }
        )
        self._cluster = cluster
        self._prefix = f"{group}-"
        self._asked = [TopicPartition(topic, partition) for partition in range(partitions)]
        self._inner: list[TopicPartition] | None = None

    def committed(self) -> int:
        """Return the sum of the input's offsets, less the records that wait in repartition topics; 0 without an answer.

        A record of the input counts only when all that follows from it is processed. The marker at the end of a
        transaction is not waited for: no client commits its offset before the next record.
        """
        committed = self._sum(self._asked)
        if not committed:
            return 0
        if self._inner is None:
            self._inner = self._cluster.partitions(self._prefix, but="-changelog")
        if not self._inner:
            return committed
        backlog = self._cluster.ends(self._inner) - self._sum(self._inner) - len(self._inner)
        return committed - max(0, backlog)

    def close(self) -> None:
        """Close the connection."""
        self._consumer.close()

    def _sum(self, asked: list[TopicPartition]) -> int:
        try:
            answer = self._consumer.committed(asked, timeout=_TIMEOUT)
        except KafkaException:
            return 0
        return sum(max(0, partition.offset) for partition in answer)
