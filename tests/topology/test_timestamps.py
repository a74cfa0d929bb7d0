"""The sources of a record's event time."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millpond.errors import ProcessingFailed
from millpond.topology import (
    ConsumerRecordView,
    FailOnInvalidTimestamp,
    LogAndSkipOnInvalidTimestamp,
    UsePartitionTimeOnInvalidTimestamp,
    WallclockTimestampExtractor,
)
from millpond.topology.timestamps import timestamp_extractor


def record(timestamp: int, value: Any = "v") -> ConsumerRecordView:
    return ConsumerRecordView("k", value, timestamp, "topic", 3, 42, None)


@given(st.integers(0, 2**62))
def test_valid_timestamps_are_kept_by_all(timestamp: int) -> None:
    """The three extractors for invalid timestamps differ only in those."""
    for extractor in (FailOnInvalidTimestamp, LogAndSkipOnInvalidTimestamp, UsePartitionTimeOnInvalidTimestamp):
        assert extractor().extract(record(timestamp), 7) == timestamp


@given(st.integers(max_value=-1))
def test_invalid_timestamps_fail_are_skipped_or_replaced(timestamp: int) -> None:
    """Failing names the record's place; skipping leaves it negative; partition time replaces it if there is one."""
    with pytest.raises(ProcessingFailed, match="topic-3 offset 42"):
        FailOnInvalidTimestamp().extract(record(timestamp), 7)
    assert LogAndSkipOnInvalidTimestamp().extract(record(timestamp), 7) < 0
    assert UsePartitionTimeOnInvalidTimestamp().extract(record(timestamp), 7) == 7
    with pytest.raises(ProcessingFailed, match="no record before it"):
        UsePartitionTimeOnInvalidTimestamp().extract(record(timestamp), -1)


def test_wall_clock_extractor_uses_now() -> None:
    """Processing time does not depend on the record."""
    before = time.time_ns() // 1_000_000
    assert before <= WallclockTimestampExtractor().extract(record(5), 7) <= time.time_ns() // 1_000_000


@given(st.datetimes(timezones=st.just(UTC), min_value=datetime(1970, 1, 1), max_value=datetime(2200, 1, 1)))
def test_a_function_of_the_value_may_give_a_datetime(moment: datetime) -> None:
    """To the millisecond, rounded down, in any time zone."""
    extractor = timestamp_extractor(lambda value: value["at"])
    assert extractor is not None
    expected = (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)
    for zone in (UTC, timezone(timedelta(hours=-7))):
        assert extractor.extract(record(5, {"at": moment.astimezone(zone)}), -1) == expected


def test_a_function_of_the_value_may_give_milliseconds() -> None:
    """An int is used unchanged; a record without a value keeps Kafka's timestamp."""
    extractor = timestamp_extractor(lambda value: value["at"])
    assert extractor is not None
    assert extractor.extract(record(5, {"at": 99}), -1) == 99
    assert extractor.extract(record(5, None), -1) == 5


def test_a_datetime_without_a_time_zone_is_rejected() -> None:
    """A datetime without a time zone would be another moment on every machine."""
    extractor = timestamp_extractor(lambda _: datetime(2026, 1, 1))
    assert extractor is not None
    with pytest.raises(ProcessingFailed, match="has no time zone"):
        extractor.extract(record(5), -1)


def test_custom_extractor_is_used_unchanged() -> None:
    """timestamp= takes extractors and functions, and None for the configured default."""
    given_extractor = WallclockTimestampExtractor()
    assert timestamp_extractor(given_extractor) is given_extractor
    assert timestamp_extractor(None) is None
