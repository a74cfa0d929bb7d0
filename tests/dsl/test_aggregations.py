"""Aggregations of streams and of regrouped tables against plain computations."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

import millpond as mp
from millpond.dsl.operators.stream_aggregation import AggregateStream, CountStream, ReduceStream
from millpond.dsl.operators.table_aggregation import AggregateTable, ReduceTable
from millpond.dsl.operators.table_grouping import RegroupTable
from millpond.dsl.operators.table_source import MaterializedSource
from millpond.serdes import Json, Long, Serde, String
from millpond.state import KeyValueStoreBuilder
from tests.dsl.support import Node, build

STREAM = st.lists(
    st.tuples(st.sampled_from(["a", "b", None]), st.sampled_from(["x", "y", None]), st.integers(0, 50)), max_size=30
)
#: Updates of a table: row, (group, number) or None for a deletion, timestamp.
UPDATES = st.lists(
    st.tuples(st.integers(1, 4), st.none() | st.tuples(st.sampled_from("gh"), st.integers(0, 9)), st.integers(0, 50)),
    max_size=30,
)


def store(value: Serde[Any], *, caching: bool = False, key: Serde[Any] = String) -> Any:
    return build(KeyValueStoreBuilder(name="store", key=key, value=value, timestamped=True, caching=caching))


@given(STREAM)
def test_count_reduce_and_aggregate_follow_the_stream(records: list[tuple[Any, Any, int]]) -> None:
    """Every record with key and value updates its key; the rest is dropped; timestamps never go back."""
    bodies: dict[str, tuple[Any, Serde[Any], Any]] = {
        "count": (CountStream("store"), Long, len),
        "reduce": (ReduceStream("store", lambda a, v: a + v, True), String, "".join),
        "aggregate": (
            AggregateStream("store", list, lambda _, v, values: [*values, v], True),
            Json(list[str]),
            list,
        ),
    }
    for body, serde, result in bodies.values():
        node = Node(store=store(serde))
        process = body.bind(node)
        values: dict[str, list[str]] = {}
        times: dict[str, int] = {}
        expected = []
        for key, value, timestamp in records:
            process(key, value, timestamp)
            if key is None or value is None:
                continue
            old = result(values[key]) if key in values else None
            values.setdefault(key, []).append(value)
            times[key] = max(times.get(key, 0), timestamp)
            expected.append((key, result(values[key]), old, times[key]))
        assert node.forwarded == expected
        assert node.drops == len(records) - len(expected)


def test_first_aggregate_has_no_old_value() -> None:
    """What the initializer made was never in the table.

    Kafka Streams passes it on as the old value when uncached, so its results depend on caching: a regrouping would
    subtract what was never added.
    """
    for caching in (False, True):
        node = Node(store=store(String, caching=caching))
        AggregateStream("store", lambda: "start", lambda _, v, a: a + v, True).bind(node)("k", "v", 1)
        node.store("store").flush([])
        assert node.forwarded == [("k", "startv", None, 1)]


def test_an_aggregate_changed_in_place_keeps_its_old_value_apart() -> None:
    """Children that need old values get them, although the aggregator changes the object in place."""

    def add(_key: str, value: str, values: list[str]) -> list[str]:
        values.append(value)
        return values

    for caching in (False, True):
        node = Node(store=store(Json(list[str]), caching=caching))
        process = AggregateStream("store", list, add, True).bind(node)
        process("k", "x", 1)
        node.store("store").flush([])
        process("k", "y", 2)
        node.store("store").flush([])
        assert node.forwarded == [("k", ["x"], None, 1), ("k", ["x", "y"], ["x"], 2)]


@given(UPDATES, st.booleans(), st.booleans())
def test_a_regrouped_tables_sums_are_those_of_its_rows(
    updates: list[tuple[int, tuple[str, int] | None, int]], source_caching: bool, sum_caching: bool
) -> None:
    """After every flush, the sum and count of each group are those of its rows, with and without caching."""
    sums: dict[str, dict[str, int]] = {}
    for name, body in {
        "sum": AggregateTable("store", int, lambda _, v, a: a + v, lambda _, v, a: a - v, True),
        "reduce": ReduceTable("store", lambda a, v: a + v, lambda a, v: a - v, True),
        "count": AggregateTable("store", int, lambda _k, _v, a: a + 1, lambda _k, _v, a: a - 1, True),
    }.items():
        result = Node(store=store(Long, caching=sum_caching))
        aggregate = body.bind(result)
        regroup = Node()
        regroup.forward = aggregate  # type: ignore[method-assign]
        row_serde = Json(tuple[str, int])
        source = Node(store=store(row_serde, caching=source_caching, key=Long))
        source.forward = RegroupTable(lambda _, row: row).bind(regroup)  # type: ignore[method-assign]
        update = MaterializedSource("store", True).bind(source)
        for row, value, timestamp in updates:
            update(row, value, timestamp)
        for node in (source, result):
            node.store("store").flush([])
        sums[name] = {key: new for key, new, _, _ in result.forwarded}
    rows = {row: value for row, value, _ in updates}
    for group in {value[0] for _, value, _ in updates if value}:
        numbers = [value[1] for value in rows.values() if value and value[0] == group]
        assert sums["count"].get(group, 0) == len(numbers)
        assert sums["sum"].get(group, 0) == sum(numbers)
        assert sums["reduce"].get(group, 0) == sum(numbers)


def test_a_row_that_stays_in_its_group_is_one_change() -> None:
    """New and old value are one record (KIP-904), so no intermediate sum is visible; a new key makes two records."""
    node = Node()
    regroup = RegroupTable(lambda _, row: row).bind(node)
    regroup("r", ("g", 2), ("g", 1), 5)
    regroup("r", ("h", 3), ("g", 2), 6)
    regroup("r", None, ("h", 3), 7)
    regroup("r", (None, 3), ("h", None), 8)
    assert node.forwarded == [
        ("g", (2, 1), 5),
        ("g", (None, 2), 6),
        ("h", (3, None), 6),
        ("h", (None, 3), 7),
    ]


def test_a_bounded_store_starts_again_with_evicted_keys() -> None:
    """A count in a store with a maximum forgets the key that was counted least recently."""
    builder = mp.StreamsBuilder()
    counts = builder.stream("in", key=String, value=String).group_by_key().count(store="recent", max_entries=2)
    counts.to_stream().to("out", key=String, value=Long)
    with mp.testing.TopologyTestDriver(builder.build()) as driver:
        records = driver.create_input_topic("in", key=String, value=String)
        for key in "abacab":
            records.pipe_input(key, "v", 0)
        out = driver.create_output_topic("out", key=String, value=Long)
        assert out.read_key_values_to_list() == [("a", 1), ("b", 1), ("a", 2), ("c", 1), ("a", 3), ("b", 1)]
        store = driver.get_key_value_store("recent")
        assert store is not None
        assert list(store.all()) == [("a", 3), ("b", 1)]


class Idle(mp.Processor[Any, Any, Any, Any]):
    def process(self, record: Any) -> None: ...


def test_a_setting_puts_stores_into_memory_that_do_not_say_where_they_are() -> None:
    """`default.dsl.store` decides for operators; a store that says where it is, and one of a processor, stay there."""
    builder = mp.StreamsBuilder()
    grouped = builder.stream("in", key=String, value=String).group_by_key()
    hour = mp.TimeWindows(timedelta(hours=1))
    grouped.windowed_by(hour).count(store="default")
    grouped.windowed_by(hour).count(store="disk", persistent=True)
    grouped.windowed_by(hour).count(store="memory", persistent=False)
    own = mp.WindowStoreBuilder(name="own", key=String, value=Long, retention_ms=9, window_size_ms=9)
    builder.add_state_store(own)
    builder.stream("other", key=String, value=String).process(Idle, stores=["own"])
    topology = builder.build()
    for setting, expected in (("rocksDB", True), ("in_memory", False)):
        with mp.testing.TopologyTestDriver(topology, {"default.dsl.store": setting}) as driver:
            found = {name: store.persistent for name, store in driver.get_all_state_stores().items()}
            assert found == {"default": expected, "disk": True, "memory": False, "own": True}
