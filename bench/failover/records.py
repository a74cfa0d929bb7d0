"""The input records and the results, as texts that are the same on both sides.

A record has its number within the partition, from 0, and its send time. Its result adds how often its key
has been counted so far, when it was processed, and by which process. Keys take turns within a partition, so the count
that a result must carry follows from the record's number: a result shows whether the state behind it was correct.
"""

from __future__ import annotations

import time
from typing import Final, NamedTuple

from confluent_kafka import murmur2

PARTITIONS: Final = 8
KEYS_PER_PARTITION: Final = 125
STORE: Final = "counts"


class Result(NamedTuple):
    """One record of the output topic, received by the probe. Times are epoch microseconds of this machine's clock."""

    partition: int
    number: int
    """The number of the input record within its partition."""
    total: int
    """How often its key has been counted, this record included."""
    sent_us: int
    """When the generator created the input record."""
    processed_us: int
    """When the topology processed it."""
    owner: str
    """The process that processed it: the worker's name and the number of its start."""
    arrived_us: int
    """When the probe, a `read_committed` consumer, received the result."""


def now_us() -> int:
    """Return the wall-clock time in epoch microseconds."""
    return time.time_ns() // 1000


def record(number: int, sent_us: int) -> str:
    """Return the value of an input record."""
    return f"{number} {sent_us}"


def result(record: str, before: str, owner: str) -> str:
    """Return the value of a record's result, which is also the new state of its key.

    Args:
        record: the value of the input record.
        before: the state of its key; empty at first.
        owner: the name of this process.
    """
    count = int(before.partition(" ")[0]) + 1 if before else 1
    return f"{count} {record} {now_us()} {owner}"


def parse(partition: int, value: bytes, arrived_us: int) -> Result:
    """Return a result from its text.

    Raises:
        ValueError: the text is not a result.
    """
    count, number, sent, processed, owner = value.decode().split(" ")
    return Result(partition, int(number), int(count), int(sent), int(processed), owner, arrived_us)


def expected_count(number: int) -> int:
    """Return the count that the result of record `number` of a partition must have."""
    return number // KEYS_PER_PARTITION + 1


def keys(partitions: int = PARTITIONS, per_partition: int = KEYS_PER_PARTITION) -> list[list[bytes]]:
    """Return `per_partition` keys for each partition by Kafka's partitioner: results stay in that partition."""
    found: list[list[bytes]] = [[] for _ in range(partitions)]
    number = 0
    while any(len(each) < per_partition for each in found):
        key = b"k%06d" % number
        mine = found[murmur2(key, partitions)]
        if len(mine) < per_partition:
            mine.append(key)
        number += 1
    return found
