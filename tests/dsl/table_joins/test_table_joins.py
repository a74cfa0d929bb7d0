"""Joins of two tables: mistakes in calls, dropped changes, and errors of user code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import millpond as mp
from millpond.errors import ProcessingFailed, TopologyError

CONFIG = {"application.id": "app"}
Builder = mp.StreamsBuilder


def rows(b: Builder, topic: str = "left") -> mp.KTable[str, str]:
    return b.table(topic, key=mp.String, value=mp.String)


def glue(one: Any, two: Any) -> str:
    return f"{one}{two}"


def of_two_builders(b: Builder) -> Any:
    return rows(b).join(rows(Builder(), "right"), glue)


MISTAKES: dict[str, tuple[Callable[[Builder], Any], str]] = {
    "stream": (
        lambda b: rows(b).left_join(b.stream("in"), glue),  # type: ignore[arg-type]
        r"left_join\(\) of a table needs another KTable, not a KStream; make a table of the stream with to_table\(\)",
    ),
    "global table": (
        lambda b: rows(b).join(b.global_table("all"), glue),  # type: ignore[arg-type]
        r"join\(\) of a table needs another KTable, not a GlobalKTable; read its topic with table\(\)",
    ),
    "topic": (
        lambda b: rows(b).outer_join("right", glue),  # type: ignore[arg-type]
        r"outer_join\(\) of a table needs another KTable, not the text 'right'; builder.table\('right'\) reads",
    ),
    "two builders": (of_two_builders, r"The two tables of join\(\) come from different StreamsBuilders; build both"),
    "joiner with a key": (
        lambda b: rows(b).join(rows(b, "right"), lambda key, one, two: key),  # type: ignore[arg-type,misc]
        r"join\(\) calls .* with \(value, other table's value\), but it takes .* add with_key=True",
    ),
    "joiner without a key": (
        lambda b: rows(b).left_join(rows(b, "right"), glue, with_key=True),  # type: ignore[call-overload]
        r"left_join\(\) calls .* with \(key, value, other table's value\), but it takes .* leave out with_key=True",
    ),
    "unknown option": (
        lambda b: rows(b).join(rows(b, "right"), glue, stroe="sums"),  # type: ignore[call-overload]
        r"join\(\) has no argument 'stroe'; did you mean 'store'\?",
    ),
}  # fmt: skip


@pytest.mark.parametrize("call, message", MISTAKES.values(), ids=MISTAKES)
def test_mistake_raises_in_the_call_and_names_the_operator(call: Callable[[Builder], Any], message: str) -> None:
    """The message has the cause and the cure."""
    with pytest.raises(TopologyError, match=message):
        call(Builder())


def test_tables_with_different_partition_counts_are_rejected_when_the_topology_is_divided() -> None:
    """Both tables come from repartition topics with declared counts; the message names both topics."""
    b = Builder()
    left = b.stream("left", key=mp.String, value=mp.String).repartition(name="one", partitions=2).to_table()
    right = b.stream("right", key=mp.String, value=mp.String).repartition(name="two", partitions=3).to_table()
    left.join(right, glue)
    with pytest.raises(TopologyError, match=r"these differ: 'one-repartition' 2, 'two-repartition' 3"):
        b.build().subtopologies()


def test_the_topics_of_both_tables_are_copartitioned() -> None:
    """So the runtime finds topics with different numbers of partitions when it starts."""
    b = Builder()
    rows(b).outer_join(rows(b, "right"), glue)
    assert b.build().copartition_groups == [frozenset({"left", "right"})]


def test_change_without_a_key_is_dropped_and_counted_by_each_node_that_drops_it() -> None:
    """Here the sources drop it, so the join does not see it."""
    b = Builder()
    rows(b).join(rows(b, "right"), glue).to_stream().to("out", value=mp.String)
    with mp.testing.TopologyTestDriver(b.build(), CONFIG) as driver:
        driver.create_input_topic("left", key=mp.String, value=mp.String).pipe_input(None, "a", 1)
        assert driver.metrics()["dropped"] == 1
        assert driver.produced_topic_names() == set()


@pytest.mark.parametrize("continues", [True, False])
def test_error_of_the_joiner_goes_to_the_processing_handler(continues: bool) -> None:
    """A change whose joiner raises is dropped, or ends the task; the row itself is stored before."""

    def fail(one: str, two: str) -> str:
        raise ValueError(one + two)

    b = Builder()
    rows(b).join(rows(b, "right"), fail, name="both").to_stream().to("out", value=mp.String)
    handler = {"processing.exception.handler": "continue" if continues else "fail"}
    with mp.testing.TopologyTestDriver(b.build(), {**CONFIG, **handler}) as driver:
        driver.create_input_topic("left", key=mp.String, value=mp.String).pipe_input("k", "a", 1)
        right = driver.create_input_topic("right", key=mp.String, value=mp.String)
        if continues:
            right.pipe_input("k", "b", 2)
            assert driver.metrics()["dropped"] == 1
        else:
            with pytest.raises(ProcessingFailed, match="both-join-other"):
                right.pipe_input("k", "b", 2)
        assert "out" not in driver.produced_topic_names()


def test_result_with_a_store_is_queryable_by_its_name() -> None:
    """The store has the joined rows with the later timestamp of both."""
    b = Builder()
    joined = rows(b).join(rows(b, "right"), glue, store="joined", value=mp.String)
    assert joined.store_name == "joined"
    with mp.testing.TopologyTestDriver(b.build(), CONFIG) as driver:
        driver.create_input_topic("left", key=mp.String, value=mp.String).pipe_input("k", "a", 9)
        driver.create_input_topic("right", key=mp.String, value=mp.String).pipe_input("k", "b", 4)
        store = driver.get_timestamped_key_value_store("joined")
        assert store is not None
        assert store.get("k") == mp.ValueAndTimestamp("ab", 9)


def test_values_that_can_be_changed_in_place_are_joined_from_fresh_objects() -> None:
    """A joiner that changes its arguments changes no stored row."""

    def spoil(one: list[int], two: list[int]) -> list[int]:
        one.extend(two)
        two.clear()
        return one

    b = Builder()
    left = b.table("left", key=mp.String, value=mp.Json(list[int]), store="left")
    right = b.table("right", key=mp.String, value=mp.Json(list[int]), store="right")
    left.join(right, spoil, store="joined", value=mp.Json(list[int]))
    with mp.testing.TopologyTestDriver(b.build(), CONFIG) as driver:
        driver.create_input_topic("left", key=mp.String, value=mp.Json(list[int])).pipe_input("k", [1], 1)
        driver.create_input_topic("right", key=mp.String, value=mp.Json(list[int])).pipe_input("k", [2], 2)
        assert {name: driver.get_key_value_store(name).get("k") for name in ("left", "right", "joined")} == {  # type: ignore[union-attr]
            "left": [1],
            "right": [2],
            "joined": [1, 2],
        }
