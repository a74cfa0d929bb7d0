"""Windowed aggregations against a plain computation over all records."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from millpond.dsl import TimeWindows
from millpond.dsl.operators.window_aggregation import AggregateWindows, CountWindows, ReduceWindows
from millpond.serdes import Json, Long, String
from millpond.state import WindowStoreBuilder
from tests.dsl.support import Node, build

MS = timedelta(milliseconds=1)
RECORDS = st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from("xyz"), st.integers(0, 300)), max_size=40)
WINDOWS = st.builds(
    lambda size, share, grace: TimeWindows(size * MS, advance=max(1, size * share // 4) * MS, grace=grace * MS),
    st.integers(1, 80),
    st.integers(1, 4),
    st.integers(0, 60),
)


def store(windows: TimeWindows, value: Any, *, caching: bool) -> Any:
    return build(
        WindowStoreBuilder(
            name="store",
            key=String,
            value=value,
            timestamped=True,
            caching=caching,
            window_size_ms=windows.size_ms,
            retention_ms=windows.size_ms + windows.grace_ms,
        )
    )


def model(windows: TimeWindows, records: list[tuple[str, str, int]]) -> tuple[list[Any], int]:
    """Every update, as (key, start, values of the window so far, timestamp), and the number of late records."""
    seen: dict[tuple[str, int], tuple[list[str], int]] = {}
    updates, late, stream_time = [], 0, -1
    for key, value, timestamp in records:
        stream_time = max(stream_time, timestamp)
        for start in windows.starts(timestamp):
            if start + windows.size_ms <= stream_time - windows.grace_ms:
                late += 1
                continue
            values, then = seen.get((key, start), ([], -1))
            seen[key, start] = ([*values, value], max(then, timestamp))
            updates.append((key, start, *seen[key, start]))
    return updates, late


def outcome(node: Node) -> list[Any]:
    return [(key.key, key.start_ms, new, timestamp) for key, new, _, timestamp in node.forwarded]


@given(WINDOWS, RECORDS)
def test_windowed_count_matches_a_model(windows: TimeWindows, records: list[tuple[str, str, int]]) -> None:
    """Each accepted record counts in each of its open windows; each late window is a drop."""
    node = Node(store=store(windows, Long, caching=False))
    process = CountWindows("store", windows).bind(node)
    for key, value, timestamp in records:
        process(key, value, timestamp)
    updates, late = model(windows, records)
    assert outcome(node) == [(key, start, len(values), then) for key, start, values, then in updates]
    assert node.drops == node.lates == late


@given(WINDOWS, RECORDS, st.booleans())
def test_windowed_aggregate_changed_in_place_matches_a_model(
    windows: TimeWindows, records: list[tuple[str, str, int]], send_old: bool
) -> None:
    """An aggregator may change and return its aggregate; old values are those before the change."""

    def add(_key: str, value: str, values: list[str]) -> list[str]:
        values.append(value)
        return values

    node = Node(store=store(windows, Json(list[str]), caching=False))
    process = AggregateWindows("store", windows, list, add, send_old).bind(node)
    for key, value, timestamp in records:
        process(key, value, timestamp)
    updates, _ = model(windows, records)
    assert outcome(node) == updates
    if send_old:
        olds = [old for _, _, old, _ in node.forwarded]
        assert olds == [values[:-1] or None for _, _, values, _ in updates]


@given(WINDOWS, RECORDS)
def test_windowed_reduce_matches_a_model(windows: TimeWindows, records: list[tuple[str, str, int]]) -> None:
    """The first value of a window is its first aggregate."""
    node = Node(store=store(windows, String, caching=False))
    process = ReduceWindows("store", windows, lambda aggregate, value: aggregate + value, False).bind(node)
    for key, value, timestamp in records:
        process(key, value, timestamp)
    assert outcome(node) == [
        (key, start, "".join(values), then) for key, start, values, then in model(windows, records)[0]
    ]


@given(WINDOWS, RECORDS, st.integers(1, 10))
def test_caching_ends_with_the_same_windows(
    windows: TimeWindows, records: list[tuple[str, str, int]], every: int
) -> None:
    """The last update of each window is the same, however often the cache is flushed."""
    node = Node(store=store(windows, Long, caching=True))
    process = CountWindows("store", windows).bind(node)
    for number, (key, value, timestamp) in enumerate(records):
        process(key, value, timestamp)
        if number % every == 0:
            node.store("store").flush([])
    node.store("store").flush([])
    last = {(key, start): (n, then) for key, start, n, then in outcome(node)}
    assert last == {(key, start): (len(values), then) for key, start, values, then in model(windows, records)[0]}


@given(WINDOWS, RECORDS, RECORDS)
def test_late_record_stays_late_after_a_restart(
    windows: TimeWindows, before: list[tuple[str, str, int]], after: list[tuple[str, str, int]]
) -> None:
    """Stream time is committed with the offsets, so a restart drops exactly what an uninterrupted run drops."""
    kept = store(windows, Long, caching=False)
    bodies: list[Callable[[], CountWindows]] = [lambda: CountWindows("store", windows)]
    first = Node(store=kept)
    process = bodies[0]().bind(first)
    for record in before:
        process(*record)
    second = Node(store=kept, remembered=first.restarted())
    process = bodies[0]().bind(second)
    for record in after:
        process(*record)
    updates, late = model(windows, before + after)
    assert first.drops + second.drops == first.lates + second.lates == late
    assert outcome(first) + outcome(second) == [(k, start, len(values), then) for k, start, values, then in updates]


def test_records_without_a_key_do_not_advance_time() -> None:
    """A record without a key is counted as dropped and does not advance stream time."""
    windows = TimeWindows(10 * MS)
    node = Node(store=store(windows, Long, caching=False))
    process = CountWindows("store", windows).bind(node)
    process(None, "x", 1_000_000)
    process("a", None, 5)
    assert (node.drops, node.lates) == (1, 0)
    assert outcome(node) == [("a", 0, 1, 5)]
