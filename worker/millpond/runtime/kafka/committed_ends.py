"""Requests the committed offsets of inputs, where a copy of a changelog that is also an input ends.

The requests are those of a consumer in a thread of its own. An admin client's requests to the group's coordinator are
no alternative: librdkafka 2.16 may end the process by an assertion when the broker is away for longer than a request
(`rd_kafka_enq_once_del_source_return`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future
from typing import Any

from confluent_kafka import Consumer, KafkaException, TopicPartition

from millpond.runtime.offsets.metadata import Partition

from .consumer_threads import ConsumerThreads

__all__ = ("CommittedEnds",)

_REQUEST_TIMEOUT_S = 2.0


class CommittedEnds:
    """The committed offsets of a group, as an `EndOffsetSource`.

    Args:
        make_consumer: makes a consumer of the group that does not wait for pending transactions.
    """

    def __init__(self, make_consumer: Callable[[], Consumer]) -> None:
        self._thread = ConsumerThreads("millpond-committed", 1, make_consumer)
        self._answered = False

    def ask_ends(self, partitions: Collection[Partition]) -> Mapping[Partition, Future[Any]]:
        """Request the committed offset of each partition, as `offset` of a future's result; 0 without one."""
        found: dict[Partition, Future[Any]] = {each: Future() for each in partitions}
        wanted = [TopicPartition(each.topic, each.partition) for each in found]
        self._thread.run(lambda: self._answer(wanted, found))
        return found

    def unanswered(self) -> None:
        """Replace the consumer after a request without an answer: it may never reconnect (see `reconnect.py`)."""
        if self._answered:
            self._answered = False
            self._thread.run(self._thread.forget_consumer)

    def close(self) -> None:
        """Send no more requests."""
        self._thread.close()

    def _answer(self, wanted: list[TopicPartition], found: Mapping[Partition, Future[Any]]) -> None:
        try:
            answers = self._thread.consumer().committed(wanted, timeout=_REQUEST_TIMEOUT_S)
        except BaseException as error:  # noqa: BLE001 - the caller of `result` gets it
            for future in found.values():
                future.set_exception(error)
            return
        self._answered = True
        for each in answers:
            future = found[Partition(each.topic, each.partition)]
            if each.error is not None:
                future.set_exception(KafkaException(each.error))
            else:
                future.set_result(TopicPartition(each.topic, each.partition, max(0, each.offset)))
