"""Ends of input partitions, asked of Kafka: what is beyond a worker's position is its lag."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection

from confluent_kafka import IsolationLevel, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from millpond.runtime.config.model import Config

__all__ = ("InputEnds", "Partition")

log: logging.Logger = logging.getLogger("millpond.cli")

_TIMEOUT_S = 5.0
_QUIET = {"log_level": 2}
_LATEST: OffsetSpec = OffsetSpec.latest()  # type: ignore[no-untyped-call]

Partition = tuple[str, int]
"""A topic and one of its partitions."""


class InputEnds:
    """Looks up the last stable offsets of partitions.

    Attributes:
        known: what was found last, by topic and partition.
    """

    def __init__(self, config: Config) -> None:
        self._admin = AdminClient(dict(config.admin_settings(_QUIET)), logger=log)
        self.known: dict[Partition, int] = {}

    async def look(self, partitions: Collection[Partition]) -> None:
        """Bring `known` up to date; what cannot be found out stays as it was."""
        if partitions:
            await asyncio.to_thread(self._look, partitions)

    def _look(self, partitions: Collection[Partition]) -> None:
        wanted = {TopicPartition(*each): _LATEST for each in partitions}
        try:
            asked = self._admin.list_offsets(
                wanted, isolation_level=IsolationLevel.READ_COMMITTED, request_timeout=_TIMEOUT_S
            )
            for partition, answer in asked.items():
                self.known[partition.topic, partition.partition] = answer.result(_TIMEOUT_S).offset
        except (KafkaException, TimeoutError):
            return  # the broker is away, or a topic is not there yet: the next look may find it
