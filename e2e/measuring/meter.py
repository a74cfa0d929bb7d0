"""Reads the application's committed output, and measures how long events stop its tasks.

Two topics show both sub-topologies: the repartition topic, where a record's customer tells the first task it came
through, and the results, where its word tells the second. The input is read beside them: what holds that up is the way
to the broker, not the application.
"""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Iterator
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, TopicPartition

from e2e.beside import Beside
from e2e.cluster import eventually
from e2e.commands import WORK
from e2e.measuring.pauses import Arrivals, Event
from e2e.measuring.traffic import PARTITIONS, partition_of
from tests.chaos.application import ORDERS, RESULTS
from tests.support.kafka import topic_names

__all__ = ("Meter",)

_PATH = "path"
_BATCH = 500
_CALM_S = 3.0
_TASKS = [f"{subtopology}_{partition}" for subtopology in (0, 1) for partition in range(PARTITIONS)]


class Meter(Beside):
    """Measures in a thread of its own during the `with` block.

    Attributes:
        events: what has happened so far.
        results: how many records of the results have come.
    """

    def __init__(self, address: str, repartition: str) -> None:
        super().__init__()
        self._address = address
        self._repartition = repartition
        self._arrivals = Arrivals()
        self._lock = threading.Lock()
        self._usual: dict[str, float] = {}
        self.events: list[Event] = []
        self.results = 0

    @contextlib.contextmanager
    def event(self, name: str, calm_within_s: float = 60.0) -> Iterator[None]:
        """Measure the pauses during the block and until all tasks run steadily after it.

        Args:
            name: for the table.
            calm_within_s: how long that may take.
        """
        begin = time.monotonic()
        yield
        took = time.monotonic() - begin
        self.rest(calm_within_s)
        end = time.monotonic()
        with self._lock:
            pauses = {task: self._pause(task, begin, end) for task in self._arrivals.tasks}
        path = pauses.pop(_PATH, 0.0)
        self.events.append(Event(name, took, pauses, path))
        figures = [{"event": each.name, "took": each.took_s, "pauses": each.pauses} for each in self.events]
        (WORK / "pauses.json").write_text(json.dumps(figures, indent=1))

    def rest(self, within_s: float) -> None:
        """Wait until every task has had steady output for some seconds.

        Raises:
            AssertionError: it does not come to that; the message has the longest gap of each task that has none.
        """
        try:
            eventually(lambda: not self._restless(), "output of all tasks comes steadily", within_s)
        except AssertionError as error:
            gaps = ", ".join(f"{task}: {gap:.1f} s" for task, gap in self._restless().items())
            raise AssertionError(f"{error}; the longest gaps are {gaps}") from None

    def standing(self, for_s: float) -> list[str]:
        """Return the tasks without steady output."""
        now = time.monotonic()
        with self._lock:
            known = self._arrivals.tasks
            return [task for task in _TASKS if task not in known or self._arrivals.longest(task, now, now) > for_s]

    def learn(self) -> None:
        """Note the gaps of the last seconds as the usual ones."""
        self.rest(60)
        now = time.monotonic()
        with self._lock:
            self._usual = {task: self._arrivals.usual(task, now - _CALM_S, now) for task in self._arrivals.tasks}

    def _restless(self) -> dict[str, float]:
        with self._lock:
            return self._arrivals.restless(_PATH, _TASKS, _CALM_S, time.monotonic())

    def _pause(self, task: str, begin: float, end: float) -> float:
        return max(0.0, self._arrivals.longest(task, begin, end) - self._usual.get(task, 0.0))

    def _run(self) -> None:
        while not self._begun():
            if self._over.wait(0.3):
                return
        consumer = Consumer(
            {
                "bootstrap.servers": self._address,
                "group.id": "e2e-meter",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "isolation.level": "read_committed",
                "fetch.wait.max.ms": 20,
                "reconnect.backoff.ms": 20,
                "reconnect.backoff.max.ms": 500,
                "log_level": 0,
            }
        )
        topics = (ORDERS, RESULTS, self._repartition)
        consumer.assign(
            [TopicPartition(topic, each, OFFSET_BEGINNING) for topic in topics for each in range(PARTITIONS)]
        )
        try:
            while not self._over.is_set():
                messages = consumer.consume(_BATCH, 0.02)
                now = time.monotonic()
                with self._lock:
                    for message in messages:
                        if message.error() is None:
                            self._arrivals.add(self._task_of(message), now)
        finally:
            consumer.close()

    def _begun(self) -> bool:
        """Return whether the application has created its repartition topic."""
        with contextlib.suppress(KafkaException):
            return self._repartition in topic_names(self._address, self._repartition)
        return False

    def _task_of(self, message: Any) -> str:
        topic = message.topic()
        if topic == ORDERS:
            return _PATH
        if topic == RESULTS:
            self.results += 1
            return f"1_{message.partition()}"
        customer = message.value().split(b" ", 1)[0].decode()
        return f"0_{partition_of(customer)}"
