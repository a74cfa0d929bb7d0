"""Watches one output of each sub-topology of the application with every operator, and its internal topics."""

from __future__ import annotations

import struct
import time
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from tests.chaos.operators.application import OUT, PARTITIONS
from tests.chaos.operators.generating import Generator
from tests.chaos.watching import Watch

__all__ = ("OperatorWatch",)

_SHOWS = {f"{OUT}count": 0, f"{OUT}regrouped": 2, f"{OUT}rekeyed": 3}
"""The sub-topology that an output shows; 1 is that of the global table."""
_long = struct.Struct(">q")


class OperatorWatch(Watch):
    """Checks that each record is counted once."""

    def __init__(self, bootstrap_servers: str, generator: Generator, internal: Sequence[str]) -> None:
        tasks = [(subtopology, partition) for subtopology in _SHOWS.values() for partition in range(PARTITIONS)]
        super().__init__(bootstrap_servers, dict.fromkeys([*_SHOWS, *internal], PARTITIONS), internal, tasks)
        self._generator = generator
        self._counts: dict[bytes, int] = defaultdict(int)

    def _came(self, message: Any) -> None:
        subtopology = _SHOWS.get(message.topic())
        if subtopology is None:
            return
        if subtopology == 0:
            key, (count,) = message.key(), _long.unpack(message.value())
            if count != self._counts[key] + 1:
                self._violation(f"{key.decode()}: after {self._counts[key]} comes {count}")
            self._counts[key] = count
            self.seen += 1
        self.progressed_at = time.monotonic()
        sent_at = self._generator.sent_at(message.timestamp()[1])
        self._progressed((subtopology, message.partition()), sent_at)
