"""Suppress: one final result per window, nothing early, nothing lost by a restart."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import millpond as mp
from millpond.dsl.operators.suppression import SuppressTable
from millpond.errors import MillpondError, TopologyError
from millpond.serdes import Long, String, TimeWindowedSerde, Windowed
from millpond.state import TimeOrderedBufferBuilder
from tests.dsl.support import Node, build

MS = timedelta(milliseconds=1)
SIZE = 20
RECORDS = st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 200)), max_size=40)


def buffer(**options: Any) -> Any:
    return build(
        TimeOrderedBufferBuilder(name="buffer", key=TimeWindowedSerde(String, SIZE * MS), value=Long, **options)
    )


def final(wait: int = 0, **limits: Any) -> SuppressTable:
    limits = {"max_records": None, "max_bytes": None, "emit_when_full": False} | limits
    return SuppressTable("buffer", final=True, wait_ms=wait, **limits)


def window(key: str, timestamp: int) -> Windowed[str]:
    start = timestamp - timestamp % SIZE
    return Windowed(key, start, start + SIZE)


@given(RECORDS, st.integers(0, 50), st.integers(0, 40))
def test_each_window_is_final_once(records: list[tuple[str, int]], grace: int, restart_at: int) -> None:
    """A window is sent once, with its last count, when stream time reaches its end plus grace, also after a restart."""
    store = buffer()
    node = Node(buffer=store)
    suppress = final(grace).bind(node)
    nodes = [node]
    counts: dict[Windowed[str], int] = {}
    stream_time = -1
    for number, (key, timestamp) in enumerate(records):
        if number == restart_at:
            node = Node(buffer=store, remembered=node.restarted())
            suppress = final(grace).bind(node)
            nodes.append(node)
        stream_time = max(stream_time, timestamp)
        windowed = window(key, timestamp)
        if windowed.end_ms <= stream_time - grace:
            continue
        counts[windowed] = counts.get(windowed, 0) + 1
        suppress(windowed, counts[windowed], counts[windowed] - 1 or None, timestamp)
    out = [(key, new) for each in nodes for key, new, _, _ in each.forwarded]
    seen = max((timestamp for key, timestamp in records), default=-1)
    closed = {key: n for key, n in counts.items() if key.end_ms + grace <= seen}
    # What the late records that were not passed on moved forward is not known to the operator.
    assert all(counts[key] == n for key, n in out)
    assert len({key for key, _ in out}) == len(out)
    assert {key for key, _ in out} <= set(closed)
    assert [key.end_ms for key, _ in out] == sorted(key.end_ms for key, _ in out)


def test_a_final_deletion_is_not_sent() -> None:
    """A final deletion is not sent, because nothing was sent for the window before."""
    node = Node(buffer=buffer())
    suppress = final().bind(node)
    suppress(window("a", 5), None, 1, 5)
    suppress(window("a", 25), 1, None, 25)
    suppress(window("a", 45), 1, None, 45)
    assert [(key.start_ms, new) for key, new, _, _ in node.forwarded] == [(20, 1)]


def test_headers_of_the_last_update_go_with_the_result() -> None:
    """A held-back record is sent with its own context, and the current record keeps its own."""
    node = Node(buffer=buffer())
    suppress = final().bind(node)
    node.task.headers = [("of", b"update")]
    suppress(window("a", 5), 1, None, 5)
    node.task.headers = [("of", b"trigger")]
    suppress(window("a", 25), 1, None, 25)
    assert node.forwarded_headers == [[("of", b"update")]]
    assert node.task.headers == [("of", b"trigger")]


def test_a_full_buffer_of_final_results_stops_the_worker() -> None:
    """The message has the node, the limit and the cure."""
    node = Node("hold", buffer=buffer())
    suppress = final(max_records=1).bind(node)
    suppress(window("a", 5), 1, None, 5)
    with pytest.raises(MillpondError, match=r"'hold' may hold back 1 records but has to hold back 2 records"):
        suppress(window("b", 5), 1, None, 5)


def test_windows_are_final_in_a_whole_topology() -> None:
    """From a stream over a cached, windowed count to one record per window, filtered on the way."""
    builder = mp.StreamsBuilder()
    counts = builder.stream("in", key=mp.String, value=mp.String).group_by_key()
    windowed = counts.windowed_by(mp.TimeWindows(SIZE * MS, grace=10 * MS)).count()
    windowed.filter(lambda _, n: n != 2).suppress(mp.until_window_closes()).to_stream().to("out")
    with mp.testing.TopologyTestDriver(builder.build()) as driver:
        topic = driver.create_input_topic("in", key=mp.String, value=mp.String)
        out = driver.create_output_topic("out", key=TimeWindowedSerde(mp.String, SIZE * MS), value=mp.Long)
        for key, timestamp in [("a", 1), ("a", 2), ("b", 3), ("a", 29), ("b", 25), ("a", 19)]:
            topic.pipe_input(key, "x", timestamp)
        assert out.is_empty()
        topic.pipe_input("c", "x", 30)
        assert [(k.key, k.start_ms, n) for k, n in out.read_key_values_to_list()] == [("a", 0, 3), ("b", 0, 1)]


@pytest.mark.parametrize("until", [mp.until_window_closes, lambda **options: mp.until_time_limit(MS, **options)])
def test_changelog_of_the_buffer_may_have_a_configuration(until: Any) -> None:
    """`logging=` takes a topic's configuration as for other stores, and nothing else."""
    b = mp.StreamsBuilder()
    windows = mp.TimeWindows(SIZE * MS)
    counts = b.stream("in", key=String, value=String).group_by_key().windowed_by(windows).count()
    counts.suppress(until(logging={"segment.bytes": "1048576"}), name="held")
    (builder,) = (each for each in b.build().subtopologies()[0].stores if each.name == "held-store")
    assert builder.changelog_config()["segment.bytes"] == "1048576"
    assert builder.logging is True
    with pytest.raises(TopologyError, match="not the text 'no'"):
        until(logging="no")
