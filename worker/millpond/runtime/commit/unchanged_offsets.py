"""The check before a task's first commit: the committed offsets are still those that the task continued from.

A broker that was frozen, and continues, answers for a moment as if it still coordinated the group: with offsets of the
past, from which records would be processed again (docs/decisions/0064-offsets-of-a-frozen-broker.md).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from confluent_kafka import KafkaError, KafkaException

from millpond.runtime.offsets.metadata import CommittedOffset, Partition

__all__ = ("Committed", "OffsetCheck", "OffsetsChanged", "later", "unordered")

Committed = Mapping[Partition, CommittedOffset]


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
        """Return if the committed offsets are those expected, or those of a commit before.

        Args:
            expected: the committed offsets that were looked up.
            left_s: returns how long the transaction may still be open, in seconds.

        Raises:
            OffsetsChanged: they are later ones, or it is not clear which were committed first.
            KafkaException: no broker answered in time, or one rejected the request.
        """


def later(expected: Committed, found: Committed) -> tuple[Partition, CommittedOffset, CommittedOffset] | None:
    """Return a partition, with both of its offsets, in which `found` was committed after `expected`; None without one.

    Offsets of Kafka Streams have no epoch, so a greater offset is a later one under each epoch.
    """
    for partition, known in expected.items():
        if found[partition].is_after(known):
            return partition, known, found[partition]
    return None


def unordered(expected: Committed, found: Committed) -> dict[Partition, tuple[CommittedOffset, CommittedOffset]]:
    """Return the offsets that differ, if nothing tells which are the later ones, and nothing in `found` is `later`.

    That is so if only metadata differs, as after commits of punctuators, and if something in `found` has no owner:
    then a person may have reset offsets. All offsets of a group are in one log, so if one of the others was committed
    before, all of them were.
    """
    changed = {each: (known, found[each]) for each, known in expected.items() if found[each] != known}
    owned = all(other.metadata.owner is not None for _, other in changed.values())
    return {} if owned and any(other.is_before(known) for known, other in changed.values()) else changed
