"""How committed offsets are split into requests."""

from __future__ import annotations

from confluent_kafka import TopicPartition
from hypothesis import given
from hypothesis import strategies as st

from millpond.runtime.commit.pipeline import portions, topic_partitions
from millpond.runtime.offsets.metadata import CommittedOffset, OffsetMetadata, Partition
from millpond.runtime.ownership.takeover import claimed

#: The group's coordinator writes a request as one batch, and refuses one that is bigger than this by default.
MOST_BYTES = 1024 * 1024
#: A generous bound of what an offset takes in it beside its topic, its group and its metadata.
OVERHEAD_BYTES = 100


def size_of(part, group="g" * 100):
    """The approximate size that the coordinator writes, in bytes."""
    return sum(len(group) + len(each.topic) + len(each.metadata or "") + OVERHEAD_BYTES for each in part)


@given(st.lists(st.tuples(st.integers(1, 249), st.integers(0, 4096)), max_size=400))
def test_every_offset_is_in_one_request_that_the_broker_accepts(sizes):
    """No offset is lost, duplicated or moved, no request is empty, and none is too large, for any size of metadata."""
    offsets = [
        TopicPartition("t" * topic, number, number, "m" * metadata) for number, (topic, metadata) in enumerate(sizes)
    ]
    parts = portions(offsets)
    assert [each.partition for part in parts for each in part] == list(range(len(offsets)))
    assert all(parts)
    assert all(size_of(part) <= MOST_BYTES for part in parts)


def test_few_offsets_are_one_request():
    """An ordinary commit is not split."""
    offsets = [TopicPartition("topic", number, 0, "metadata") for number in range(500)]
    assert portions(offsets) == [offsets]


def test_a_take_over_of_very_many_partitions_is_several_requests():
    """Ten thousand partitions, each with an owner, do not fit into one request."""
    committed = {
        Partition("a-topic-with-a-name", number): CommittedOffset(number, OffsetMetadata("worker-0", 1, 1))
        for number in range(10_000)
    }
    offsets = topic_partitions(claimed(committed, lambda _: 0, "worker-1", 2, "0123456789abcdef"))
    parts = portions(offsets)
    assert size_of(offsets) > MOST_BYTES
    assert [each.partition for part in parts for each in part] == list(range(10_000))
    assert all(size_of(part) <= MOST_BYTES for part in parts)
