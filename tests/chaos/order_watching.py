"""Watches the orders: the repartition topic shows the first sub-topology, the results show the second."""

from __future__ import annotations

import time
from collections import defaultdict
from typing import Any

import msgspec

from tests.chaos.application import PARTITIONS, RESULTS, Tally
from tests.chaos.generating import Generator
from tests.chaos.watching import Watch

__all__ = ("OrderWatch",)


class OrderWatch(Watch):
    """Checks that each order is repartitioned and tallied once."""

    def __init__(self, bootstrap_servers: str, generator: Generator, repartition: str) -> None:
        tasks = [(subtopology, partition) for subtopology in (0, 1) for partition in range(PARTITIONS)]
        super().__init__(bootstrap_servers, {RESULTS: PARTITIONS, repartition: PARTITIONS}, [repartition], tasks)
        self._generator = generator
        self._decoder = msgspec.json.Decoder(Tally)
        self._counts: dict[bytes, int] = defaultdict(int)
        self._repartitioned: set[tuple[bytes, bytes]] = set()
        self._results: set[str] = set()
        self._task_of_word: dict[str, int] = {}

    def _came(self, message: Any) -> None:
        if message.topic() == RESULTS:
            self._result(message.key(), self._decoder.decode(message.value()))
            return
        customer, number, word, *_ = message.value().split(b" ")
        self._task_of_word[word.decode()] = message.partition()
        identity = (customer, number)
        if identity in self._repartitioned:
            self._violation(f"order {customer.decode()} {number.decode()} was repartitioned twice")
        self._repartitioned.add(identity)

    def _result(self, key: bytes, tally: Tally) -> None:
        wanted = self._counts[key] + 1
        if tally.count != wanted:
            self._violation(f"{key[:-8].decode()}: after {wanted - 1} comes {tally.count}, for order {tally.last}")
        self._counts[key] = tally.count
        if tally.last in self._results:
            self._violation(f"order {tally.last} was tallied twice")
            return
        self._results.add(tally.last)
        self.seen = len(self._results)
        self.progressed_at = time.monotonic()
        customer, number = tally.last.split(" ")
        order = self._generator.orders[customer][int(number)]
        word_task = self._task_of_word.get(order.word)
        source = self._generator.partition_of.get(customer)
        if word_task is not None and source is not None:
            for task in ((0, source), (1, word_task)):
                self._progressed(task, order.sent_at)
