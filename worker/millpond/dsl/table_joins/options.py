"""The options of joins of two tables, as keyword arguments: Kafka Streams' TableJoined, and its Materialized."""

from __future__ import annotations

from typing import Generic, TypeVar

from millpond.dsl.materialized import Materialized
from millpond.topology import StreamPartitioner

__all__ = ("TableJoined",)

K = TypeVar("K")
V = TypeVar("V")


class TableJoined(Materialized[K, V], Generic[K, V], total=False):
    """Keyword arguments of joins of two tables by a foreign key. All are optional. `name=` names the join's nodes."""

    partitioner: StreamPartitioner
    """f(topic, key, None, number of partitions) -> the partition of a key of this table, where the topic that it comes
    from was written with a partitioner; default: the partition from which the row came."""
    other_partitioner: StreamPartitioner
    """f(topic, foreign key, None, number of partitions) -> the partition of a key of the other table, where the topic
    that it comes from was written with a partitioner; default: murmur2 of the key's bytes. Both return a set of one."""
