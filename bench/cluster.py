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

    def create(self, topic: str, partitions: int) -> None:
        """Create `topic` with one replica and without retention.

        Raises:
            KafkaException: the broker rejected it.
        """
        config = {"retention.ms": "-1"}
        new = NewTopic(topic, num_partitions=partitions, replication_factor=1, config=config)
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
        latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]
        asked = {TopicPartition(topic, partition): latest for partition in range(partitions)}
        return sum(each.result(_TIMEOUT).offset for each in self._admin.list_offsets(asked).values())


class Group:
    """The committed offsets of one consumer group, read by a consumer that never joins it.

    Not read by the admin client: librdkafka 2.16 crashes if the group's coordinator does not exist yet.
    """

    def __init__(self, bootstrap: str, group: str, topic: str, partitions: int) -> None:
        """Watch `group` on all `partitions` of `topic`."""
        # read_uncommitted: returns at once, with the offsets before the open transaction, instead of waiting for its
        # end.
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
        """Return the sum of the offsets; 0 while the broker does not answer."""
        try:
            answer = self._consumer.committed(self._asked, timeout=_TIMEOUT)
        except KafkaException:
            return 0
        return sum(max(0, partition.offset) for partition in answer)

    def close(self) -> None:
        """Close the connection."""
        self._consumer.close()
