"""Timestamp extractors: the source of a record's event time."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Generic, NamedTuple, Protocol, TypeAlias, TypeVar, runtime_checkable

from millpond.checks import check_function, kind_of
from millpond.errors import ProcessingFailed, TopologyError

from .context import Headers

__all__ = (
    "ConsumerRecordView",
    "FailOnInvalidTimestamp",
    "LogAndSkipOnInvalidTimestamp",
    "TimestampExtractor",
    "TimestampOf",
    "UsePartitionTimeOnInvalidTimestamp",
    "ValueTimestamp",
    "WallclockTimestampExtractor",
    "timestamp_extractor",
)

log: logging.Logger = logging.getLogger(__name__)

V = TypeVar("V")

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)


class ConsumerRecordView(NamedTuple):
    """A consumed record, decoded, for timestamp extractors.

    `timestamp` is that of the Kafka record in epoch ms, negative if it has none.
    """

    key: Any
    value: Any
    timestamp: int
    topic: str
    partition: int
    offset: int
    headers: Headers | None


@runtime_checkable
class TimestampExtractor(Protocol):
    """The interface of timestamp extractors, which return a record's event time."""

    def extract(self, record: ConsumerRecordView, partition_time: int) -> int:
        """Return the event time in epoch ms. A record with a negative time is dropped, and counted as dropped.

        Args:
            record: the record.
            partition_time: the highest timestamp extracted from this partition so far, epoch ms; -1 without one.
        """


class FailOnInvalidTimestamp:
    """Kafka's own timestamp; a record without one stops the worker. The default."""

    def extract(self, record: ConsumerRecordView, partition_time: int) -> int:
        """Return the record's timestamp, epoch ms.

        Raises:
            ProcessingFailed: the timestamp is negative.
        """
        del partition_time
        if record.timestamp < 0:
            raise ProcessingFailed(
                f"{_place(record)} has the invalid timestamp {record.timestamp}, because its producer is older than "
                "Kafka 0.10 or sets none; choose another extractor with timestamp= or 'default.timestamp.extractor'."
            )
        return record.timestamp


class LogAndSkipOnInvalidTimestamp:
    """Kafka's own timestamp; a record without one is logged and dropped."""

    def extract(self, record: ConsumerRecordView, partition_time: int) -> int:
        """Return the record's timestamp, epoch ms; negative if it is invalid."""
        del partition_time
        if record.timestamp < 0:
            log.warning("%s: invalid timestamp %d; dropping the record", _place(record), record.timestamp)
        return record.timestamp


class UsePartitionTimeOnInvalidTimestamp:
    """Kafka's own timestamp; a record without one gets the highest timestamp its partition had so far."""

    def extract(self, record: ConsumerRecordView, partition_time: int) -> int:
        """Return the record's timestamp, or the partition's time, epoch ms.

        Raises:
            ProcessingFailed: both are negative.
        """
        if record.timestamp >= 0:
            return record.timestamp
        if partition_time < 0:
            raise ProcessingFailed(
                f"{_place(record)} has no valid timestamp and no record before it had one; "
                "choose another extractor with timestamp= or 'default.timestamp.extractor'."
            )
        return partition_time


class WallclockTimestampExtractor:
    """Wall-clock time: processing time instead of event time."""

    def extract(self, record: ConsumerRecordView, partition_time: int) -> int:
        """Return wall-clock time in epoch ms."""
        del record, partition_time
        return time.time_ns() // 1_000_000


@dataclass(frozen=True)
class ValueTimestamp(Generic[V]):
    """Event time from the value: `read(value)` returns epoch ms or an aware datetime."""

    read: Callable[[V], int | datetime]

    def extract(self, record: ConsumerRecordView, partition_time: int) -> int:
        """Return the result of `read` in epoch ms. A record without a value keeps Kafka's timestamp.

        Raises:
            ProcessingFailed: the result is neither an int nor a datetime with a time zone.
        """
        del partition_time
        if record.value is None:
            return record.timestamp
        moment = self.read(record.value)
        if type(moment) is int:
            return moment
        if not isinstance(moment, datetime):
            raise ProcessingFailed(
                f"{_place(record)} got {kind_of(moment)} as its timestamp; return epoch milliseconds as an int, or a "
                "datetime with tzinfo, from the function in timestamp=."
            )
        if moment.tzinfo is None:
            raise ProcessingFailed(
                f"{_place(record)} got the timestamp {moment}, which has no time zone; "
                "return one with tzinfo, such as datetime.UTC."
            )
        return (moment - _EPOCH) // _MILLISECOND


TimestampOf: TypeAlias = TimestampExtractor | Callable[[V], int | datetime]
"""The type of `timestamp=`: an extractor, or a function of the value that returns epoch ms or an aware datetime."""


def timestamp_extractor(given: TimestampOf[Any] | None) -> TimestampExtractor | None:
    """Return the extractor for a user's `timestamp=`.

    Raises:
        TopologyError: the argument is neither an extractor nor a function of one value, or is an extractor's class.
    """
    if given is None:
        return None
    if isinstance(given, type):
        raise TopologyError(f"timestamp={given.__name__} is a class; give an instance of it: {given.__name__}().")
    if isinstance(given, TimestampExtractor):
        return given
    if callable(given):
        check_function("timestamp=", given, "value")
        return ValueTimestamp(given)
    raise TopologyError(f"timestamp= needs a TimestampExtractor or a function of the value, not {kind_of(given)}.")


def _place(record: ConsumerRecordView) -> str:
    return f"The record at {record.topic}-{record.partition} offset {record.offset}"
