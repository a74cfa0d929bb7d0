"""Joins of tables by a foreign key: mistakes in calls, stale answers, old formats, and errors of user code."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import pytest

import millpond as mp
from millpond.dsl.operators.table_joins.foreign_key.wire import hash128
from millpond.errors import ProcessingFailed, TopologyError

CONFIG = {"application.id": "app"}
Builder = mp.StreamsBuilder
REGISTRATIONS = "app-fk-subscription-registration-topic"
RESPONSES = "app-fk-subscription-response-topic"

#: What Kafka Streams' Murmur3.hash128 says of bytes whose i-th is i * 37 + 11, by their number.
HASHES = {
    0: "9d2764a018e329428c3cf3b035938518",
    1: "acf4cc867fbb6de44457c00e27b49b3e",
    7: "2606fab1b288cf747f57b58d42d73d40",
    8: "7c625bc1ee2929d56029a42486d66b95",
    9: "faae5a34eea452a88343c5cf3100f72a",
    15: "785327df9c5b009b1105e89be63d997f",
    16: "d3b91f9d3a2554c0a556f38caafe89b1",
    17: "0e9fe7c0add95267d8375b4b70581a60",
    31: "9178370064743e1176b6bb193fa77448",
    32: "6e4ce6bd41085a45441cf09d69a0acf9",
    33: "40ab83516a43d6fb03cdc08cb0fa050f",
    100: "8740f68af8d1b5cea08b670b69bc0ab5",
}


def rows(b: Builder, topic: str = "left") -> mp.KTable[str, str]:
    return b.table(topic, key=mp.String, value=mp.String)


def glue(one: Any, two: Any) -> str:
    return f"{one}{two}"


def initial(value: str) -> str:
    return value[:1]


def joined(b: Builder, on: Any = initial, *, left: bool = False, **options: Any) -> mp.Topology:
    """A join by the values' first letter, called `fk`, with its result in the topic `out`."""
    mine, other = rows(b), rows(b, "right")
    join: Any = mine.left_join if left else mine.join
    join(other, glue, on=on, name="fk", **options).to_stream().to("out", key=mp.String, value=mp.String)
    return b.build()


def pipe(driver: mp.testing.TopologyTestDriver, topic: str, key: str, value: str | None, timestamp: int) -> None:
    driver.create_input_topic(topic, key=mp.String, value=mp.String).pipe_input(key, value, timestamp)


def read(driver: mp.testing.TopologyTestDriver, topic: str = "out") -> list[tuple[Any, Any, int]]:
    if topic not in driver.produced_topic_names():
        return []
    records = driver.create_output_topic(topic, key=mp.Bytes, value=mp.Bytes).read_records_to_list()
    return [(each.key, each.value, each.timestamp) for each in records]


@pytest.mark.parametrize("length", HASHES)
def test_hash_of_a_value_is_that_of_kafka_streams(length: int) -> None:
    """Whole blocks, and all kinds of rests."""
    data = bytes(i * 37 + 11 & 0xFF for i in range(length))
    assert [hash128(data).hex(), hash128(data).hex()] == [HASHES[length]] * 2


def test_hash_of_a_large_value_is_not_remembered_but_the_same() -> None:
    """The end of the value counts, too."""
    assert hash128(b"x" * 1000 + b"a") == hash128(b"x" * 1000 + b"a") != hash128(b"x" * 1000 + b"b")


MISTAKES: dict[str, tuple[Callable[[Builder], Any], str]] = {
    "extractor of three": (
        lambda b: rows(b).join(rows(b, "right"), glue, on=lambda a, b, c: a),  # type: ignore[call-overload]
        r"join\(\) on= calls .* with \(value\), but it takes .*; give it one parameter, the value, or two: the key and",
    ),
    "no extractor": (
        lambda b: rows(b).left_join(rows(b, "right"), glue, on="id"),  # type: ignore[call-overload]
        r"left_join\(\) on= needs a function of \(value\), not the text 'id'",
    ),
    "joiner with a key": (
        lambda b: rows(b).join(rows(b, "right"), glue, on=initial, with_key=True),  # type: ignore[call-overload]
        r"join\(\) by a foreign key calls with_ with the two values only; leave out with_key=True",
    ),
    "joiner of three": (
        lambda b: rows(b).join(rows(b, "right"), lambda k, one, two: k, on=initial),  # type: ignore[call-overload]
        r"join\(\) calls .* with \(value, other table's value\), but it takes",
    ),
    "partitioner without a foreign key": (
        lambda b: rows(b).join(rows(b, "right"), glue, partitioner=lambda *_: {0}),  # type: ignore[call-overload]
        r"join\(\) of two tables takes partitioner= only for a join by a foreign key; give on=, or leave it out",
    ),
    "partitioner of three": (
        lambda b: joined(b, other_partitioner=lambda a, b, c: {0}),
        r"join\(\)'s partitioner calls .* with \(topic, key, value, partitions\), but it takes",
    ),
    "unknown option": (
        lambda b: joined(b, partitoner=None),
        r"join\(\) has no argument 'partitoner'; did you mean 'partitioner'\?",
    ),
    "two builders": (
        lambda b: rows(b).join(rows(Builder(), "right"), glue, on=initial),
        r"The two tables of join\(\) come from different StreamsBuilders",
    ),
}  # fmt: skip


@pytest.mark.parametrize("call, message", MISTAKES.values(), ids=MISTAKES)
def test_mistake_raises_in_the_call_and_names_the_operator(call: Callable[[Builder], Any], message: str) -> None:
    """The message has the cause and the cure."""
    with pytest.raises(TopologyError, match=message):
        call(Builder())


def test_tables_may_have_different_numbers_of_partitions() -> None:
    """Each topic of the join has as many partitions as the table whose tasks read it."""
    b = Builder()
    left = b.stream("left", key=mp.String, value=mp.String).repartition(name="one", partitions=2).to_table()
    right = b.stream("right", key=mp.String, value=mp.String).repartition(name="two", partitions=3).to_table()
    left.join(right, glue, on=initial, name="fk")
    groups = [sorted(each) for each in b.build().copartition_groups]
    assert ["fk-subscription-registration-topic", "two-repartition"] in groups
    assert ["fk-subscription-response-topic", "one-repartition"] in groups


@pytest.mark.parametrize(
    "on",
    [operator.itemgetter(0), lambda value: value[:1], lambda key, value: value[:1], lambda value, end=1: value[:end]],
)
def test_extractor_takes_the_value_or_key_and_value(on: Any) -> None:
    """One that could take one argument or two gets the value only; so does one whose parameters are unknown."""
    with mp.testing.TopologyTestDriver(joined(Builder(), on), CONFIG) as driver:
        pipe(driver, "right", "a", "x", 1)
        pipe(driver, "left", "k", "ab", 2)
        assert read(driver) == [(b"k", b"abx", 2)]


@pytest.mark.parametrize("continues", [True, False])
def test_foreign_key_of_a_wrong_type_names_the_join_with_cause_and_cure(continues: bool) -> None:
    """The processing handler gets the record, which is dropped or ends the task."""
    handler = {"processing.exception.handler": "continue" if continues else "fail"}
    with mp.testing.TopologyTestDriver(joined(Builder(), len), {**CONFIG, **handler}) as driver:
        if continues:
            pipe(driver, "left", "k", "ab", 2)
            assert driver.metrics()["dropped"] == 1
        else:
            with pytest.raises(ProcessingFailed) as caught:
                pipe(driver, "left", "k", "ab", 2)
            cause = str(caught.value.__cause__)
            assert (
                "join() by a foreign key ('fk-subscription-registration-processor') got a foreign key of type int"
                in cause
            )
            assert "serde String, which cannot encode it" in cause
            assert "return a key as that table has them, or None for no row" in cause
        assert read(driver, REGISTRATIONS) == []


def fail(*_: object) -> str:
    raise ValueError("no")


@pytest.mark.parametrize(
    "on, with_, node",
    [
        (fail, glue, "fk-subscription-registration-processor"),
        (initial, lambda one, two: fail(), "fk-subscription-response-resolver"),
    ],
)
def test_error_of_user_code_goes_to_the_processing_handler(on: Any, with_: Any, node: str) -> None:
    """The handler gets the node that called the function."""
    b = Builder()
    rows(b).join(rows(b, "right"), with_, on=on, name="fk")
    with mp.testing.TopologyTestDriver(b.build(), CONFIG) as driver:
        pipe(driver, "right", "a", "x", 1)
        with pytest.raises(ProcessingFailed, match=node):
            pipe(driver, "left", "k", "ab", 2)


def test_rows_without_a_foreign_key_are_dropped_and_counted_by_an_inner_join_only() -> None:
    """A left join answers them with None."""
    for left, dropped, expected in ((False, 1, []), (True, 0, [(b"k", b"aNone", 1)])):
        with mp.testing.TopologyTestDriver(joined(Builder(), lambda value: None, left=left), CONFIG) as driver:
            pipe(driver, "left", "k", "a", 1)
            assert driver.metrics()["dropped"] == dropped
            assert read(driver) == expected


def response_to(value: bytes, right: bytes) -> bytes:
    return b"\0" + hash128(value) + right


def test_answer_to_an_earlier_value_is_dropped_and_counted() -> None:
    """Only an answer whose hash is that of the current row is a result."""
    with mp.testing.TopologyTestDriver(joined(Builder()), CONFIG) as driver:
        pipe(driver, "left", "k", "a1", 1)
        pipe(driver, "left", "k", "a2", 2)
        responses = driver.create_input_topic(RESPONSES, key=mp.String, value=mp.Bytes)
        responses.pipe_input("k", response_to(b"a1", b"x"), 3)
        assert (read(driver), driver.metrics()["dropped"]) == ([], 1)
        responses.pipe_input("k", response_to(b"a2", b"x"), 4)
        assert read(driver) == [(b"k", b"a2x", 4)]


def test_subscription_of_version_0_is_kept_and_answered() -> None:
    """It has no partition, so its answer goes to the partition of its key, as with Kafka Streams before 3.3."""
    old = b"\x00\x03" + hash128(b"a1") + b"k"
    with mp.testing.TopologyTestDriver(joined(Builder()), CONFIG) as driver:
        registrations = driver.create_input_topic(REGISTRATIONS, key=mp.String, value=mp.Bytes)
        registrations.pipe_input("a", old, 1)
        pipe(driver, "right", "a", "x", 2)
        assert read(driver, RESPONSES) == [(b"k", response_to(b"a1", b"x"), 2)]
        assert read(driver, "app-fk-subscription-store-changelog") == [(b"\0\0\0\1ak", old, 1)]


@pytest.mark.parametrize(
    "data", [b"\x02\x03" + bytes(16) + b"k\0\0\0\0", b"\x01\x07" + bytes(16) + b"k\0\0\0\0", b"\x01\x03", b""]
)
def test_subscription_that_cannot_be_read_goes_to_the_deserialization_handler(data: bytes) -> None:
    """One of a newer version, with an unknown instruction, or cut off."""
    config = {**CONFIG, "deserialization.exception.handler": "continue"}
    with mp.testing.TopologyTestDriver(joined(Builder()), config) as driver:
        registrations = driver.create_input_topic(REGISTRATIONS, key=mp.String, value=mp.Bytes)
        registrations.pipe_input("a", data, 1)
        assert driver.metrics()["dropped"] == 1


def test_partitioners_get_keys_and_no_values_and_choose_one_partition() -> None:
    """Two partitions are an error, since a subscription in two tasks would give every result twice."""
    seen: list[tuple[str, Any, Any]] = []

    def choose(topic: str, key: Any, value: Any, partitions: int) -> set[int]:
        seen.append((topic, key, value))
        return {0}

    topology = joined(Builder(), partitioner=choose, other_partitioner=choose)
    with mp.testing.TopologyTestDriver(topology, CONFIG) as driver:
        pipe(driver, "right", "a", "x", 1)
        pipe(driver, "left", "k", "ab", 2)
        assert read(driver) == [(b"k", b"abx", 2)]
    assert seen == [(REGISTRATIONS, "a", None), (RESPONSES, "k", None)]

    with mp.testing.TopologyTestDriver(joined(Builder(), other_partitioner=lambda *_: {0, 1}), CONFIG) as driver:
        with pytest.raises(Exception) as caught:
            pipe(driver, "left", "k", "ab", 2)
        assert "returned 2 partitions; a join by a foreign key needs exactly one" in str(caught.value.__cause__)


def test_changes_before_a_commit_are_found_by_a_change_of_the_other_table() -> None:
    """Rows that subscribed, moved and were deleted: only those that subscribe now are joined again."""
    with mp.testing.TopologyTestDriver(joined(Builder()), CONFIG) as driver:
        for key, value in (("1", "a1"), ("2", "a2"), ("3", "ab"), ("4", "b4"), ("1", "b1"), ("2", None)):
            pipe(driver, "left", key, value, 1)
        pipe(driver, "right", "a", "x", 2)
        assert read(driver)[-1] == (b"3", b"abx", 2)
        pipe(driver, "right", "b", "y", 3)
        assert read(driver) == [(b"1", b"b1y", 3), (b"4", b"b4y", 3)]


def test_result_with_a_store_is_queryable_by_its_name() -> None:
    """The store has the joined rows."""
    b = Builder()
    table = rows(b).join(rows(b, "right"), glue, on=initial, store="joined", value=mp.String)
    assert table.store_name == "joined"
    with mp.testing.TopologyTestDriver(b.build(), CONFIG) as driver:
        pipe(driver, "left", "k", "ab", 9)
        pipe(driver, "right", "a", "x", 4)
        store = driver.get_timestamped_key_value_store("joined")
        assert store is not None
        assert store.get("k") == mp.ValueAndTimestamp("abx", 4)
