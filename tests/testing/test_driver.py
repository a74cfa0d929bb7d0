"""The TopologyTestDriver has the stores and topics that Kafka Streams' has."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

import millpond as mp
from millpond.errors import TopologyError
from millpond.state import ValueAndTimestamp
from millpond.testing import TopologyTestDriver
from millpond.testing import driver as driver_module


def counting() -> Any:
    """A topology that counts by key, and by key and window, in a store each."""
    builder = mp.StreamsBuilder()
    grouped = builder.stream("in", key=mp.String, value=mp.String).group_by_key()
    grouped.count(store="counts").to_stream().to("out", value=mp.Long)
    grouped.windowed_by(mp.TimeWindows(timedelta(milliseconds=10), grace=timedelta(seconds=1))).count(store="windows")
    return builder.build()


def test_an_argument_as_java_names_it_gets_a_hint() -> None:
    """The wall clock at the start has a shorter name here."""
    with pytest.raises(TopologyError, match="did you mean 'initial_wall_clock'"):
        TopologyTestDriver(counting(), initial_wall_clock_time=0)  # type: ignore[call-arg]


def test_stores_give_values_and_timestamped_ones_their_timestamps_too() -> None:
    """`get_key_value_store` and `get_window_store` hide the timestamps that the DSL keeps."""
    with TopologyTestDriver(counting()) as driver:
        topic = driver.create_input_topic("in", key=mp.String, value=mp.String)
        for key, timestamp in (("a", 1), ("b", 2), ("a", 13)):
            topic.pipe_input(key, "x", timestamp)
        counts, windows = driver.get_key_value_store("counts"), driver.get_window_store("windows")
        assert counts is not None
        assert windows is not None
        assert (counts.get("a"), counts.get("z"), list(counts.all())) == (2, None, [("a", 2), ("b", 1)])
        assert (list(counts.range("b", None)), list(counts.reverse_all())) == ([("b", 1)], [("b", 1), ("a", 2)])
        assert (list(counts.prefix_scan(b"a")), counts.approximate_num_entries()) == ([("a", 2)], 2)
        assert (windows.fetch("a", 0), windows.fetch("a", 99)) == (1, None)
        assert list(windows.fetch("a", 0, 50)) == [(0, 1), (10, 1)]
        assert [(each.key, each.start_ms, count) for each, count in windows.all()] == [
            ("a", 0, 1),
            ("a", 10, 1),
            ("b", 0, 1),
        ]
        timestamped, timestamped_windows = (
            driver.get_timestamped_key_value_store("counts"), driver.get_timestamped_window_store("windows"),
        )  # fmt: skip
        assert timestamped is not None
        assert timestamped_windows is not None
        assert timestamped.get("a") == ValueAndTimestamp(2, 13)
        assert timestamped_windows.fetch("b", 0) == ValueAndTimestamp(1, 2)


def test_a_store_of_another_kind_is_named_with_the_method_that_returns_it() -> None:
    """None is for stores that do not exist; one that exists is no reason for an AttributeError of None."""
    with TopologyTestDriver(counting()) as driver:
        with pytest.raises(TopologyError, match=r"^'windows' is a timestamped window store: read it by get_window_st"):
            driver.get_key_value_store("windows")
        with pytest.raises(TopologyError, match=r"read it by get_key_value_store\('counts'\)\.$"):
            driver.get_session_store("counts")
        assert driver.get_key_value_store("nothing") is None
        assert driver.get_versioned_key_value_store("nothing") is None


def test_values_put_through_a_plain_view_are_in_the_store() -> None:
    """A test can put values into stores before it pipes records."""
    with TopologyTestDriver(counting()) as driver:
        counts = driver.get_key_value_store("counts")
        assert counts is not None
        counts.put("a", 41)
        assert (counts.put_if_absent("a", 1), counts.delete("a"), counts.put_if_absent("a", 7)) == (41, 41, None)
        driver.create_input_topic("in", key=mp.String, value=mp.String).pipe_input("a", "x", 1)
        assert driver.create_output_topic("out", key=mp.String, value=mp.Long).read_value() == 8


def test_topics_stay_produced_after_they_were_read() -> None:
    """Only topics that the topology has written to are named."""
    with TopologyTestDriver(counting()) as driver:
        out = driver.create_output_topic("out", key=mp.String, value=mp.Long)
        driver.create_output_topic("other", key=mp.String, value=mp.Long)
        assert driver.produced_topic_names() == set()
        driver.create_input_topic("in", key=mp.String, value=mp.String).pipe_input("a", "x", 1)
        out.read_value()
        changelogs = {f"test-application-{store}-changelog" for store in ("counts", "windows")}
        assert driver.produced_topic_names() == {"out", *changelogs}


def test_records_that_go_round_without_an_end_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """A test would hang. A loop that ends, and repartition topics, have no such limit."""
    monkeypatch.setattr(driver_module, "_MAX_RETURNED", 100)
    builder = mp.StreamsBuilder()
    stream = builder.stream("numbers", key=mp.String, value=mp.Long)
    stream.filter(lambda _, number: number != 100).map_values(lambda number: number + 1).to("numbers", value=mp.Long)
    with TopologyTestDriver(builder.build()) as driver:
        numbers = driver.create_input_topic("numbers", key=mp.String, value=mp.Long)
        numbers.pipe_input("a", 0)
        numbers.pipe_input("a", 0)
        with pytest.raises(TopologyError, match="more than 100 records to topic 'numbers', which it also reads"):
            numbers.pipe_input("a", 101)
