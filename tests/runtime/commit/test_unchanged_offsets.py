"""Commits are compare-and-swaps: they fail if the committed offsets are not those that were looked up."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Consumer, Producer
from msgspec.structs import replace

from millpond.runtime.commit.pipeline import topic_partitions
from millpond.runtime.commit.unchanged_offsets import OffsetsChanged
from millpond.runtime.offsets.metadata import CommittedOffset, OffsetMetadata, Partition, encode_metadata
from millpond.runtime.ownership.takeover import OffsetStore, commit_under
from tests.support import kafka
from tests.support.broker import Broker

MINE = OffsetMetadata("w0", 3, partition_time=17, topology="h")


class _Group:
    """The offsets of one topic in a group, and a worker that commits them."""

    def __init__(self, servers: str, group: str, topic: str) -> None:
        settings = {"bootstrap.servers": servers, "group.id": group, "enable.auto.commit": False}
        self.rows = [Partition(topic, 0), Partition(topic, 1)]
        self.consumer = Consumer({**settings, "isolation.level": "read_committed"}, logger=kafka.log)
        self.producer = Producer({"bootstrap.servers": servers, "transactional.id": group}, logger=kafka.log)
        self.producer.init_transactions(30)
        unstable = {**settings, "isolation.level": "read_uncommitted"}
        self.store = OffsetStore(
            lambda: self.consumer, lambda: None, lambda: Consumer(unstable, logger=kafka.log), lambda: False, 30.0
        )

    def reset(self, offset: int) -> None:
        """Commit offsets beside the worker's transactions, as a worker that owned the tasks, or a person."""
        offsets = topic_partitions(dict.fromkeys(self.rows, (offset, MINE)))
        self.consumer.commit(offsets=offsets, asynchronous=False)

    def commit(self, offset: int, read: dict[Partition, CommittedOffset]) -> None:
        offsets = dict.fromkeys(self.rows, (offset, MINE))
        commit_under(self.producer, self.consumer.consumer_group_metadata(), offsets, read, self.store.check_unchanged)

    @property
    def committed(self) -> list[int | None]:
        return [each.offset for each in self.store.read(self.rows).values()]


@pytest.fixture
def group(broker: Broker, create_topic: Callable[..., str], app_id: str) -> Iterator[_Group]:
    made = _Group(broker.bootstrap_servers, app_id, create_topic("in", partitions=2))
    yield made
    made.consumer.close()


def test_a_commit_that_continues_from_the_committed_offsets_succeeds(group: _Group) -> None:
    """Without a committed offset, too, and with metadata."""
    group.commit(5, group.store.read(group.rows))
    group.commit(9, group.store.read(group.rows))
    assert group.committed == [9, 9]


def test_a_commit_that_continues_from_the_past_commits_nothing(group: _Group) -> None:
    """A broker that answered with offsets of the past must not make a worker process records twice."""
    group.reset(5)
    past = group.store.read(group.rows)
    group.reset(8)
    with pytest.raises(OffsetsChanged, match=r"is 8 \(epoch 3\), and this worker continued from 5 \(epoch 3\)"):
        group.commit(6, past)
    assert group.committed == [8, 8]
    group.commit(12, group.store.read(group.rows))  # the transaction was aborted
    assert group.committed == [12, 12]


def test_an_answer_from_before_the_expected_offsets_does_not_hinder_the_commit(group: _Group) -> None:
    """Some brokers answer such reads with the past until the next commit: it would never come (decision 0039)."""
    group.reset(8)
    read = group.store.read(group.rows)
    group.reset(5)
    group.commit(9, read)
    assert group.committed == [9, 9]


def test_another_owner_counts_like_another_offset(group: _Group) -> None:
    group.reset(5)
    past = group.store.read(group.rows)
    taken = [(row, (5, OffsetMetadata("w1", 4, topology="h"))) for row in group.rows]
    group.consumer.commit(offsets=topic_partitions(dict(taken)), asynchronous=False)
    with pytest.raises(OffsetsChanged, match="epoch 4"):
        group.commit(6, past)
    assert group.committed == [5, 5]


def _put(group: _Group, *offsets: tuple[int, OffsetMetadata | None]) -> None:
    """Commit offsets of both partitions; without metadata as a person does."""
    made = {row: (offset, found or OffsetMetadata()) for row, (offset, found) in zip(group.rows, offsets, strict=True)}
    group.consumer.commit(offsets=topic_partitions(made), asynchronous=False)


@pytest.mark.parametrize(
    "after", [None, OffsetMetadata(shared={"window": 5})], ids=["reset by a person", "committed by Kafka Streams"]
)
def test_a_greater_offset_without_an_owner_is_a_later_one(group: _Group, after: OffsetMetadata | None) -> None:
    """It has no epoch, and the worker continues from an answer of before."""
    _put(group, (5, MINE), (5, MINE))
    past = group.store.read(group.rows)
    _put(group, (5, MINE), (8, after))
    for _ in range(2):
        with pytest.raises(OffsetsChanged, match="is 8 "):
            group.commit(6, past)
    assert group.committed == [5, 8]


def test_an_offset_that_was_reset_while_a_task_starts_is_kept(group: _Group) -> None:
    """The worker looks it up again, and continues from it."""
    _put(group, (5, MINE), (5, MINE))
    past = group.store.read(group.rows)
    _put(group, (2, None), (2, None))
    with pytest.raises(OffsetsChanged, match="is 2 "):
        group.commit(6, past)
    assert group.committed == [2, 2]
    group.commit(3, group.store.read(group.rows))
    assert group.committed == [3, 3]


def test_an_earlier_answer_with_other_metadata_does_not_hinder_the_commit(group: _Group) -> None:
    """Each commit of a task writes the integers of its processors to all inputs, also to those without new records."""
    earlier, now = (replace(MINE, processors={"p": each}) for each in (1, 2))
    _put(group, (8, now), (3, now))
    read = group.store.read(group.rows)
    _put(group, (7, earlier), (3, earlier))
    group.commit(9, read)
    assert group.committed == [9, 9]


def test_other_metadata_alone_hinders_one_commit_only(group: _Group) -> None:
    """It may be of a later commit. If the next lookup has the same offsets as the last one, it was an earlier one."""
    earlier, now = (replace(MINE, processors={"p": each}) for each in (1, 2))
    _put(group, (8, now), (8, now))
    read = group.store.read(group.rows)
    _put(group, (8, earlier), (8, earlier))
    with pytest.raises(OffsetsChanged):
        group.commit(9, read)
    assert group.committed == [8, 8]
    group.commit(9, read)
    assert group.committed == [9, 9]


def test_metadata_with_more_than_ascii_is_compared_whole(group: _Group) -> None:
    """The client may hand over text with bytes that do not belong to it."""
    metadata = OffsetMetadata("wörker-0", 3, processors={"zähler": 2**40}, topology="h")
    assert encode_metadata(metadata)
    group.consumer.commit(offsets=topic_partitions(dict.fromkeys(group.rows, (5, metadata))), asynchronous=False)
    for offset in range(6, 16):
        group.commit(offset, group.store.read(group.rows))
    assert group.committed == [15, 15]
