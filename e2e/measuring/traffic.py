"""Orders at a steady pace, so that a gap in a task's output shows a pause of the task."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from confluent_kafka import murmur2

from tests.chaos.generating import Generator

__all__ = ("PARTITIONS", "SteadyGenerator", "partition_of")

PARTITIONS = 6
"""The number of partitions of every topic; with two sub-topologies there are twice as many tasks."""

_CUSTOMERS, _WORDS = 4, 5
_TICK_S = 0.005
_UPDATE_EVERY_S = 0.5
_JITTER_MS = 3_000


class _Pace(NamedTuple):
    """A rate from a moment on, and what was due until then."""

    since: float
    due_before: int
    rate: float

    def due(self, elapsed: float) -> int:
        """Return the number of orders that are due."""
        return self.due_before + int((elapsed - self.since) * self.rate)


def partition_of(key: str) -> int:
    """Return the partition of a key, as a producer chooses it."""
    return murmur2(key.encode(), PARTITIONS)


class SteadyGenerator(Generator):
    """A generator with equal numbers of customers and words in each partition, which take turns.

    Args:
        bootstrap_servers: the broker.
        seed: of what is left to chance.
        rate: orders per second.
    """

    def __init__(self, bootstrap_servers: str, seed: int, rate: float) -> None:
        super().__init__(bootstrap_servers, seed, rate)
        self._pace = _Pace(0.0, 0, rate)
        producers = itertools.cycle(self._producers)
        names = _spread((f"c{number:03}" for number in itertools.count()), _CUSTOMERS)
        self._customers = [(name, next(producers)) for name in names]
        self.words = _spread((f"word-{number:03}" for number in itertools.count()), _WORDS)

    def change_rate(self, rate: float) -> None:
        """Send this number of orders per second from now on."""
        elapsed = time.monotonic() - self._started
        self._pace = _Pace(elapsed, self._pace.due(elapsed), rate)

    def _run(self) -> None:
        sent = 0
        next_update = _UPDATE_EVERY_S
        customers = itertools.cycle(self._customers)
        while not self._done.wait(_TICK_S):
            elapsed = time.monotonic() - self._started
            now = self._start_ms + int(elapsed * 1000)
            for number in range(sent, self._pace.due(elapsed)):
                customer, producer = next(customers)
                # Shifted by one in each round: no partition of words belongs to a partition of customers.
                partition = (number + number // PARTITIONS) % PARTITIONS
                word = self.words[self._random.randrange(_WORDS) * PARTITIONS + partition]
                timestamp = max(self._start_ms, now - self._random.randrange(_JITTER_MS))
                self._order(producer, customer, word, timestamp)
                sent += 1
            if elapsed >= next_update:
                next_update += _UPDATE_EVERY_S
                customer, producer = self._random.choice(self._customers)
                self._update(producer, customer, now)
            for producer in self._producers:
                producer.poll(0)


def _spread(names: Iterator[str], each: int) -> list[str]:
    """Return this number of names for each partition; the partitions take turns."""
    found: list[list[str]] = [[] for _ in range(PARTITIONS)]
    for name in names:
        if len(mine := found[partition_of(name)]) < each:
            mine.append(name)
        if all(len(mine) == each for mine in found):
            break
    return list(_turns(found))


def _turns(groups: Iterable[list[str]]) -> Iterator[str]:
    return itertools.chain.from_iterable(zip(*groups, strict=True))
