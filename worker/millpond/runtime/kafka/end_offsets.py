"""Asks the brokers, again and again, where topics end: so it is known until when a copy has everything.

One request at a time for all partitions, beside the worker's loop, which never waits for the answer. Without an answer
nothing is renewed: that is what a copy cut off from the brokers has to show.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future
from typing import Any, Protocol

from confluent_kafka import KafkaException

from millpond.runtime.offsets.completeness import Moment
from millpond.runtime.offsets.metadata import Partition

__all__ = ("EndOffsets", "EndsAsker")

Heard = Callable[[Moment, int], None]
"""Told when brokers were asked, and where the partition ended then."""


class EndsAsker(Protocol):
    """Where the questions go."""

    def ask_ends(self, partitions: Collection[Partition]) -> Mapping[Partition, Future[Any]]:
        """The offsets after the last committed records; a result has it as `offset`."""

    def unanswered(self) -> None:
        """A question was not answered."""


class EndOffsets:
    """The question in flight.

    Args:
        asker: asks the brokers.
        every_s: seconds between two questions.
        moment: the clocks.
    """

    def __init__(self, asker: EndsAsker, every_s: float, moment: Callable[[], Moment] = Moment.now) -> None:
        self._asker = asker
        self._every_s = every_s
        self._moment = moment
        self._asked: Moment | None = None
        self._answers: Mapping[Partition, Future[Any]] = {}
        self._next = 0.0

    def look(self, wanted: Callable[[], Mapping[Partition, Heard]]) -> None:
        """Take in an answer, and ask again when it is time. Cheap when there is neither.

        Args:
            wanted: the partitions to ask for, and who is told of each.
        """
        now = self._moment()
        if self._asked is not None:
            if not all(map(Future.done, self._answers.values())):
                return
            self._take(self._asked, wanted())
            self._asked, self._answers = None, {}
        if now.monotonic >= self._next:
            self._next = now.monotonic + self._every_s
            partitions = wanted().keys()
            if partitions:
                self._asked, self._answers = now, self._asker.ask_ends(partitions)

    def _take(self, asked: Moment, told: Mapping[Partition, Heard]) -> None:
        silent = False
        for partition, answer in self._answers.items():
            try:
                end = int(answer.result().offset)
            except KafkaException:
                silent = True
            else:
                if partition in told:
                    told[partition](asked, end)
        if silent:
            self._asker.unanswered()
