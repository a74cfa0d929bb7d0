"""The application seen through Kafka alone: its committed offsets and its output."""

from __future__ import annotations

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, TopicPartition

from examples.flights.stage.session import APPLICATION_ID

__all__ = ("Lags", "Results")

_TIMEOUT_S = 60.0


class Lags:
    """The committed offsets of the application's inputs: the flights, and its own repartition topic.

    Attributes:
        committed: the number of committed flights.
    """

    def __init__(self, bootstrap_servers: str) -> None:
        # Reads the group's offsets without being a member.
        settings = {
            "bootstrap.servers": bootstrap_servers,
            "group.id": APPLICATION_ID,
            "enable.auto.commit": False,
            "log_level": 2,
            "isolation.level": "read_committed",
            # Offsets of an open transaction are requested again: soon.
            "retry.backoff.ms": 20,
            "retry.backoff.max.ms": 20,
        }
        self._consumer = Consumer(settings)
        # Sees what is written in transactions that have not ended.
        self._writes = Consumer(settings | {"isolation.level": "read_uncommitted"})
        self._flights = TopicPartition("flights", 0)
        self._airports = [TopicPartition(f"{APPLICATION_ID}-by-airport-repartition", each) for each in range(4)]
        self.committed = 0

    def update(self) -> None:
        """Update `committed`."""
        try:
            (flights,) = self._consumer.committed([self._flights], timeout=_TIMEOUT_S)
        except KafkaException as error:
            if not error.args[0].retriable():
                raise
            return
        self.committed = max(self.committed, flights.offset)

    def drained(self, flights: int) -> bool:
        """Return whether so many flights and their results are committed.

        The transaction that commits the last flight also writes it to the repartition topic. When the committed offsets
        of that topic are at its ends too, nothing is left; the last offset is the transaction's marker, not a record.
        That marker may be written after those offsets are visible: until then nothing is known.
        """
        if self.committed < flights:
            return False
        airports = self._consumer.committed(self._airports, timeout=_TIMEOUT_S)
        ends = [_end(self._consumer, each) for each in airports]
        if ends != [_end(self._writes, each) for each in airports]:
            return False
        return any(ends) and all(each.offset >= end - 1 for each, end in zip(airports, ends, strict=True) if end)

    def close(self) -> None:
        """Close the connections."""
        self._consumer.close()
        self._writes.close()


class Results:
    """A `read_committed` reader of the output topic, from its beginning.

    Attributes:
        records: keys and values as bytes, in the order of reading.
    """

    def __init__(self, bootstrap_servers: str, topic: str, partitions: int) -> None:
        settings = {
            "bootstrap.servers": bootstrap_servers,
            "group.id": f"{APPLICATION_ID}-reader",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "log_level": 2,
            "isolation.level": "read_committed",
        }
        self._consumer = Consumer(settings)
        self._writes = Consumer(settings | {"isolation.level": "read_uncommitted"})
        self._partitions = partitions
        self._ended: set[int] = set()
        self._consumer.assign([TopicPartition(topic, each, OFFSET_BEGINNING) for each in range(partitions)])
        self.records: list[tuple[bytes, bytes]] = []

    def poll(self, wait_s: float = 0.0) -> None:
        """Read new records; wait for them at most so many seconds."""
        for message in self._consumer.consume(5_000, wait_s):
            error = message.error()
            if error is None:
                self.records.append((message.key() or b"", message.value() or b""))
                self._ended.discard(message.partition() or 0)
            elif error.code() == KafkaError._PARTITION_EOF:
                self._ended.add(message.partition() or 0)
            elif not error.retriable():
                raise KafkaException(error)

    def read_to_end(self) -> None:
        """Wait until no transaction is open, then read until every partition has reported its end once more."""
        while any(_end(self._consumer, each) != _end(self._writes, each) for each in self._consumer.assignment()):
            self.poll(0.05)
        self._ended.clear()
        for each in self._consumer.position(self._consumer.assignment()):
            if each.offset < 0:  # nothing was read of it yet
                each.offset = OFFSET_BEGINNING
            self._consumer.seek(each)  # the end is reported only once, unless the partition is fetched anew
        while len(self._ended) < self._partitions:
            self.poll(0.5)

    def close(self) -> None:
        """Close the connections."""
        self._consumer.close()
        self._writes.close()


def _end(consumer: Consumer, partition: TopicPartition) -> int:
    """Return the end of a partition; for a reader of committed records, before the first open transaction."""
    return int(consumer.get_watermark_offsets(partition, timeout=_TIMEOUT_S)[1])
