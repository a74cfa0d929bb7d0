"""The check before a task's first commit: the committed offsets are still those that the task continued from.

A broker that was frozen, and continues, answers for a moment as if it still coordinated the group: with offsets of the
past, from which records would be processed again (docs/decisions/0064-offsets-of-a-frozen-broker.md).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from confluent_kafka import KafkaError, KafkaException

from millpond.runtime.error_codes import Request, may_repeat
from millpond.runtime.offsets.metadata import CommittedOffset, Partition

__all__ = ("Committed", "OffsetCheck", "OffsetsChanged", "UnchangedOffsets", "unchecked")

Committed = Mapping[Partition, CommittedOffset]

_REQUEST_TIMEOUT_S = 2.0
_PAUSE_S = 0.02


class OffsetsChanged(KafkaException):
    """The committed offsets are not those that a task continued from. Nothing was committed; look them up again."""

    def __init__(self, partition: Partition, expected: CommittedOffset, found: CommittedOffset) -> None:
        super().__init__(
            KafkaError(
                KafkaError.NOT_COORDINATOR,
                f"the committed offset of {partition} is {_shown(found)}, and this worker continued from "
                f"{_shown(expected)}: either a broker that no longer coordinates the group had answered with offsets "
                "of the past, or they were reset meanwhile. Nothing is committed",
            )
        )


def _shown(committed: CommittedOffset) -> str:
    return f"{committed.offset} (epoch {committed.metadata.epoch})"


class OffsetCheck(Protocol):
    """Checks committed offsets while a transaction is open that has others for the same partitions."""

    def __call__(self, expected: Committed, left_s: Callable[[], float]) -> None:
        """Return if the committed offsets are those expected.

        Args:
            expected: the committed offsets that were looked up.
            left_s: returns how long the transaction may still be open, in seconds.

        Raises:
            OffsetsChanged: they are others.
            KafkaException: no broker answered in time, or one rejected the request.
        """


def unchecked(expected: Committed, left_s: Callable[[], float]) -> None:
    """Check nothing, for commits without a transaction."""


class UnchangedOffsets:
    """Reads the committed offsets once more, with a client that has to find the group's coordinator first.

    Args:
        read: reads committed offsets with a new client, and does not wait for open transactions; it gets the
            partitions and a timeout in seconds.
    """

    def __init__(self, read: Callable[[Sequence[Partition], float], Committed]) -> None:
        self._read = read

    def __call__(self, expected: Committed, left_s: Callable[[], float]) -> None:
        """Check them, as `OffsetCheck` says."""
        if not expected:
            return
        began = time.monotonic()
        while True:
            try:
                found = self._read(list(expected), _REQUEST_TIMEOUT_S)
                break
            except KafkaException as error:
                if left_s() <= 0 or not may_repeat(error.args[0], Request.READ, time.monotonic() - began):
                    raise
            time.sleep(_PAUSE_S)
        for partition, known in expected.items():
            if found[partition] != known:
                raise OffsetsChanged(partition, known, found[partition])
