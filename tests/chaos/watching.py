"""The observation of a run: the output of each task, and the pauses after each fault.

It reads topics as a consumer of committed records. Violations are reported at once, with the time, which helps to read
the logs; the complete check comes at the end.
"""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Self

from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

from tests.support import kafka
from tests.support.kafka import topic_names

__all__ = ("Watch",)

_NEVER = -1.0
_GAP_S = 1.5
_DEAF_S = 5.0
_LONGEST_DEAF_S = 20.0


class Watch(ABC):
    """Reads the output in a thread.

    Attributes:
        seen: the number of records of the input whose results came out.
        internal_ends: the offset after the last record seen, by partition of each internal topic.
        violations: (monotonic seconds, text).
        progressed_at: the time of the last new output, in monotonic seconds.
        pauses: fault number -> seconds until every task had output from input after the fault, and the last task.
        gaps: (task, from, to) of long times without output of a task, in monotonic seconds.
        client_errors: the errors that the reading client reported, each with its partition.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        topics: Mapping[str, int],
        internal: Sequence[str],
        tasks: Sequence[tuple[int, int]],
    ) -> None:
        self._address = bootstrap_servers
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watch", daemon=True)
        self._topics = frozenset(topics)
        self._internal = frozenset(internal)
        self._tasks = tasks
        self._partitions = [(topic, number) for topic, count in topics.items() for number in range(count)]
        #: The newest send time in the output, by task.
        self._newest: dict[tuple[int, int], float] = {}
        #: The time of the last record of each partition that is read, in monotonic seconds.
        self._heard: dict[tuple[str, int], float] = {}
        self._positions: dict[tuple[str, int], int] = {}
        self._arrived: dict[tuple[int, int], float] = {}
        #: By fault: its time, and the last task to continue.
        self._waiting: dict[int, tuple[float, str]] = {}
        self._lock = threading.Lock()
        self.seen = 0
        self.internal_ends: dict[tuple[str, int], int] = {}
        self.violations: list[tuple[float, str]] = []
        self.progressed_at = time.monotonic()
        self.pauses: dict[int, tuple[float, str]] = {}
        self.gaps: list[tuple[str, float, float]] = []
        self.client_errors: list[str] = []

    @abstractmethod
    def _came(self, message: Any) -> None:
        """Take a record of one of the topics."""

    def start(self) -> Self:
        """Start to read."""
        self._thread.start()
        return self

    def stop(self) -> None:
        self._done.set()
        self._thread.join()

    def fault(self, number: int, at: float) -> None:
        """Measure the time from a fault until all tasks continue."""
        with self._lock:
            self._waiting[number] = (at, "")

    def begin_again(self, at: float) -> None:
        """Everything was stopped on purpose until now: measure all open faults from now on."""
        with self._lock:
            self._waiting = {number: (at, task) for number, (_, task) in self._waiting.items()}

    def stragglers(self) -> list[str]:
        """Return tasks without output, then tasks by the age of their newest output, the oldest first."""
        now = time.monotonic()
        ages = sorted(((now - at, task) for task, at in self._newest.items()), reverse=True)
        return [f"{_name(task)}: no output" for task in self._tasks if task not in self._newest] + [
            f"{_name(task)}: {age:.1f} s" for age, task in ages if age > 2
        ]

    def _run(self) -> None:
        while not self._topics <= topic_names(self._address):
            if self._done.wait(0.1):
                return
        consumer = self._consumer()
        renewed, patience_s = time.monotonic(), _DEAF_S
        try:
            while not self._done.is_set():
                for message in consumer.consume(1_000, 0.05):
                    error = message.error()
                    if error is None:
                        self._message(message)
                    else:
                        self.client_errors.append(f"{message.topic()}-{message.partition()}: {error.str()}")
                self._measure()
                now = time.monotonic()
                heard = min(self._heard.get(each, 0.0) for each in self._partitions)
                if heard > renewed:
                    patience_s = _DEAF_S
                if now - max(renewed, heard) > patience_s:
                    # A client may need minutes to reconnect to a broker, and stops reading a partition after an error;
                    # clients are not measured here. One that is only slow gets more time.
                    consumer.close()
                    consumer, renewed = self._consumer(), now
                    patience_s = min(2 * patience_s, _LONGEST_DEAF_S)
        finally:
            consumer.close()

    def _consumer(self) -> Consumer:
        consumer = Consumer(
            {
                "bootstrap.servers": self._address,
                "group.id": "chaos-watch",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "isolation.level": "read_committed",
                "fetch.wait.max.ms": 20,
                "reconnect.backoff.ms": 20,
                "reconnect.backoff.max.ms": 500,
                "retry.backoff.ms": 20,
                "topic.metadata.refresh.fast.interval.ms": 20,
                "log_level": 0,
            },
            logger=kafka.log,
        )
        consumer.assign(
            [
                TopicPartition(topic, partition, self._positions.get((topic, partition), OFFSET_BEGINNING))
                for topic, partition in self._partitions
            ]
        )
        return consumer

    def _message(self, message: Any) -> None:
        partition = message.topic(), message.partition()
        self._heard[partition] = time.monotonic()
        self._positions[partition] = message.offset() + 1
        if message.topic() in self._internal:
            self.internal_ends[partition] = message.offset() + 1
        self._came(message)

    def _progressed(self, task: tuple[int, int], sent_at: float) -> None:
        """Note that a task had output from input that was sent at this moment, in monotonic seconds."""
        before = self._arrived.get(task, self.progressed_at)
        self._arrived[task] = self.progressed_at
        if self.progressed_at - before > _GAP_S:
            self.gaps.append((_name(task), before, self.progressed_at))
        if sent_at > self._newest.get(task, _NEVER):
            self._newest[task] = sent_at

    def _measure(self) -> None:
        newest, slowest = min((self._newest.get(task, _NEVER), _name(task)) for task in self._tasks)
        now = time.monotonic()
        with self._lock:
            for number, (at, last) in list(self._waiting.items()):
                if newest > at:
                    self.pauses[number] = (now - at, last)
                    del self._waiting[number]
                else:
                    self._waiting[number] = (at, slowest)

    def _violation(self, text: str) -> None:
        self.violations.append((time.monotonic(), text))


def _name(task: tuple[int, int]) -> str:
    return f"{task[0]}_{task[1]}"
