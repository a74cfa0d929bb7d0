"""Aggregations by sliding windows against the definition of the windows, over all records."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import millpond as mp
from millpond.dsl.operators.windowing.sliding import AggregateSlidingWindows
from millpond.errors import TopologyError
from millpond.serdes import Json, String
from millpond.state import MemoryBackend, SlidingWindowStoreBuilder
from tests.dsl.support import Node
from tests.state.helpers import commit

MS = timedelta(milliseconds=1)
RECORDS = st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from("xyz"), st.integers(0, 300)), max_size=40)


def add(_key: str, value: str, values: list[str]) -> list[str]:
    """Change the aggregate in place, which an aggregator may do."""
    values.append(value)
    return values


def bound(windows: mp.SlidingWindows, *, send_old: bool = False) -> tuple[Node, Any, MemoryBackend]:
    """A node with its store and the backend of that."""
    backend = MemoryBackend()
    builder = SlidingWindowStoreBuilder(
        name="store",
        key=String,
        value=Json(list[str]),
        timestamped=True,
        window_size_ms=windows.size_ms,
        retention_ms=windows.kept_ms,
    )
    store: Any = builder.build(0, backend)
    node = Node(store=store)
    return node, store, backend


def expected(difference: int, records: list[tuple[str, str, int]]) -> dict[tuple[str, int], list[str]]:
    """The values of each window that the definition asks for, sorted."""
    found: dict[tuple[str, int], list[str]] = {}
    for key, _, timestamp in records:
        for start in (max(0, timestamp - difference), timestamp + 1):
            values = sorted(v for k, v, t in records if k == key and start <= t <= start + difference)
            if values:
                found[key, start] = values
    return found


@given(st.integers(1, 120), RECORDS, st.sets(st.integers(0, 40)), st.sampled_from([None, 0, 700, 1500, 3000]))
def test_windows_have_the_records_of_their_definition(
    difference: int, records: list[tuple[str, str, int]], commits: set[int], memory: int | None
) -> None:
    """In any order of records, with commits between them: every window of the definition, and no other."""
    windows = mp.SlidingWindows.of_time_difference_and_grace(difference * MS, 1000 * MS)
    node, store, backend = bound(windows)
    if memory is not None:
        store.cache_limit = memory  # bytes: of a few rows, so that keys lose some or all of theirs
    process = AggregateSlidingWindows("store", windows, list, add, False).bind(node)
    for at, (key, value, timestamp) in enumerate(records):
        process(key, value, timestamp)
        if at in commits:
            commit(store, backend)
    kept = {(window.key, window.start_ms): sorted(found.value) for window, found in store.all()}
    assert kept == expected(difference, records)
    assert node.drops == 0


@given(st.integers(1, 120), RECORDS)
def test_changes_end_with_the_content_of_the_store(difference: int, records: list[tuple[str, str, int]]) -> None:
    """Each change has the value before it as old value, and the last one of a window is what the store has.

    A left window that is also the right window of the record before it is sent twice as new, as in Kafka Streams.
    """
    windows = mp.SlidingWindows.of_time_difference_and_grace(difference * MS, 1000 * MS)
    node, store, _ = bound(windows)
    process = AggregateSlidingWindows("store", windows, list, add, True).bind(node)
    for record in records:
        process(*record)
    seen: dict[Any, Any] = {}
    for window, new, old, _ in node.forwarded:
        assert old == seen.get(window) or (old is None and new == seen[window])
        assert window.end_ms == window.start_ms + difference
        seen[window] = list(new)
    assert seen == {window: found.value for window, found in store.all()}


def test_late_records_and_late_windows_are_counted() -> None:
    """A record that no window can take is late; so is each closed window of another one."""
    windows = mp.SlidingWindows.of_time_difference_with_no_grace(10 * MS)
    node, _, _ = bound(windows)
    process = AggregateSlidingWindows("store", windows, list, add, False).bind(node)
    process("a", "x", 100)
    process("a", "y", 89)
    assert (node.lates, len(node.forwarded)) == (1, 1)
    process("a", "z", 95)  # its left window [85, 95] is closed, its right window [96, 106] is not
    assert node.lates == 2
    assert [(window.start_ms, new) for window, new, *_ in node.forwarded[1:]] == [(90, ["x", "z"]), (96, ["x"])]


def test_records_without_key_or_value_are_dropped() -> None:
    """As in Kafka Streams, where other windows aggregate records without a value."""
    windows = mp.SlidingWindows(10 * MS)
    node, _, _ = bound(windows)
    process = AggregateSlidingWindows("store", windows, list, add, False).bind(node)
    process(None, "x", 100)
    process("a", None, 100)
    assert (node.drops, node.lates, node.forwarded) == (2, 0, [])


def test_late_stays_late_after_a_restart() -> None:
    """Stream time is committed with the offsets."""
    windows = mp.SlidingWindows(10 * MS)
    node, _, _ = bound(windows)
    process = AggregateSlidingWindows("store", windows, list, add, False).bind(node)
    process("a", "x", 100)
    again = Node(remembered=node.restarted(), store=bound(windows)[1])
    AggregateSlidingWindows("store", windows, list, add, False).bind(again)("b", "y", 50)
    assert again.lates == 1


def test_error_of_the_aggregator_drops_the_record() -> None:
    """The handler gets the error; changes of windows before it are sent."""
    windows = mp.SlidingWindows(10 * MS)
    node, _, _ = bound(windows)

    def fail(_key: str, value: str, values: list[str]) -> list[str]:
        if value == "bad":
            raise ValueError(value)
        return [*values, value]

    process = AggregateSlidingWindows("store", windows, list, fail, False).bind(node)
    process("a", "bad", 100)
    process("a", "x", 100)
    assert [str(error) for error in node.errors] == ["bad"]
    assert [new for _, new, *_ in node.forwarded] == [["x"]]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: mp.SlidingWindows(timedelta(0)), "positive time difference"),
        (lambda: mp.SlidingWindows(-MS), "time_difference=.* is negative"),
        (lambda: mp.SlidingWindows(MS, -MS), "grace=.* is negative"),
        (lambda: mp.SlidingWindows(5), "use a datetime.timedelta"),  # type: ignore[arg-type]
        (lambda: mp.UnlimitedWindows(datetime(2024, 1, 1)), "use an aware datetime"),
        (lambda: mp.UnlimitedWindows(datetime(1969, 1, 1, tzinfo=UTC)), "is before the epoch"),
    ],
)
def test_invalid_windows_are_rejected(make: Any, message: str) -> None:
    """The message has the cause and the cure."""
    with pytest.raises(TopologyError, match=message):
        make()


def test_retention_shorter_than_the_windows_need_is_rejected() -> None:
    """Sliding windows need twice the time difference plus grace."""
    grouped = mp.StreamsBuilder().stream("in", key=String, value=String).group_by_key()
    windowed = grouped.windowed_by(mp.SlidingWindows.of_time_difference_and_grace(10 * MS, 5 * MS))
    with pytest.raises(TopologyError, match=r"keeps windows for 24 ms, but they are needed for 25 ms \(twice the time"):
        windowed.count(retention=24 * MS)
    windowed.count(retention=25 * MS)
    unlimited = grouped.windowed_by(mp.UnlimitedWindows.of())
    with pytest.raises(TopologyError, match="give a longer retention="):
        unlimited.count(retention=timedelta(days=1))


def test_unlimited_windows_never_end_and_begin_at_their_start() -> None:
    """Earlier records are ignored without being counted; deletions and old values are as in other windows."""
    builder = mp.StreamsBuilder()
    start = mp.UnlimitedWindows.of().start_on(datetime.fromtimestamp(1, UTC))
    counts = builder.stream("in", key=String, value=String).group_by_key().windowed_by(start).count(store="counts")
    counts.to_stream().to("out", value=mp.Long)
    with mp.testing.TopologyTestDriver(builder.build(), {"application.id": "app"}) as driver:
        topic = driver.create_input_topic("in", key=String, value=String)
        windowed = mp.serdes.windowed.time_windowed(String, 2**63 - 1)
        out = driver.create_output_topic("out", key=windowed, value=mp.Long)
        for timestamp in (999, 1000, 10**12, 2000):
            topic.pipe_input("a", "x", timestamp)
        found = [(r.key, r.value, r.timestamp) for r in out.read_records_to_list()]
    window = mp.Windowed("a", 1000, 2**63 - 1)
    assert found == [(window, 1, 1000), (window, 2, 10**12), (window, 3, 10**12)]


def test_hopping_windows_can_be_made_like_in_kafka_streams() -> None:
    """The factory methods give what the keyword arguments give."""
    hour, minute = timedelta(hours=1), timedelta(minutes=1)
    assert mp.TimeWindows.of_size_with_no_grace(hour) == mp.TimeWindows(hour)
    hopping = mp.TimeWindows.of_size_and_grace(hour, minute).advance_by(minute)
    assert hopping == mp.TimeWindows(hour, advance=minute, grace=minute)
    with pytest.raises(TopologyError, match="at most the size"):
        hopping.advance_by(2 * hour)
