"""Initial state of the application: changelog rows that no input record changes."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Final

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from bench.failover.records import PARTITIONS

__all__ = ("VALUE_BYTES", "fill")

VALUE_BYTES: Final = 100
_KEY: Final = b"ballast-%012d"
_ROW_BYTES: Final = VALUE_BYTES + len(_KEY % 0)
_TOPIC_TIMEOUT_S: Final = 30.0
_STEP: Final = 20_000


def fill(bootstrap: str, changelog: str, state_bytes: int, seed: int, on_progress: Callable[[int], object]) -> int:
    """Create a changelog and write rows to it.

    Args:
        bootstrap: the broker.
        changelog: the name of the topic.
        state_bytes: the bytes of keys and values per partition.
        seed: the seed of the values.
        on_progress: called with the number of further rows written.

    Returns:
        The number of rows per partition.

    Raises:
        KafkaException: the topic cannot be created.
    """
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    # Compacted like a changelog, but not during this run: both ways have to read the same records.
    config = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "1.0", "min.compaction.lag.ms": "86400000"}
    made = admin.create_topics([NewTopic(changelog, num_partitions=PARTITIONS, replication_factor=1, config=config)])
    made[changelog].result(_TOPIC_TIMEOUT_S)
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "linger.ms": 20,
            "queue.buffering.max.messages": 500_000,
            "log_level": 0,  # this client outlives the broker
        }
    )
    noise = random.Random(seed).randbytes(1 << 16).hex().encode()
    rows = -(-state_bytes // _ROW_BYTES)
    for number in range(rows):
        at = number * 37 % (len(noise) - VALUE_BYTES)
        for partition in range(PARTITIONS):
            while True:
                try:
                    producer.produce(changelog, noise[at : at + VALUE_BYTES], _KEY % number, partition)
                    break
                except BufferError:
                    producer.poll(0.1)
        if number % _STEP == _STEP - 1:
            producer.poll(0)
            on_progress(_STEP * PARTITIONS)
    producer.flush()
    return rows
