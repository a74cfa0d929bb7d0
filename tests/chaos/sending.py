"""Sends the input of a run at a bounded rate, and knows the end of each partition."""

from __future__ import annotations

import random
import threading
import time
from abc import ABC, abstractmethod
from typing import Any, Self

from confluent_kafka import KafkaError, Message, Producer

from tests.support import kafka

__all__ = ("Sender",)

_TICK_S = 0.01


class Sender(ABC):
    """Sends records in a thread until `stop`; its producers are idempotent and retry for ever.

    Attributes:
        partition_of: the input partition of each key, once a record of it was delivered.
        ends: the offset after the last delivered record, by topic and partition.
        sent: the number of records whose results are counted.
    """

    def __init__(self, bootstrap_servers: str, seed: int, rate: float, producers: int) -> None:
        self._random = random.Random(f"input {seed}")
        self._rate = rate
        self._done = threading.Event()
        self._failure: str | None = None
        self._thread = threading.Thread(target=self._run, name="generator", daemon=True)
        self._producers = [
            Producer(
                {
                    "bootstrap.servers": bootstrap_servers,
                    "partitioner": "murmur2_random",
                    "enable.idempotence": True,
                    "linger.ms": 5,
                    "message.timeout.ms": 0,
                    "reconnect.backoff.ms": 20,
                    "reconnect.backoff.max.ms": 500,
                    "log_level": 0,
                },
                logger=kafka.log,
            )
            for _ in range(producers)
        ]
        self._started = 0.0
        self.partition_of: dict[str, int] = {}
        self.ends: dict[tuple[str, int], int] = {}
        self.sent = 0

    def start(self) -> Self:
        """Send what has to be there first, then start to send."""
        self._prepare()
        self._flush()
        self._started = time.monotonic()
        self._thread.start()
        return self

    def stop(self) -> None:
        """End the input; return when the broker has all records.

        Raises:
            AssertionError: some records could not be sent, so the results cannot be checked.
        """
        self._done.set()
        self._thread.join()
        self._flush()

    @abstractmethod
    def close_windows(self) -> None:
        """Send records that close all windows in every task."""

    @abstractmethod
    def _prepare(self) -> None:
        """Send the first records."""

    @abstractmethod
    def _next(self, elapsed: float) -> None:
        """Send one record of those that come at the given rate, `elapsed` seconds after the start."""

    def _besides(self, elapsed: float) -> None:  # noqa: B027  # most inputs have none
        """Send records that come besides, if any are due."""

    def _run(self) -> None:
        sent = 0
        while not self._done.wait(_TICK_S):
            elapsed = time.monotonic() - self._started
            while sent < int(elapsed * self._rate):
                self._next(elapsed)
                sent += 1
            self._besides(elapsed)
            for producer in self._producers:
                producer.poll(0)

    def _produce(
        self, producer: Producer, topic: str, key: str, value: str | None, timestamp: int, partition: int = -1
    ) -> None:
        producer.produce(
            topic, None if value is None else value.encode(), key.encode(), partition, timestamp=timestamp,
            on_delivery=self._delivered,
        )  # fmt: skip

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self._failure = str(error)
            return
        topic, partition, offset = str(message.topic()), int(message.partition() or 0), int(message.offset() or 0)
        self.ends[topic, partition] = max(offset + 1, self.ends.get((topic, partition), 0))
        key: Any = message.key()
        self.partition_of.setdefault(key.decode(), partition)

    def _flush(self) -> None:
        for producer in self._producers:
            left = producer.flush(60)
            assert not left, f"{left} input records were not delivered within 60 s"
        assert self._failure is None, f"the input could not be sent: {self._failure}"
