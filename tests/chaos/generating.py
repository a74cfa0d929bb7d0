"""Known input: every record has a sender and a number, and is remembered."""

from __future__ import annotations

import time
from collections import defaultdict
from typing import NamedTuple

from confluent_kafka import Producer

from tests.chaos.application import CUSTOMERS, GRACE, ORDERS, WINDOW
from tests.chaos.sending import Sender

__all__ = ("CLOSER", "Generator", "Order")

#: The customer of the orders that close all windows at the end.
CLOSER = "closer"

_GENERATORS = 2
_CUSTOMERS = 12
_WORDS = 30
_JITTER_MS = 3_000
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


class Generator(Sender):
    """Sends orders, and sometimes a new version of a customer, at a bounded rate until `stop`.

    Several producers take turns, each with its own customers. Event time follows the clock, with records out of order
    by less than the grace.

    Attributes:
        orders: the orders sent, by customer; an order's number is its index.
        versions: the number of versions of each customer.
    """

    def __init__(self, bootstrap_servers: str, seed: int, rate: float) -> None:
        super().__init__(bootstrap_servers, seed, rate, _GENERATORS)
        self._customers = [
            (f"g{number}-c{customer:02}", producer)
            for number, producer in enumerate(self._producers)
            for customer in range(_CUSTOMERS)
        ]
        self._start_ms = (int(time.time() * 1000) - _BACK_MS) // _WINDOW_MS * _WINDOW_MS
        self._next_update = _UPDATE_EVERY_S
        self.words = [f"word-{number:02}" for number in range(_WORDS)]
        self.orders: dict[str, list[Order]] = defaultdict(list)
        self.versions: dict[str, int] = {}

    def close_windows(self) -> None:
        """Send orders that close all windows: one for each word, so in every task."""
        timestamp = self._start_ms + self._event_ms() + 2 * _WINDOW_MS + _GRACE_MS
        for word in self.words:
            self._order(self._producers[0], CLOSER, word, timestamp)
        self._flush()

    def _event_ms(self) -> int:
        return int((time.monotonic() - self._started) * 1000)

    def _prepare(self) -> None:
        for customer, producer in [*self._customers, (CLOSER, self._producers[0])]:
            self._update(producer, customer, self._start_ms)

    def _next(self, elapsed: float) -> None:
        pick, now = self._random, self._start_ms + int(elapsed * 1000)
        customer, producer = pick.choice(self._customers)
        word = self.words[min(pick.randrange(_WORDS), pick.randrange(_WORDS))]
        self._order(producer, customer, word, max(self._start_ms, now - pick.randrange(_JITTER_MS)))

    def _besides(self, elapsed: float) -> None:
        if elapsed >= self._next_update:
            self._next_update += _UPDATE_EVERY_S
            customer, producer = self._random.choice(self._customers)
            self._update(producer, customer, self._start_ms + int(elapsed * 1000))

    def _order(self, producer: Producer, customer: str, word: str, timestamp: int) -> None:
        of_customer = self.orders[customer]
        order = Order(customer, len(of_customer), word, self._random.randrange(1, 100), timestamp, time.monotonic())
        of_customer.append(order)  # before it is sent: readers look it up here
        self.sent += 1
        self._produce(producer, ORDERS, customer, order.value, timestamp)

    def _update(self, producer: Producer, customer: str, timestamp: int) -> None:
        version = self.versions[customer] = self.versions.get(customer, 0) + 1
        self._produce(producer, CUSTOMERS, customer, f"{version}", timestamp)
