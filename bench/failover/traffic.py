"""What goes in and what comes out: a generator at a steady rate, and a `read_committed` probe. Each is a thread."""

from __future__ import annotations

import threading
import time
from typing import Final

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from bench.failover.analysis import Correctness, Gap, Move, Track
from bench.failover.records import PARTITIONS, keys, now_us, parse, record

_TICK: Final = 0.002  # seconds between two small bursts: a record per partition at 4,000 a second
_POLL: Final = 0.02
_BATCH: Final = 1000
_FLUSH: Final = 30.0


class Generator(threading.Thread):
    """Sends `rate` records a second, to the partitions in turn, each with its number and the moment of its sending."""

    def __init__(self, bootstrap: str, topic: str, rate: int) -> None:
        """Send to `topic`, which has `PARTITIONS` partitions, from `start()` to `stop()`."""
        super().__init__(name="generator", daemon=True)
        # Idempotent: in order, and none twice because of a retry, or the probe would blame it on the side.
        self._producer = Producer(
            {"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 1, "log_level": 3}
        )
        self._topic = topic
        self._rate = rate
        self._ended = threading.Event()
        self.sent = [0] * PARTITIONS
        """Records per partition so far."""
        self.longest_gap_us = 0
        """The longest time between two bursts: how steady the input really was."""
        self.failure: str | None = None

    def run(self) -> None:
        """Send until told to stop."""
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
        """End, and return how many records each partition got.

        Raises:
            KafkaException: when one did not reach the broker.
        """
        self._ended.set()
        self.join()
        if self.failure is not None:
            raise KafkaException(self.failure)
        return self.sent

    def _delivered(self, error: object, _message: object) -> None:
        if error is not None:
            self.failure = str(error)


class Probe(threading.Thread):
    """Reads the output topic from its beginning, `read_committed`, and keeps what `analysis` needs of it."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        """Read `topic`, which has `PARTITIONS` partitions, from `start()` to `stop()`."""
        super().__init__(name="probe", daemon=True)
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": f"{topic}-probe",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "fetch.wait.max.ms": 10,
                "log_level": 3,
            }
        )
        self._consumer.assign([TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
        self._ended = threading.Event()
        self._tracks = [Track(partition) for partition in range(PARTITIONS)]
        self.failure: str | None = None

    def run(self) -> None:
        """Read until told to stop."""
        while not self._ended.is_set():
            message = self._consumer.poll(_POLL)
            if message is None:
                continue
            # consume() would wait for a full batch if it were given time: only what is there already.
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
        self._consumer.close()

    def stop(self) -> None:
        """End and let go of the connection."""
        self._ended.set()
        self.join()

    def owner(self, partition: int) -> str | None:
        """The process that made the newest result of `partition`."""
        last = self._tracks[partition].last
        return None if last is None else last.owner

    def owned_by(self, owner: str) -> list[int]:
        """The partitions whose newest result is of the process `owner`."""
        return [partition for partition in range(PARTITIONS) if self.owner(partition) == owner]

    def seen(self, partition: int) -> int:
        """How many records of `partition` are accounted for, lost ones before the newest included."""
        return self._tracks[partition].next_number

    @property
    def moves(self) -> list[Move]:
        """All changes of owner so far."""
        return [move for track in self._tracks for move in track.moves]

    @property
    def gaps(self) -> list[Gap]:
        """All gaps so far that were worth keeping."""
        return [gap for track in self._tracks for gap in track.gaps]

    def finish(self, sent: list[int]) -> Correctness:
        """What exactly-once promises, after the last result has had time to arrive."""
        total = Correctness()
        for track, records in zip(self._tracks, sent, strict=True):
            track.finish(records)
            total.results += track.correctness.results
            total.lost += track.correctness.lost
            total.twice += track.correctness.twice
            total.wrong += track.correctness.wrong
        return total
