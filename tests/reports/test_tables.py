"""Public reports about tables, from the trackers of peers. These passed when they were written."""

from __future__ import annotations

from typing import Any

import pytest

import millpond as mp
from millpond.serdes import Serde
from millpond.state import KeyValueStoreBuilder
from tests.state import helpers


def _run(builder: mp.StreamsBuilder, *records: tuple[str, str, str | None]) -> list[tuple[str, Any]]:
    """Return the results of records, each with its topic, key and value."""
    with mp.testing.TopologyTestDriver(builder.build()) as driver:
        topics = {
            name: driver.create_input_topic(name, key=mp.String, value=mp.String)
            for name in dict.fromkeys(name for name, _, _ in records)
        }
        for name, key, value in records:
            topics[name].pipe_input(key, value)
        return driver.create_output_topic("out", key=mp.String, value=mp.String).read_key_values_to_list()


def test_a_row_whose_foreign_key_becomes_null_leaves_the_join() -> None:
    """Kafka Streams kept the result of a row without a foreign key, and had none when the key came back.

    https://github.com/apache/kafka/pull/19303 (KAFKA-16407, KAFKA-16434)
    """
    builder = mp.StreamsBuilder()
    orders, users = (builder.table(name, key=mp.String, value=mp.String) for name in ("orders", "users"))
    joined = orders.join(users, lambda order, user: f"{order}+{user}", on=lambda order: order.partition(":")[0] or None)
    joined.to_stream().to("out", key=mp.String, value=mp.String)
    records = (
        ("users", "u", "Ann"),
        ("orders", "o", ":1"),
        ("orders", "o", "u:2"),
        ("orders", "o", ":3"),
        ("orders", "o", "u:4"),
    )
    assert _run(builder, *records) == [("o", "u:2+Ann"), ("o", None), ("o", "u:4+Ann")]


def test_the_old_row_is_subtracted_before_the_new_one_is_added() -> None:
    """Where both have one key, reduce() of Kafka Streams added first: the result of a subtractor was wrong.

    https://github.com/apache/kafka/pull/6712
    """
    builder = mp.StreamsBuilder()
    table = builder.table("in", key=mp.String, value=mp.String)
    grouped = table.group_by(lambda key, value: ("all", value), key=mp.String, value=mp.String)
    grouped.reduce(
        lambda before, value: before + value, lambda before, value: before.replace(value, "", 1), store="joined"
    ).to_stream().to("out")
    found = _run(builder, ("in", "a", "x"), ("in", "b", "y"), ("in", "a", "xx"), ("in", "b", None))
    assert found[-1] == ("all", "xx")


def test_no_serde_gets_null() -> None:
    """Kafka Streams passed null to the serdes of users, for deletions in tables.

    https://github.com/apache/kafka/pull/7235 (KAFKA-8824)
    """
    given: list[object] = []

    def serialize(value: str) -> bytes:
        given.append(value)
        return value.encode()

    def deserialize(data: bytes) -> str:
        given.append(data)
        return data.decode()

    serde = Serde("Strict", serialize, deserialize)
    builder = mp.StreamsBuilder()
    table = builder.table("in", key=mp.String, value=serde, store="rows")
    table.map_values(lambda value: value.upper(), value=serde, store="upper").to_stream().to("out", value=serde)
    assert _run(builder, ("in", "a", "x"), ("in", "a", None), ("in", "b", None)) == [("a", "X"), ("a", None)]
    assert None not in given


def test_a_tombstone_of_a_stream_deletes_the_row_of_a_table() -> None:
    """The tables of KSQL dropped tombstones that came through a stream, and kept the rows.

    https://github.com/confluentinc/ksql/issues/1169
    """
    builder = mp.StreamsBuilder()
    stream = builder.stream("in", key=mp.String, value=mp.String).filter(lambda _key, value: value != "skip")
    stream.to_table(store="rows", value=mp.String).to_stream().to("out", key=mp.String, value=mp.String)
    records = ("in", "a", "x"), ("in", "a", "skip"), ("in", "a", None), ("in", "a", "y")
    assert _run(builder, *records) == [("a", "x"), ("a", None), ("a", "y")]


@pytest.mark.parametrize("timestamped", [True, False])
def test_a_changelog_record_without_a_value_deletes_the_row(timestamped: bool) -> None:
    """A restore of Kafka Streams ended at a record without a value; leaving it out would keep the row.

    https://github.com/apache/kafka/pull/6842 (KAFKA-8446)
    """
    backend = helpers.Memory().backend
    builder = KeyValueStoreBuilder(name="s", key=mp.String, value=mp.String, timestamped=timestamped)
    store: Any = builder.build(0, backend, "changelog")
    rows = store.restore([(b"a", b"x", 5, None), (b"b", b"y", 6, None), (b"a", None, 7, None)])
    backend.write([("s", 0, rows)], {("s", 0): (3, b"")})
    restored: Any = builder.build(0, backend, "changelog")
    assert [key for key, _ in restored.all()] == ["b"]


@pytest.mark.parametrize("left", [True, False])
def test_a_row_of_a_global_table_that_no_key_names_ends_nothing(left: bool) -> None:
    """A key of null for the lookup in a global table ended the thread of Kafka Streams.

    https://github.com/apache/kafka/pull/4494 (KAFKA-6378)
    """
    builder = mp.StreamsBuilder()
    users = builder.global_table("users", key=mp.String, value=mp.String)
    stream = builder.stream("in", key=mp.String, value=mp.String)
    join = stream.left_join if left else stream.join
    joined = join(users, lambda value, user: f"{value}+{user}", on=lambda _key, value: value.partition(":")[0] or None)
    joined.to("out", key=mp.String, value=mp.String)
    found = _run(builder, ("users", "u", "Ann"), ("in", "a", ":1"), ("in", "a", "u:2"))
    assert found == ([("a", ":1+None")] if left else []) + [("a", "u:2+Ann")]


def test_a_record_without_a_key_does_not_end_a_table() -> None:
    """A record without a key in the topic of a table ended queries of ksqlDB, and the restore of global tables.

    https://github.com/confluentinc/ksql/issues/4109, https://github.com/apache/kafka/pull/2834 (KAFKA-5047)
    """
    builder = mp.StreamsBuilder()
    builder.table("in", key=mp.String, value=mp.String, store="rows").to_stream().to("out")
    builder.global_table("everywhere", key=mp.String, value=mp.String, store="all")
    with mp.testing.TopologyTestDriver(builder.build()) as driver:
        for name, store_name in (("in", "rows"), ("everywhere", "all")):
            topic = driver.create_input_topic(name, key=mp.String, value=mp.String)
            topic.pipe_key_value_list([("1", "1"), (None, "2"), ("1", "3")])
            store = driver.get_key_value_store(store_name)
            assert store is not None
            assert list(store.all()) == [("1", "3")]
        assert driver.metrics()["dropped"] == 2
