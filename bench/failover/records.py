"""The records that go in and the results that come out, as text, the same on both sides.

A record of a partition says which one it is, counted from 0, and when it was sent. Its result adds how often its key has been
counted so far, when it was processed, and by which process. Keys take turns within a partition, so the count that a result
must carry follows from the record's number: a result shows whether the state behind it was whole.
"""

from __future__ import annotations

import time
from typing import Final, NamedTuple

from confluent_kafka import murmur2

PARTITIONS: Final = 8
KEYS_PER_PARTITION: Final = 125
STORE: Final = "counts"


class Result(NamedTuple):
    """One record of the output topic, as it arrived at the probe. Times are epoch microseconds of the one machine's clock."""

    partition: int
    number: int
    """Of the input record within its partition."""
    total: int
    """How often its key has been counted, this record included."""
    sent_us: int
    """When the generator made the input record."""
    processed_us: int
    """When the topology saw it."""
    owner: str
    """The process that did: the worker's name and a number that grows with each start of it."""
    arrived_us: int
    """When the probe, a `read_committed` consumer, had it."""


def now_us() -> int:
    """The wall clock, epoch microseconds."""
    return time.time_ns() // 1000


def record(number: int, sent_us: int) -> str:
    """The value of an input record."""
    return f"{number} {sent_us}"


def result(record: str, before: str, owner: str) -> str:
    """The value of a record's result, which is the new state of its key too.

    Args:
        record: the input record's value.
        before: the state of its key, empty at first.
        owner: the process that computes this.
    """
    count = int(before.partition(" ")[0]) + 1 if before else 1
    return f"{count} {record} {now_us()} {owner}"


def parse(partition: int, value: bytes, arrived_us: int) -> Result:
    """A result read back.

    Raises:
        ValueError: it is none.
    """
    count, number, sent, processed, owner = value.decode().split(" ")
    return Result(partition, int(number), int(count), int(sent), int(processed), owner, arrived_us)


def expected_count(number: int) -> int:
    """The count that the result of a partition's record `number` must carry."""
    return number // KEYS_PER_PARTITION + 1


def keys(partitions: int = PARTITIONS, per_partition: int = KEYS_PER_PARTITION) -> list[list[bytes]]:
    """`per_partition` keys for each partition, which Kafka's own partitioner puts there: results keep the partition of their input."""
    found: list[list[bytes]] = [[] for _ in range(partitions)]
    number = 0
    while any(len(each) < per_partition for each in found):
        key = b"k%06d" % number
        mine = found[murmur2(key, partitions)]
        if len(mine) < per_partition:
            mine.append(key)
        number += 1
    return found
