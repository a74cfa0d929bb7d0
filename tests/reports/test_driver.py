"""Reports about the test driver. The expected times are those of Kafka Streams 4.1's driver for the same calls."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

import millpond as mp
from millpond.errors import TopologyError

_START_MS = 5_000


@pytest.fixture
def driver() -> Iterator[mp.testing.TopologyTestDriver]:
    builder = mp.StreamsBuilder()
    builder.stream("in", key=mp.String, value=mp.String).to("out", key=mp.String, value=mp.String)
    with mp.testing.TopologyTestDriver(builder.build(), initial_wall_clock=_START_MS) as made:
        yield made


def _topic(driver: mp.testing.TopologyTestDriver, **options: Any) -> mp.testing.TestInputTopic[str, str]:
    return driver.create_input_topic("in", key=mp.String, value=mp.String, **options)


def _times(driver: mp.testing.TopologyTestDriver) -> list[int]:
    records = driver.create_output_topic("out", key=mp.String, value=mp.String).read_records_to_list()
    return [record.timestamp for record in records]


def test_inputs_begin_with_the_time_of_the_driver(driver: mp.testing.TopologyTestDriver) -> None:
    """Inputs began with the time of the machine: records were years after the driver's wall-clock time.

    https://github.com/apache/kafka/pull/17702
    """
    topic = _topic(driver)
    topic.pipe_input("k", "v")
    topic.pipe_input("k", "v", 99)
    topic.pipe_input("k", "v")
    driver.advance_wall_clock_time(timedelta(seconds=1))
    topic.pipe_input("k", "v")
    topic.advance_time(timedelta(milliseconds=7))
    topic.pipe_input("k", "v")
    _topic(driver).pipe_input("k", "v")
    assert _times(driver) == [5_000, 99, 5_000, 5_000, 5_007, 6_000]


def test_only_records_without_a_time_advance_that_of_their_topic(driver: mp.testing.TopologyTestDriver) -> None:
    """The topic's own time goes on after records that have one.

    https://github.com/apache/kafka/pull/7378
    """
    topic = _topic(driver, start=10, auto_advance=timedelta(milliseconds=3))
    pairs: list[tuple[str | None, str | None]] = [("k", "v"), ("k", "v")]
    topic.pipe_input("v")
    topic.pipe_input("k", "v", 50)
    topic.pipe_input("v")
    topic.pipe_input(mp.Record("k", "v", 77))
    topic.pipe_key_value_list(pairs)
    topic.pipe_key_value_list(pairs, 500, timedelta(milliseconds=20))
    topic.pipe_value_list(["v", "v"], 500)
    topic.pipe_input("v")
    assert _times(driver) == [10, 50, 13, 77, 16, 19, 500, 520, 500, 500, 22]


def test_a_step_between_records_needs_the_time_of_the_first(driver: mp.testing.TopologyTestDriver) -> None:
    """It was ignored; Kafka Streams has no method that takes it alone."""
    with pytest.raises(TopologyError, match="advance= counts from start=, which is not given"):
        _topic(driver).pipe_value_list(["v", "v"], advance=timedelta(seconds=1))
    assert _times(driver) == []
