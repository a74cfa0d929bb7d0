"""Input and output: a generator with a steady rate, and a `read_committed` probe, each in a thread."""

from __future__ import annotations

import threading
import time
from typing import Final

from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition

from bench.failover.analysis import GAP_FLOOR_US, Correctness, Gap, Move, Track
from bench.failover.records import PARTITIONS, keys, now_us, parse, record
from millpond.runtime.kafka.clients import CLIENT_DEFAULTS

_TICK: Final = 0.002  # seconds between two small bursts: one record per partition at 4,000 per second
_POLL: Final = 0.02
_BATCH: Final = 1000
_FLUSH: Final = 30.0
_READER_SILENCE_MS: Final = 5_000  # otherwise a reader waits a minute for a frozen broker, and the pause is its own


class Arrivals:
    """When something last arrived for each partition, and the gaps between two arrivals.

    Its methods may be called by several threads.
    """

    def __init__(self) -> None:
        """Nothing has arrived yet."""
        self._last: dict[int, int] = {}
        self._gaps: list[Gap] = []

    def add(self, partition: int, at_us: int) -> None:
        """Note an arrival."""
        before = self._last.get(partition)
        if before is not None and at_us - before >= GAP_FLOOR_US:
            self._gaps.append(Gap(partition, at_us, at_us - before))
        self._last[partition] = at_us

    def since(self, at_us: int) -> int:
        """Return in how many partitions something arrived later than `at_us`."""
        return sum(last > at_us for last in list(self._last.values()))

    def longest(self, from_us: int, to_us: int) -> Gap:
        """Return the longest gap that ended in a time; one that lasts counts up to its end.

        There has to be an arrival before that end.
        """
        ended = [gap for gap in list(self._gaps) if from_us < gap.end_us <= to_us]
        lasting = [Gap(each, to_us, to_us - last) for each, last in list(self._last.items()) if last <= to_us]
        return max([*ended, *lasting], key=lambda gap: gap.length_us)


class Generator(threading.Thread):
    """Sends `rate` records per second to the partitions in turn, each with its number and send time."""

    def __init__(self, bootstrap: str, topic: str, rate: int, arrivals: Arrivals | None = None) -> None:
        """Send to `topic`, which has `PARTITIONS` partitions, from `start()` to `stop()`.

        Args:
            bootstrap: addresses of brokers.
            topic: the input topic.
            rate: records per second.
            arrivals: gets the time of each acknowledgement.
        """
        super().__init__(name="generator", daemon=True)
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                # In order, and without repeats by retries, which would count against the side.
                "enable.idempotence": True,
                # When a leader moves, a later request may arrive before an earlier one that is sent again. The client
                # then begins a new epoch and sends all of them again, also those that are stored.
                "max.in.flight.requests.per.connection": 1,
                "linger.ms": 1,
                # Otherwise what a frozen broker leads has no input for a minute, whatever the application does.
                "socket.timeout.ms": CLIENT_DEFAULTS["socket.timeout.ms"],
                "log_level": 3,
            }
        )
        self._topic = topic
        self._rate = rate
        self._arrivals = arrivals
        self._ended = threading.Event()
        self.sent = [0] * PARTITIONS
        """Records sent per partition."""
        self.longest_gap_us = 0
        """The longest time between two bursts."""
        self.failure: str | None = None

    def run(self) -> None:
        """Send until `stop`."""
        all_keys = keys()
        begin, total, last = time.monotonic(), 0, now_us()
        while not self._ended.wait(_TICK):
            due = int((time.monotonic() - begin) * self._rate)
            now = now_us()
            self.longest_gap_us = max(self.longest_gap_us, now - last)
            last = now
            for each in range(total, due):
                partition, number = each % PARTITIONS, each // PARTITIONS
                mine = all_keys[partition]
                self._producer.produce(
                    self._topic, record(number, now), mine[number % len(mine)], partition, on_delivery=self._delivered
                )
                self.sent[partition] = number + 1
            total = due
            self._producer.poll(0)
        if left := self._producer.flush(_FLUSH):
            self.failure = f"{left} records could not be sent"

    def stop(self) -> list[int]:
        """Stop; return the number of records per partition.

        Raises:
            KafkaException: a record was not delivered.
        """
        self._ended.set()
        self.join()
        if self.failure is not None:
            raise KafkaException(self.failure)
        return self.sent

    def _delivered(self, error: object, message: Message) -> None:
        if error is not None:
            self.failure = str(error)
        elif self._arrivals is not None:
            self._arrivals.add(message.partition() or 0, now_us())


class Probe(threading.Thread):
    """Reads the output topic from its beginning, `read_committed`, and keeps what `analysis` needs."""

    def __init__(self, bootstrap: str, topic: str, arrivals: Arrivals | None = None) -> None:
        """Read `topic`, which has `PARTITIONS` partitions, from `start()` to `stop()`; `arrivals` gets their times."""
        super().__init__(name="probe", daemon=True)
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": f"{topic}-probe",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "fetch.wait.max.ms": 10,
                "socket.timeout.ms": _READER_SILENCE_MS,
                "log_level": 3,
            }
        )
        self._consumer.assign([TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
        self._arrivals = arrivals
        self._ended = threading.Event()
        self._tracks = [Track(partition) for partition in range(PARTITIONS)]
        self.failure: str | None = None

    def run(self) -> None:
        """Read until `stop`."""
        while not self._ended.is_set():
            message = self._consumer.poll(_POLL)
            if message is None:
                continue
            # With a timeout, consume() would wait for a full batch.
            messages = [message, *self._consumer.consume(_BATCH, 0)]
            now = now_us()
            for message in messages:
                if (error := message.error()) is not None:
                    self.failure = str(error)
                    continue
                partition, value = message.partition(), message.value()
                assert partition is not None
                assert isinstance(value, bytes)
                self._tracks[partition].observe(parse(partition, value, now))
                if self._arrivals is not None:
                    self._arrivals.add(partition, now)
        self._consumer.close()

    def stop(self) -> None:
        """Stop, and close the connection."""
        self._ended.set()
        self.join()

    def owner(self, partition: int) -> str | None:
        """Return the process of the newest result of `partition`."""
        last = self._tracks[partition].last
        return None if last is None else last.owner

    def owned_by(self, owner: str) -> list[int]:
        """Return the partitions whose newest result is of the process `owner`."""
        return [partition for partition in range(PARTITIONS) if self.owner(partition) == owner]

    def seen(self, partition: int) -> int:
        """Return the number of records of `partition` up to the newest result, including lost ones."""
        return self._tracks[partition].next_number

    @property
    def moves(self) -> list[Move]:
        """Return all changes of owner so far."""
        return [move for track in self._tracks for move in track.moves]

    @property
    def gaps(self) -> list[Gap]:
        """Return all gaps kept so far."""
        return [gap for track in self._tracks for gap in track.gaps]

    def finish(self, sent: list[int]) -> Correctness:
        """Return the violations of exactly-once, after a pause for the last results."""
        total = Correctness()
        for track, records in zip(self._tracks, sent, strict=True):
            track.finish(records)
            total.results += track.correctness.results
            total.lost += track.correctness.lost
            total.twice += track.correctness.twice
            total.wrong += track.correctness.wrong
        return total
