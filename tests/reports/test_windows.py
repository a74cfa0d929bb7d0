"""Public reports about windows, from the trackers of peers. These passed when they were written."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

import millpond as mp

_MS = timedelta(milliseconds=1)


def _counts(windows: Any, *times: int) -> dict[tuple[int, int], int]:
    """Return the counts of records of one key at these times, by the start and the end of the window."""
    builder = mp.StreamsBuilder()
    grouped = builder.stream("in", key=mp.String, value=mp.String).group_by_key()
    grouped.windowed_by(windows).count(store="counts")
    with mp.testing.TopologyTestDriver(builder.build()) as driver:
        topic = driver.create_input_topic("in", key=mp.String, value=mp.String)
        for time in times:
            topic.pipe_input("k", "v", time)
        store = driver.get_session_store("counts") if isinstance(windows, mp.SessionWindows) else None
        if store is not None:
            return {(place.start_ms, place.end_ms): count for place, count in store.fetch("k")}
        rows = driver.get_window_store("counts")
        assert rows is not None
        return {(place.start_ms, place.end_ms): count for place, count in rows.all()}


@pytest.mark.parametrize("time", [0, 1, 4, 5, 9, 10, 11, 23])
def test_a_record_is_in_no_hopping_window_of_its_future(time: int) -> None:
    """Faust counted a record in windows that begin after it.

    https://github.com/robinhood/faust/issues/171, https://github.com/robinhood/faust/pull/203
    """
    found = _counts(mp.TimeWindows(10 * _MS, advance=5 * _MS, grace=100 * _MS), time)
    assert found == {(start, start + 10): 1 for start in range(0, time + 1, 5) if start <= time < start + 10}


def test_a_very_late_record_makes_no_sliding_window() -> None:
    """Quix Streams made a window for a record that was too late for all of them.

    https://github.com/quixio/quix-streams/pull/728
    """
    windows = mp.SlidingWindows(10 * _MS, grace=5 * _MS)
    on_time = _counts(windows, 100, 200)
    assert _counts(windows, 100, 200, 120, 184) == on_time


@pytest.mark.parametrize(("stream_time", "counted"), [(24, True), (25, True), (26, False)])
def test_a_session_is_open_until_its_gap_and_its_grace_are_over(stream_time: int, counted: bool) -> None:
    """Kafka Streams closed sessions a gap too early: a record within the gap of the session's end was dropped.

    https://github.com/apache/kafka/pull/10824 (KAFKA-12718), https://github.com/apache/kafka/pull/6654 (KAFKA-8289)
    """
    builder = mp.StreamsBuilder()
    windows = mp.SessionWindows(10 * _MS, grace=5 * _MS)
    grouped = builder.stream("in", key=mp.String, value=mp.String).group_by_key()
    grouped.windowed_by(windows).count(store="counts")
    with mp.testing.TopologyTestDriver(builder.build()) as driver:
        topic = driver.create_input_topic("in", key=mp.String, value=mp.String)
        for key, time in (("k", 10), ("other", stream_time), ("k", 10)):
            topic.pipe_input(key, "v", time)
        assert driver.metrics()["dropped"] == (0 if counted else 1)


def test_an_outer_join_tells_of_a_record_without_a_partner_only_when_none_can_come() -> None:
    """Kafka Streams sent the record alone at once, and again with the partner that came.

    https://github.com/apache/kafka/pull/10462 (KAFKA-10847)
    """
    assert _joined(mp.JoinWindows(10 * _MS, 10 * _MS), ("left", "a", 0), ("right", "b", 5), ("left", "end", 99)) == [
        "a+b"
    ]


def test_an_outer_join_with_a_window_to_one_side_waits_for_it() -> None:
    """With a window to one side, Kafka Streams sent the record alone before the window was over.

    https://github.com/apache/kafka/pull/11875 (KAFKA-13721)
    """
    windows = mp.JoinWindows(timedelta(0), 100 * _MS)  # a partner is at most 100 ms later than the left record
    early = ("left", "a", 0), ("left", "x", 50), ("right", "b", 100), ("left", "end", 999)
    assert _joined(windows, *early) == ["a+b", "x+b"]


def _joined(windows: mp.JoinWindows, *records: tuple[str, str, int]) -> list[str]:
    builder = mp.StreamsBuilder()
    left, right = (builder.stream(name, key=mp.String, value=mp.String) for name in ("left", "right"))
    joined = left.outer_join(right, lambda one, other: f"{one}+{other}", windows)
    joined.to("out", key=mp.String, value=mp.String)
    with mp.testing.TopologyTestDriver(builder.build()) as driver:
        topics = {name: driver.create_input_topic(name, key=mp.String, value=mp.String) for name in ("left", "right")}
        for side, value, time in records:
            topics[side].pipe_input("end" if value == "end" else "k", value, time)
        return driver.create_output_topic("out", key=mp.String, value=mp.String).read_values_to_list()
