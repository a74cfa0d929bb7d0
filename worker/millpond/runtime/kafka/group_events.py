"""Why a consumer gets no answer from the coordinator of its group: it tells a missing right only as an event.

Without the right to see the group, librdkafka finds no coordinator, and a request for committed offsets only times out.
"""

from __future__ import annotations

from collections.abc import Sequence

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from millpond.runtime import error_codes
from millpond.runtime.error_codes import Kind, kind_of

__all__ = ("read_committed_offsets", "told_by_events")

_MOST_EVENTS = 10
_FIRST_TIMEOUT_S = 2.0


def told_by_events(consumer: Consumer) -> KafkaError | None:
    """Return the reason why a group has no coordinator for this user; None if the events tell none."""
    for _ in range(_MOST_EVENTS):
        event = consumer.poll(0)
        if event is None:
            return None
        if (error := event.error()) is not None and kind_of(error) in (Kind.FORBIDDEN, Kind.UNAUTHENTICATED):
            return error
    return None


def read_committed_offsets(
    consumer: Consumer, partitions: Sequence[TopicPartition], timeout_s: float
) -> list[TopicPartition]:
    """Return the committed offsets of a consumer that has no partitions assigned.

    Args:
        consumer: a consumer of the group.
        partitions: the partitions.
        timeout_s: how long to wait for an answer, in seconds. A missing right is told after 2 s.

    Raises:
        KafkaException: a right is missing, the coordinator did not answer in time, or it rejected the request.
    """
    for each in (min(_FIRST_TIMEOUT_S, timeout_s), timeout_s):
        try:
            return consumer.committed(list(partitions), timeout=each)
        except KafkaException as error:
            if (told := told_by_events(consumer)) is not None:
                raise KafkaException(told) from error
            if error.args[0].code() != error_codes.TIMED_OUT or each >= timeout_s:
                raise
    raise AssertionError
