"""A topic whose producer has another partitioner than that of the topic it is joined with is told, once."""

from __future__ import annotations

import logging
import zlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest
from confluent_kafka import TIMESTAMP_CREATE_TIME, Message, murmur2

import millpond as mp
from millpond.runtime.processing.partitioner_check import SAMPLE, PartitionerCheck, topics_that_meet

Partitioner = Callable[[bytes, int], int]


def crc32(key: bytes, count: int) -> int:
    """Librdkafka's default for records with a key."""
    return zlib.crc32(key) % count


def by_first_byte(key: bytes, count: int) -> int:
    """A partitioner of somebody's own."""
    return key[-1] % count


def mixed(key: bytes, count: int) -> int:
    """One key of eight is elsewhere."""
    return (murmur2(key, count) + (key[-1] % 8 == 0)) % count


def message(topic: str, partition: int, key: bytes | None) -> Message:
    return Message(
        topic=topic, partition=partition, offset=0, key=key, value=b"", timestamp=(TIMESTAMP_CREATE_TIME, 0),
    )  # fmt: skip


def keys(count: int) -> list[bytes]:
    return [b"key-%d" % each for each in range(count)]


class Topics:
    """Two topics that are joined, as the tasks of one worker see them."""

    def __init__(self, partitions: int = 4, **options: Any) -> None:
        self.check = PartitionerCheck()
        self.partitions = partitions
        self.options: dict[str, Any] = {"partition_by": None, "internal": False, **options}

    def read(self, topic: str, other: str, by: Partitioner, raw_keys: Iterable[bytes | None], **options: Any) -> None:
        """Let the tasks of all partitions read a topic, in polls of seven records."""
        given = {**self.options, **options}
        raw_keys = list(raw_keys)
        part = given["partition_by"] or (lambda key: key)
        for partition in range(self.partitions):
            sample = self.check.sampler(topic, {other}, partition, lambda: self.partitions, **given)
            found = [key for key in raw_keys if key is not None and by(part(key), self.partitions) == partition]
            found_or_none: Sequence[bytes | None] = [*found, None]
            for start in range(0, len(found_or_none), 7):
                if sample([message(topic, partition, key) for key in found_or_none[start : start + 7]]):
                    break


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    caplog.set_level(logging.WARNING, "millpond.runtime.processing.partitioner_check")
    return lambda: [record.getMessage() for record in caplog.records]


@pytest.mark.parametrize("partitions", [2, 4, 12])
@pytest.mark.parametrize("first", ["orders", "prices"])
def test_a_topic_with_another_partitioner_is_told_once(
    lines: Callable[[], list[str]], partitions: int, first: str
) -> None:
    """Whichever topic is read first; the words name both topics."""
    topics = Topics(partitions)
    for name in sorted(("orders", "prices"), key=lambda each: each != first):
        topics.read(name, "prices" if name == "orders" else "orders", crc32 if name == "orders" else murmur2, keys(200))
    topics.read("orders", "prices", crc32, keys(200))
    assert len(lines()) == 1
    assert lines()[0].startswith("topic 'orders': ")
    assert "those of 'prices' are" in lines()[0]
    assert "murmur2_random" in lines()[0]


@pytest.mark.parametrize("by", [murmur2, crc32, by_first_byte], ids=["murmur2", "crc32", "own"])
def test_nothing_is_said_when_both_agree(lines: Callable[[], list[str]], by: Partitioner) -> None:
    """Neither if both follow murmur2, nor if neither does."""
    topics = Topics()
    topics.read("orders", "prices", by, keys(200))
    topics.read("prices", "orders", by, keys(200))
    assert not lines()


@pytest.mark.parametrize(
    ("partitions", "orders", "by", "options"),
    [
        (1, keys(200), crc32, {}),
        (4, keys(15), crc32, {}),
        (4, keys(5) * 100, crc32, {}),
        (4, [None] * 200, crc32, {}),
        (4, keys(200), mixed, {}),
        (4, keys(200), crc32, {"internal": True}),
    ],
    ids=["one partition", "few keys", "few keys often", "no keys", "a few elsewhere", "internal"],
)
def test_nothing_is_said_without_good_evidence(
    lines: Callable[[], list[str]], partitions: int, orders: list[bytes], by: Partitioner, options: dict[str, Any]
) -> None:
    """With one partition all are right; a few keys may be chance; internal topics are millpond's own."""
    topics = Topics(partitions)
    topics.read("prices", "orders", murmur2, keys(200))
    topics.read("orders", "prices", by, orders, **options)
    assert not lines()


def test_a_windowed_key_is_compared_by_its_inner_key(lines: Callable[[], list[str]]) -> None:
    """Its window has no part in the partition."""
    topics = Topics()
    windowed = [key + bytes(8) for key in keys(200)]
    topics.read("counts", "prices", murmur2, windowed, partition_by=lambda raw: raw[:-8])
    topics.read("prices", "counts", murmur2, keys(200))
    assert not lines()


def test_a_partition_is_looked_at_until_it_has_enough() -> None:
    """Then the sampler says so, and the task drops it: no later record costs anything."""
    sample = PartitionerCheck().sampler("a", {"b"}, 0, lambda: 2, partition_by=None, internal=False)
    assert not sample([message("a", 0, None)] * 500)
    assert not sample([message("a", 0, b"k")] * (SAMPLE - 1))
    assert sample([message("a", 0, b"k")])


def _table(builder: mp.StreamsBuilder, topic: str) -> mp.KTable[str, str]:
    return builder.table(topic, key=mp.String, value=mp.String)


def _stream(builder: mp.StreamsBuilder, topic: str) -> mp.KStream[str, str]:
    return builder.stream(topic, key=mp.String, value=mp.String)


def _joined(builder: mp.StreamsBuilder) -> object:
    return _stream(builder, "a").join(_table(builder, "b"), lambda left, right: left + right)


def _merged(builder: mp.StreamsBuilder) -> object:
    return _stream(builder, "a").merge(_stream(builder, "b")).group_by_key().count()


def _only_merged(builder: mp.StreamsBuilder) -> object:
    return _stream(builder, "a").merge(_stream(builder, "b")).to("out")


def _global(builder: mp.StreamsBuilder) -> object:
    table = builder.global_table("b", key=mp.String, value=mp.String)
    return _stream(builder, "a").join(table, lambda left, right: left + right, on=lambda key, value: value)


def test_a_foreign_key_join_needs_the_partitioner_of_the_right_table_only() -> None:
    """The left table gets its answers in the partition that asked; internal topics are between both."""
    builder = mp.StreamsBuilder()
    left, right = _table(builder, "a"), _table(builder, "b")
    left.join(right, lambda ours, theirs: ours + theirs, on=lambda value: value, value=mp.String)
    found = set[frozenset[str]]().union(*map(topics_that_meet, builder.build().subtopologies()))
    assert {frozenset(group & {"a", "b"}) for group in found} == {frozenset({"a"}), frozenset({"b"})}


@pytest.mark.parametrize(
    ("application", "meet"),
    [(_joined, True), (_merged, True), (_only_merged, False), (_global, False)],
)
def test_topics_meet_in_joins_and_in_shared_state(
    application: Callable[[mp.StreamsBuilder], object], meet: bool
) -> None:
    """A merge alone, or a global table, does not care for partitions."""
    builder = mp.StreamsBuilder()
    application(builder)
    found = set[frozenset[str]]().union(*map(topics_that_meet, builder.build().subtopologies()))
    assert found == ({frozenset({"a", "b"})} if meet else set())
