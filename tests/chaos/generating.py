"""Known input: every record has a sender and a number, and is remembered."""

from __future__ import annotations

import random
import threading
import time
from collections import defaultdict
from typing import Any, NamedTuple, Self

from confluent_kafka import KafkaError, Message, Producer

from tests.chaos.application import CUSTOMERS, GRACE, ORDERS, WINDOW

__all__ = ("CLOSER", "Generator", "Order")

#: The customer of the orders that close all windows at the end.
CLOSER = "closer"

_GENERATORS = 2
_CUSTOMERS = 12
_WORDS = 30
_JITTER_MS = 3_000
_TICK_S = 0.01
_UPDATE_EVERY_S = 0.5
_WINDOW_MS = int(WINDOW.total_seconds() * 1000)
_GRACE_MS = int(GRACE.total_seconds() * 1000)
#: So far in the past that the orders that close windows are not in the future for brokers.
_BACK_MS = 4 * 3600 * 1000


class Order(NamedTuple):
    """One input record."""

    customer: str
    number: int
    word: str
    amount: int
    timestamp: int
    """The event time, epoch ms."""
    sent_at: float
    """When it was sent, in monotonic seconds."""

    @property
    def value(self) -> str:
        return f"{self.number} {self.word} {self.amount}"

    @property
    def window(self) -> tuple[str, int]:
        """The word and the window start."""
        return self.word, self.timestamp // _WINDOW_MS * _WINDOW_MS


class Generator:
    """Sends orders, and sometimes a new version of a customer, at a bounded rate until `stop`.

    Several producers take turns, each with its own customers; all are idempotent and retry for ever. Event time follows
    the clock, with records out of order by less than the grace.

    Attributes:
        orders: the orders sent, by customer; an order's number is its index.
        versions: the number of versions of each customer.
        partition_of: the input partition of each customer, once a record of it was delivered.
        ends: the offset after the last delivered record, by topic and partition.
    """

    def __init__(self, bootstrap_servers: str, seed: int, rate: float) -> None:
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
                }
            )
            for _ in range(_GENERATORS)
        ]
        self._customers = [
            (f"g{number}-c{customer:02}", producer)
            for number, producer in enumerate(self._producers)
            for customer in range(_CUSTOMERS)
        ]
        self._start_ms = (int(time.time() * 1000) - _BACK_MS) // _WINDOW_MS * _WINDOW_MS
        self._started = 0.0
        self.words = [f"word-{number:02}" for number in range(_WORDS)]
        self.orders: dict[str, list[Order]] = defaultdict(list)
        self.versions: dict[str, int] = {}
        self.partition_of: dict[str, int] = {}
        self.ends: dict[tuple[str, int], int] = {}
        self.sent = 0

    def start(self) -> Self:
        """Send the first version of every customer, then start to send orders."""
        for customer, producer in [*self._customers, (CLOSER, self._producers[0])]:
            self._update(producer, customer, self._start_ms)
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

    def close_windows(self) -> None:
        """Send orders that close all windows: one for each word, so in every task."""
        timestamp = self._start_ms + self._event_ms() + 2 * _WINDOW_MS + _GRACE_MS
        for word in self.words:
            self._order(self._producers[0], CLOSER, word, timestamp)
        self._flush()

    def _event_ms(self) -> int:
        return int((time.monotonic() - self._started) * 1000)

    def _run(self) -> None:
        pick = self._random
        sent = 0
        next_update = _UPDATE_EVERY_S
        while not self._done.wait(_TICK_S):
            elapsed = time.monotonic() - self._started
            now = self._start_ms + int(elapsed * 1000)
            while sent < int(elapsed * self._rate):
                customer, producer = pick.choice(self._customers)
                word = self.words[min(pick.randrange(_WORDS), pick.randrange(_WORDS))]
                self._order(producer, customer, word, max(self._start_ms, now - pick.randrange(_JITTER_MS)))
                sent += 1
            if elapsed >= next_update:
                next_update += _UPDATE_EVERY_S
                customer, producer = pick.choice(self._customers)
                self._update(producer, customer, now)
            for producer in self._producers:
                producer.poll(0)

    def _order(self, producer: Producer, customer: str, word: str, timestamp: int) -> None:
        of_customer = self.orders[customer]
        order = Order(customer, len(of_customer), word, self._random.randrange(1, 100), timestamp, time.monotonic())
        of_customer.append(order)  # before it is sent: readers look it up here
        self.sent += 1
        producer.produce(
            ORDERS, order.value.encode(), customer.encode(), timestamp=timestamp, on_delivery=self._delivered
        )

    def _update(self, producer: Producer, customer: str, timestamp: int) -> None:
        version = self.versions[customer] = self.versions.get(customer, 0) + 1
        producer.produce(
            CUSTOMERS, f"{version}".encode(), customer.encode(), timestamp=timestamp, on_delivery=self._delivered
        )

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
