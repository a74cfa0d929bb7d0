"""Requests end offsets from the brokers periodically, to know up to which moment a copy is complete.

Each request is for all partitions. The worker's loop never waits for the answer. Without an answer nothing is
updated, so a copy without brokers falls behind visibly.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future
from typing import Any, Protocol

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from millpond.runtime import error_codes
from millpond.runtime.offsets.completeness import Moment
from millpond.runtime.offsets.metadata import Partition

__all__ = (
    "EndOffsetCallback",
    "EndOffsetSource",
    "EndOffsets",
    "ask_offsets",
    "offset_at",
    "offset_in",
    "read_offsets",
)

log: logging.Logger = logging.getLogger(__name__)

EndOffsetCallback = Callable[[Moment, int], None]
"""Called with the moment of a request, and with the end offset of the partition."""


def ask_offsets(
    admin: AdminClient, specs: Mapping[Partition, OffsetSpec], timeout_s: float, *, committed: bool = False
) -> dict[Partition, Future[Any]]:
    """Request offsets of partitions, with `committed` only of committed records, as `offset` of futures' results."""
    asked = admin.list_offsets(
        {TopicPartition(each.topic, each.partition): spec for each, spec in specs.items()},
        isolation_level=IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED,
        request_timeout=timeout_s,
    )
    return {Partition(each.topic, each.partition): found for each, found in asked.items()}


def offset_in(answer: Future[Any]) -> int:
    """Return the offset in the answer to a request for the first or the end offset of a partition.

    If the request to the partition's leader fails, for example because the leader is silent, librdkafka 2.16 reports
    success with the offset -1001: `rd_kafka_ListOffsets_response_merge` ignores the error. As the end of a changelog,
    this would mean that there is nothing to restore.

    Raises:
        KafkaException: the leader was silent, or returned an error.
    """
    offset = int(answer.result().offset)
    if offset < 0:
        raise KafkaException(KafkaError(error_codes.TIMED_OUT, "the leader did not answer", retriable=True))
    return offset


def offset_at(answer: Future[Any]) -> int | None:
    """Return the offset in the answer to a request by timestamp; None if no record has that time or a later one.

    Raises:
        KafkaException: the leader was silent, or returned an error; see `offset_in`.
    """
    return None if int(answer.result().offset) == -1 else offset_in(answer)


def read_offsets(
    admin: AdminClient, partitions: Collection[Partition], spec: OffsetSpec, timeout_s: float
) -> dict[Partition, int]:
    """Return the offset of each partition that a specification means, such as the end.

    Raises:
        KafkaException: a leader was silent, or returned an error.
    """
    asked = ask_offsets(admin, dict.fromkeys(partitions, spec), timeout_s)
    return {each: offset_in(found) for each, found in asked.items()}


class EndOffsetSource(Protocol):
    """The interface of the client that sends the requests."""

    def ask_ends(self, partitions: Collection[Partition]) -> Mapping[Partition, Future[Any]]:
        """Request the offset after the last committed record of each partition, as `offset` of a future's result."""

    def unanswered(self) -> None:
        """Record that a request got no answer."""


class EndOffsets:
    """The periodic requests for end offsets; at most one is in flight.

    Args:
        source: sends the requests.
        every_s: time between two requests, in seconds.
        moment: the clocks.
    """

    def __init__(self, source: EndOffsetSource, every_s: float, moment: Callable[[], Moment] = Moment.now) -> None:
        self._source = source
        self._every_s = every_s
        self._moment = moment
        self._requested_at: Moment | None = None
        self._answers: Mapping[Partition, Future[Any]] = {}
        self._next = 0.0

    def poll(self, callbacks: Callable[[], Mapping[Partition, EndOffsetCallback]]) -> None:
        """Handle an answer, and send the next request when it is due. Cheap otherwise.

        Args:
            callbacks: the partitions to request, each with its callback.
        """
        now = self._moment()
        if self._requested_at is not None:
            if not all(map(Future.done, self._answers.values())):
                return
            self._handle(self._requested_at, callbacks())
            self._requested_at, self._answers = None, {}
        if now.monotonic >= self._next:
            self._next = now.monotonic + self._every_s
            partitions = callbacks().keys()
            if partitions:
                self._requested_at, self._answers = now, self._source.ask_ends(partitions)

    def _handle(self, requested_at: Moment, callbacks: Mapping[Partition, EndOffsetCallback]) -> None:
        unanswered = False
        for partition, answer in self._answers.items():
            try:
                end = offset_in(answer)
            except KafkaException:
                unanswered = True
            except Exception:
                log.exception("%s: the end offset cannot be read; asking again", partition)
                unanswered = True
            else:
                if partition in callbacks:
                    callbacks[partition](requested_at, end)
        if unanswered:
            self._source.unanswered()
