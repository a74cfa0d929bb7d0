"""Checks that no changelog with state was deleted before missing changelogs are created.

A changelog that is created again is empty. Local rows would be dropped, since they are ahead of it, and counts would
start again at 1. So a missing changelog is created only without a trace of a former one: committed offsets name
the topology whose state it had, and local rows name the store (docs/decisions/0026-changelogs-that-were-deleted.md).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from millpond.errors import TopicError
from millpond.runtime.offsets.metadata import CommittedOffset, Partition

from .plan import Plan, summary

__all__ = ("LocalOffsets", "check_changelogs")

#: How long a broker may not know a topic that another worker has just created.
_PROPAGATION_S = 5.0
_PAUSE_S = 0.1

Survey = Callable[[Sequence[Partition]], Mapping[Partition, CommittedOffset]]


class LocalOffsets(Protocol):
    """The state on the worker's disk.

    Attributes:
        path: its directory.
    """

    path: Path

    def offset(self, store: str, partition: int) -> int | None:
        """Return the changelog offset of a store partition's local rows; None without local rows."""


def check_changelogs(
    plan: Plan,
    existing: Mapping[str, int],
    topics: Callable[[], Mapping[str, int]],
    survey: Survey,
    local: LocalOffsets,
) -> Mapping[str, int]:
    """Check that no changelog with state of the application is missing.

    Args:
        plan: the topics that the application needs.
        existing: the partition count of every topic.
        topics: requests the partition counts again and returns them.
        survey: reads the committed offsets of partitions, without waiting for open transactions.
        local: the state on the worker's disk.

    Returns:
        The partition count of every topic, read after the committed offsets.

    Raises:
        TopicError: a changelog with state was deleted.
    """
    missing = _missing(plan, existing)
    if not missing:
        return existing
    hash = summary(plan).hash
    inputs = {
        task: plan.inputs_of(task) for task in plan.tasks if task.subtopology in {part for part, _ in missing.values()}
    }
    committed = survey([each for own in inputs.values() for each in own])
    deleted: dict[str, bool] = {}  # by topic: whether rows on disk are the only trace
    for topic, (part, store) in missing.items():
        tasks = [task for task in inputs if task.subtopology == part]
        metadata = [committed[each].metadata for task in tasks for each in inputs[task]]
        by_this_topology = any(each.topology == hash for each in metadata)
        on_disk = any(local.offset(store, task.partition) is not None for task in tasks)
        if by_this_topology or (on_disk and any(each.owner is not None for each in metadata)):
            deleted[topic] = not by_this_topology
    if deleted:
        existing = _await_propagation(deleted, topics)
        if missing_topics := sorted(topic for topic in deleted if topic not in existing):
            only_rows = all(deleted[topic] for topic in missing_topics)
            raise TopicError(_lost(missing_topics) + (_store_added_again(local.path) if only_rows else ""))
    return existing


def _missing(plan: Plan, existing: Mapping[str, int]) -> dict[str, tuple[int, str]]:
    """Return the changelogs that do not exist, each with its sub-topology and store, without source topics."""
    internal = {topic.name for topic in plan.internal}
    return {
        topic: (part, store)
        for part, changelogs in plan.changelogs.items()
        for store, topic in changelogs.items()
        if topic in internal and topic not in existing
    }


def _await_propagation(wanted: Iterable[str], topics: Callable[[], Mapping[str, int]]) -> Mapping[str, int]:
    deadline = time.monotonic() + _PROPAGATION_S
    while True:
        existing = topics()
        if all(topic in existing for topic in wanted) or time.monotonic() >= deadline:
            return existing
        time.sleep(_PAUSE_S)


def _lost(topics: Sequence[str]) -> str:
    several = len(topics) > 1
    named = ", ".join(f"'{topic}'" for topic in topics)
    return (
        f"changelog{'s' if several else ''} {named} {'were' if several else 'was'} deleted, but the committed offsets "
        f"still exist: with {'new, empty changelogs' if several else 'a new, empty changelog'} the state would be "
        f"lost. Nothing was changed. Restore {'the topics with their' if several else 'the topic with its'} content, "
        f"or run 'millpond reset' to process the inputs from the beginning."
    )


def _store_added_again(path: Path) -> str:
    return (
        f" If the store was removed from the topology and is now added again, delete its former rows in the state "
        f"directory '{path}', and restart the worker."
    )
