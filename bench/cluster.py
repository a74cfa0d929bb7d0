"""The bench's dealings with the broker: the topics of a run, and the committed offsets of a group."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

_TIMEOUT: Final = 30.0  # seconds for one request

BROKER: Final = {
    "log.segment.delete.delay.ms": "1000",  # deleted topics free the disk after a second rather than a minute
    "broker.session.timeout.ms": "30000",  # it is never killed here, and a busy machine must not make it look dead
}
"""Broker settings of a bench."""
JVM: Final = ("-XX:-UsePerfData",)
"""Options of every JVM here: by default it writes its statistics to a mapped file, and stops while that file's disk is busy."""


class Cluster:
    """One broker, seen by the bench."""

    def __init__(self, bootstrap: str) -> None:
        """Connect lazily to `bootstrap` (`host:port`)."""
        self.bootstrap = bootstrap
        self._admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})  # it outlives the broker

    def create(self, topic: str, partitions: int) -> None:
        """Create `topic`, one replica, nothing ever deleted from it.

        Raises:
            KafkaException: when the broker refuses.
        """
        config = {"retention.ms": "-1"}
        new = NewTopic(topic, num_partitions=partitions, replication_factor=1, config=config)
        self._admin.create_topics([new])[topic].result(_TIMEOUT)

    def delete(self, prefixes: Iterable[str]) -> None:
        """Delete every topic whose name starts with one of `prefixes`; what is gone already is no error."""
        wanted = tuple(prefixes)
        names = [name for name in self._admin.list_topics(timeout=_TIMEOUT).topics if name.startswith(wanted)]
        if names:
            for deleted in self._admin.delete_topics(names).values():
                deleted.exception(_TIMEOUT)

    def size(self, topic: str, partitions: int) -> int:
        """The sum of the end offsets of `topic`.

        Raises:
            KafkaException: when the broker does not answer.
        """
        latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]
        asked = {TopicPartition(topic, partition): latest for partition in range(partitions)}
        return sum(each.result(_TIMEOUT).offset for each in self._admin.list_offsets(asked).values())


class Group:
    """The committed offsets of one consumer group, read by a consumer that never joins it.

    The admin client could be asked too, but librdkafka 2.16 crashes when the group's coordinator does not exist yet.
    """

    def __init__(self, bootstrap: str, group: str, topic: str, partitions: int) -> None:
        """Watch `group` on all `partitions` of `topic`."""
        # read_uncommitted: an answer at once, with the offsets before the open transaction, rather than a wait for its end.
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "enable.auto.commit": False,
                "isolation.level": "read_uncommitted",
                "log_level": 0,
            }
        )
        self._asked = [TopicPartition(topic, partition) for partition in range(partitions)]

    def committed(self) -> int:
        """The sum of the offsets; 0 as long as the broker has no answer."""
        try:
            answer = self._consumer.committed(self._asked, timeout=_TIMEOUT)
        except KafkaException:
            return 0
        return sum(max(0, partition.offset) for partition in answer)

    def close(self) -> None:
        """Let go of the connection."""
        self._consumer.close()
