"""End offsets of input partitions: the lag of a worker is the distance from its position to the end."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection

from confluent_kafka import IsolationLevel, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from millpond.runtime.config.model import Config
from millpond.runtime.kafka.end_offsets import offset_in

__all__ = ("InputEnds", "Partition")

log: logging.Logger = logging.getLogger("millpond.cli")

_TIMEOUT_S = 5.0
_QUIET = {"log_level": 2}
_LATEST: OffsetSpec = OffsetSpec.latest()  # type: ignore[no-untyped-call]

Partition = tuple[str, int]
"""A topic and one of its partitions."""


class InputEnds:
    """The last stable offsets of partitions.

    Attributes:
        known: the offsets of the last lookup, by topic and partition.
    """

    def __init__(self, config: Config) -> None:
        self._admin = AdminClient(dict(config.admin_settings(_QUIET)), logger=log)
        self.known: dict[Partition, int] = {}

    async def update(self, partitions: Collection[Partition]) -> None:
        """Update `known`; offsets that cannot be looked up keep their old value."""
        if partitions:
            await asyncio.to_thread(self._update, partitions)

    def _update(self, partitions: Collection[Partition]) -> None:
        wanted = {TopicPartition(*each): _LATEST for each in partitions}
        try:
            pending = self._admin.list_offsets(
                wanted, isolation_level=IsolationLevel.READ_COMMITTED, request_timeout=_TIMEOUT_S
            )
            for partition, future in pending.items():
                future.result(_TIMEOUT_S)
                self.known[partition.topic, partition.partition] = offset_in(future)
        except (KafkaException, TimeoutError):
            return  # the broker is down, or a topic does not exist yet: the next update may succeed
