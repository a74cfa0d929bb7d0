"""Looking at the application from outside, through Kafka alone: what it has committed, and what it has put out."""

from __future__ import annotations

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, TopicPartition

from examples.flights.stage.session import APPLICATION_ID

__all__ = ("Lags", "Results")

_TIMEOUT_S = 20.0


class Lags:
    """How far the application has committed its inputs: the flights, and its own repartition topic.

    Attributes:
        committed: flights whose effects are committed.
    """

    def __init__(self, bootstrap_servers: str) -> None:
        # Asks for the group's offsets without being a member of it.
        settings = {
            "bootstrap.servers": bootstrap_servers,
            "group.id": APPLICATION_ID,
            "enable.auto.commit": False,
            "log_level": 2,
            "isolation.level": "read_committed",
            # While a transaction is open its offsets are asked for again, and again soon.
            "retry.backoff.ms": 20,
            "retry.backoff.max.ms": 20,
        }
        self._consumer = Consumer(settings)
        self._flights = TopicPartition("flights", 0)
        self._airports = [TopicPartition(f"{APPLICATION_ID}-by-airport-repartition", each) for each in range(4)]
        self.committed = 0

    def look(self) -> None:
        """Bring `committed` up to date."""
        try:
            (flights,) = self._consumer.committed([self._flights], timeout=_TIMEOUT_S)
        except KafkaException as error:
            if not error.args[0].retriable():
                raise
            return
        self.committed = max(self.committed, flights.offset)

    def drained(self, flights: int) -> bool:
        """Whether that many flights, and all that follows from them, are committed.

        The transaction that commits the last flight also writes it to the repartition topic. When the offsets of that
        topic are at its ends too, there is nothing left; the last offset is no record but the transaction's own mark.
        """
        if self.committed < flights:
            return False
        airports = self._consumer.committed(self._airports, timeout=_TIMEOUT_S)
        ends = [self._consumer.get_watermark_offsets(each, timeout=_TIMEOUT_S)[1] for each in airports]
        return any(ends) and all(each.offset >= end - 1 for each, end in zip(airports, ends, strict=True) if end)

    def close(self) -> None:
        """Let go of the broker."""
        self._consumer.close()


class Results:
    """Reads the output topic from its beginning, `read_committed`, while it grows.

    Attributes:
        records: keys and values, as bytes, in the order they were read.
    """

    def __init__(self, bootstrap_servers: str, topic: str, partitions: int) -> None:
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap_servers,
                "group.id": f"{APPLICATION_ID}-reader",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "log_level": 2,
                "isolation.level": "read_committed",
            }
        )
        self._partitions = partitions
        self._ended: set[int] = set()
        self._consumer.assign([TopicPartition(topic, each, OFFSET_BEGINNING) for each in range(partitions)])
        self.records: list[tuple[bytes, bytes]] = []

    def poll(self, wait_s: float = 0.0) -> None:
        """Take what is there, waiting for it at most so long."""
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
        """Read until every partition has said once more that there is nothing behind what was read."""
        self._ended.clear()
        for each in self._consumer.position(self._consumer.assignment()):
            self._consumer.seek(each)  # a partition says only once that it has ended, unless it is fetched anew
        while len(self._ended) < self._partitions:
            self.poll(0.5)

    def close(self) -> None:
        """Let go of the broker."""
        self._consumer.close()
