"""Joins of two streams: the windows, the options, and what is dropped. Results are compared in tests/oracle."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

import millpond as mp
from millpond.errors import TopologyError

SECOND = timedelta(seconds=1)
APART = mp.JoinWindows.of_time_difference_and_grace(5 * SECOND, 2 * SECOND)


def stream(b: mp.StreamsBuilder, topic: str = "in") -> mp.KStream[str, str]:
    return b.stream(topic, key=mp.String, value=mp.String)


def both(one: str, other: str) -> str:
    return f"{one}+{other}"


def joined(**options: Any) -> mp.Topology:
    b = mp.StreamsBuilder()
    stream(b).join(stream(b, "others"), both, APART, **options).to("out", key=mp.String, value=mp.String)
    return b.build()


def own_store(**changes: Any) -> mp.WindowStoreBuilder[Any, Any]:
    options = {"name": "mine", "retention_ms": 12_000, "window_size_ms": 10_000, "retain_duplicates": True}
    return mp.WindowStoreBuilder(**{**options, **changes})


def test_windows_have_both_sides_and_grace() -> None:
    """`before` and `after` replace one side each."""
    windows = APART.before(3 * SECOND).after(-1 * SECOND)
    assert (windows.before_ms, windows.after_ms, windows.size_ms, windows.grace_ms) == (3000, -1000, 2000, 2000)
    assert mp.JoinWindows.of_time_difference_with_no_grace(5 * SECOND) == mp.JoinWindows(5 * SECOND, 5 * SECOND)


WRONG: dict[str, tuple[Callable[[mp.StreamsBuilder], Any], str]] = {
    "no windows": (
        lambda b: stream(b).join(stream(b), both),  # type: ignore[call-overload]
        "join() of two streams needs windows",
    ),
    "other windows": (
        lambda b: stream(b).join(stream(b), both, mp.TimeWindows(SECOND)),  # type: ignore[call-overload]
        "not a TimeWindows",
    ),
    "windows that end before they start": (lambda b: APART.before(-6 * SECOND), "must not be negative"),
    "a negative difference": (
        lambda b: mp.JoinWindows.of_time_difference_with_no_grace(-SECOND),
        "time_difference=-1 day, 23:59:59 is negative",
    ),
    "a negative grace": (lambda b: mp.JoinWindows.of_time_difference_and_grace(SECOND, -SECOND), "is negative"),
    "milliseconds": (lambda b: APART.after(5), "is not a duration"),  # type: ignore[arg-type]
    "another builder's stream": (
        lambda b: stream(b).join(stream(mp.StreamsBuilder()), both, APART),
        "The two streams come from different StreamsBuilders",
    ),
    "a selector": (
        lambda b: stream(b).join(stream(b), both, APART, on=both),  # type: ignore[call-overload]
        "takes no on=",
    ),
    "a joiner of one value": (
        lambda b: stream(b).join(stream(b), str.upper, APART),  # type: ignore[call-overload]
        "join()",
    ),
    "an illegal name": (lambda b: stream(b).join(stream(b), both, APART, name="a b"), "may only have"),
    "an illegal store name": (lambda b: stream(b).join(stream(b), both, APART, store="a/b"), "store name 'a/b'"),
    "no configuration": (
        lambda b: stream(b).join(stream(b), both, APART, logging="on"),  # type: ignore[call-overload]
        "join() takes for logging=",
    ),
    "windows for a table": (
        lambda b: stream(b).join(b.table("rows"), both, APART),  # type: ignore[call-overload]
        "join() with a table takes no windows",
    ),
    "a store for a table": (
        lambda b: stream(b).join(b.table("rows"), both, store="x"),  # type: ignore[call-overload]
        "has no argument 'store'",
    ),
    "no windows of a left join": (
        lambda b: stream(b).left_join(stream(b), both),  # type: ignore[call-overload]
        "left_join() of two streams needs windows",
    ),
    "an outer join with a table": (
        lambda b: stream(b).outer_join(b.table("rows"), both, APART),  # type: ignore[call-overload]
        "outer_join() of a stream needs another KStream, not a KTable",
    ),
    "windows of a left join with a table": (
        lambda b: stream(b).left_join(b.table("rows"), both, APART),  # type: ignore[call-overload]
        "left_join() with a table takes no windows",
    ),
    "a store without duplicates": (
        lambda b: stream(b).join(stream(b), both, APART, this_store=own_store(retain_duplicates=False)),
        "give retain_duplicates=True",
    ),
    "a store of other windows": (
        lambda b: stream(b).left_join(stream(b), both, APART, other_store=own_store(window_size_ms=9_000)),
        "left_join() needs a store of windows of 10000 ms with a retention of 12000 ms",
    ),
    "a store of another retention": (
        lambda b: stream(b).outer_join(stream(b), both, APART, this_store=own_store(retention_ms=13_000)),
        "windows of 10000 ms with a retention of 13000 ms",
    ),
    "two stores of one name": (
        lambda b: stream(b).join(stream(b), both, APART, this_store=own_store(), other_store=own_store()),
        "join() has the store name 'mine' twice",
    ),
    "a store of another kind": (
        lambda b: stream(b).join(stream(b), both, APART, this_store=mp.KeyValueStoreBuilder(name="kv")),  # type: ignore[call-overload]
        "join() takes for this_store= an mp.WindowStoreBuilder, not a KeyValueStoreBuilder",
    ),
    "a word for a flag": (
        lambda b: stream(b).join(stream(b), both, APART, persistent="no"),  # type: ignore[call-overload]
        "join() needs True or False for persistent=",
    ),
    "a repeated name": (
        lambda b: (
            stream(b).join(stream(b), both, APART, name="x"),
            stream(b).join(stream(b), both, APART, name="x"),
            b.build(),
        ),
        "already called",
    ),
    "different numbers of partitions": (
        lambda b: (
            stream(b)
            .repartition(name="two", partitions=2)
            .join(stream(b, "others").repartition(name="three", partitions=3), both, APART),
            b.build().subtopologies(),
        ),
        "'three-repartition' 3, 'two-repartition' 2",
    ),
}


@pytest.mark.parametrize("mistake", WRONG)
def test_mistakes_are_errors_at_build_time(mistake: str) -> None:
    """The message has the cause."""
    write, message = WRONG[mistake]
    with pytest.raises(TopologyError, match=re.escape(message)):
        write(mp.StreamsBuilder())


def test_stores_keep_duplicates_for_window_and_grace() -> None:
    """Changelogs are deleted by time, and never compacted."""
    for store in joined(store="pairs", logging={"segment.bytes": "1000"}, persistent=False).stores.values():
        assert isinstance(store, mp.WindowStoreBuilder)
        assert (store.retention_ms, store.window_size_ms, store.retain_duplicates) == (12_000, 10_000, True)
        assert (store.caching, store.timestamped, store.persistent) == (False, False, False)
        assert store.changelog_config() == {
            "cleanup.policy": "delete",
            "message.timestamp.type": "CreateTime",
            "retention.ms": "86412000",
            "segment.bytes": "1000",
        }


def test_stores_without_a_changelog() -> None:
    """`logging=False` is for both stores."""
    assert [store.logging for store in joined(logging=False).stores.values()] == [False, False]


def test_result_has_headers_of_the_later_record_and_the_larger_time() -> None:
    """Headers are those of the record that completes the pair."""
    with mp.testing.TopologyTestDriver(joined(), {"application.id": "app"}) as driver:
        one, other = (driver.create_input_topic(name, key=mp.String, value=mp.String) for name in ("in", "others"))
        out = driver.create_output_topic("out", key=mp.String, value=mp.String)
        one.pipe_input("k", "a", 5000, headers=[("h", b"1")])
        other.pipe_input("k", "b", 2000, headers=[("h", b"2")])
        (record,) = out.read_records_to_list()
    assert (record.value, record.timestamp, list(record.headers)) == ("a+b", 5000, [("h", b"2")])


def test_failing_joiner_drops_the_rest_of_the_record() -> None:
    """As in Kafka Streams: results before the error stay, and the record can still be joined by others."""

    def picky(one: str, other: str) -> str:
        if other == "bad":
            raise ValueError(other)
        return both(one, other)

    b = mp.StreamsBuilder()
    stream(b).join(stream(b, "others"), picky, APART).to("out", key=mp.String, value=mp.String)
    config = {"application.id": "app", "processing.exception.handler": "continue"}
    with mp.testing.TopologyTestDriver(b.build(), config) as driver:
        one, other = (driver.create_input_topic(name, key=mp.String, value=mp.String) for name in ("in", "others"))
        out = driver.create_output_topic("out", key=mp.String, value=mp.String)
        for value in ("good", "bad", "late"):
            other.pipe_input("k", value, 1000)
        one.pipe_input("k", "a", 1000)
        other.pipe_input("k", "last", 1000)
        assert out.read_values_to_list() == ["a+good", "a+last"]


def test_waiting_records_have_a_compacted_changelog() -> None:
    """The store of a left or outer join has the settings that the user gives, but no retention."""
    b = mp.StreamsBuilder()
    options: dict[str, Any] = {"store": "pairs", "logging": {"segment.bytes": "1000"}}
    stream(b).outer_join(stream(b, "others"), both, APART, **options).to("out", key=mp.String, value=mp.String)
    stores = b.build().stores
    assert sorted(stores) == [f"pairs-outer-{part}-join-store" for part in ("other", "shared", "this")]
    assert stores["pairs-outer-shared-join-store"].changelog_config() == {
        "cleanup.policy": "compact",
        "message.timestamp.type": "CreateTime",
        "segment.bytes": "1000",
    }


def test_result_without_a_partner_has_the_headers_of_the_record_that_closes_its_window() -> None:
    """Its key and timestamp are its own."""
    b = mp.StreamsBuilder()
    stream(b).left_join(stream(b, "others"), both, APART).to("out", key=mp.String, value=mp.String)
    with mp.testing.TopologyTestDriver(b.build(), {"application.id": "app"}) as driver:
        one, other = (driver.create_input_topic(name, key=mp.String, value=mp.String) for name in ("in", "others"))
        out = driver.create_output_topic("out", key=mp.String, value=mp.String)
        one.pipe_input("k", "a", 1000, headers=[("h", b"1")])
        other.pipe_input("x", "b", 8000, headers=[("h", b"2")])
        assert out.is_empty
        other.pipe_input("x", "b", 8001, headers=[("h", b"3")])
        (record,) = out.read_records_to_list()
    assert (record.key, record.value, record.timestamp) == ("k", "a+None", 1000)
    assert list(record.headers) == [("h", b"3")]


def test_stores_of_ones_own_keep_their_names_and_kinds() -> None:
    """Serdes that they do not have are those of the join; the third store has the left one's name and kind."""
    b = mp.StreamsBuilder()
    mine, other = own_store(persistent=False, logging=False), own_store(name="others", value=mp.Bytes)
    stream(b).outer_join(stream(b, "others"), both, APART, this_store=mine, other_store=other).to("out")
    stores = b.build().stores
    assert sorted(stores) == ["mine", "mine-outer-shared-join-store", "others"]
    assert [stores[name].persistent for name in sorted(stores)] == [False, False, True]
    assert [stores[name].logging for name in sorted(stores)] == [False, True, True]
    assert (stores["mine"].key, stores["mine"].value, stores["others"].value) == (mp.String, mp.String, mp.Bytes)
    assert stores["others"].changelog_config()["cleanup.policy"] == "delete"


def test_null_keys_reach_a_left_join_below_another_one() -> None:
    """The repartition topic between both keeps them (KIP-962)."""
    b = mp.StreamsBuilder()
    once = stream(b).left_join(stream(b, "others"), both, APART, value=mp.String)
    moved = once.map(lambda key, value: (key, value + "!"), key=mp.String, value=mp.String)
    moved.left_join(stream(b, "others"), both, APART).to("out", key=mp.String, value=mp.String)
    with mp.testing.TopologyTestDriver(b.build(), {"application.id": "app"}) as driver:
        driver.create_input_topic("in", key=mp.String, value=mp.String).pipe_input(None, "a", 1000)
        out = driver.create_output_topic("out", key=mp.String, value=mp.String)
        assert [(record.key, record.value) for record in out.read_records_to_list()] == [(None, "a+None!+None")]


def test_closed_windows_are_looked_for_once_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    """In wall-clock time, as in Kafka Streams; the test driver alone looks for them with each record."""
    monkeypatch.setattr("millpond.dsl.operators.window_join.times.EMIT_INTERVAL", "no such setting")
    b = mp.StreamsBuilder()
    stream(b).left_join(stream(b, "others"), both, APART).to("out", key=mp.String, value=mp.String)
    with mp.testing.TopologyTestDriver(b.build(), {"application.id": "app"}) as driver:
        one, other = (driver.create_input_topic(name, key=mp.String, value=mp.String) for name in ("in", "others"))
        out = driver.create_output_topic("out", key=mp.String, value=mp.String)
        one.pipe_input("k", "a", 1000)
        other.pipe_input("x", "b", 8001)
        assert out.read_values_to_list() == ["a+None"]
        one.pipe_input("k", "c", 9000)
        other.pipe_input("x", "b", 16_001)
        assert out.is_empty
        driver.advance_wall_clock_time(SECOND)
        other.pipe_input("x", "b", 16_002)
        assert out.read_values_to_list() == ["c+None"]
