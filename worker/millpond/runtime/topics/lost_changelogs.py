"""Refuses to make a changelog again that an application had already: it would begin empty, and so would the state.

Local rows would be dropped for a changelog that is shorter than they are, and counts would begin again at 1. So a changelog
that is missing is made only where nothing tells that it was there: committed offsets name the topology whose state it has,
and local rows name the store (docs/decisions/0026-changelogs-that-were-deleted.md).
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

#: A topic that another worker made just now may be unknown to the broker that was asked.
_SPREAD_S = 5.0
_PAUSE_S = 0.1

Survey = Callable[[Sequence[Partition]], Mapping[Partition, CommittedOffset]]


class LocalOffsets(Protocol):
    """What the worker has on disk.

    Attributes:
        path: where that is.
    """

    path: Path

    def offset(self, store: str, partition: int) -> int | None:
        """The changelog offset that a store partition reaches; None when there is none."""


def check_changelogs(
    plan: Plan,
    existing: Mapping[str, int],
    topics: Callable[[], Mapping[str, int]],
    survey: Survey,
    local: LocalOffsets,
) -> Mapping[str, int]:
    """Make sure that no changelog is missing that the application had.

    Args:
        plan: what the application needs.
        existing: partition count of every topic.
        topics: asks for them again.
        survey: reads the committed offsets of partitions, whatever transactions are open.
        local: what the worker has on disk.

    Returns:
        partition count of every topic, newer than the committed offsets that were looked at.

    Raises:
        TopicError: one is missing, and with it the state.
    """
    missing = _missing(plan, existing)
    if not missing:
        return existing
    hash = summary(plan).hash
    inputs = {
        task: plan.inputs_of(task) for task in plan.tasks if task.subtopology in {part for part, _ in missing.values()}
    }
    committed = survey([each for own in inputs.values() for each in own])
    had: dict[str, bool] = {}  # whether its rows on disk are all that tells
    for topic, (part, store) in missing.items():
        tasks = [task for task in inputs if task.subtopology == part]
        metadata = [committed[each].metadata for task in tasks for each in inputs[task]]
        by_this_topology = any(each.topology == hash for each in metadata)
        on_disk = any(local.offset(store, task.partition) is not None for task in tasks)
        if by_this_topology or (on_disk and any(each.owner is not None for each in metadata)):
            had[topic] = not by_this_topology
    if had:
        existing = _await_spread(had, topics)
        if gone := sorted(topic for topic in had if topic not in existing):
            raise TopicError(_lost(gone) + (_added_again(local.path) if all(had[topic] for topic in gone) else ""))
    return existing


def _missing(plan: Plan, existing: Mapping[str, int]) -> dict[str, tuple[int, str]]:
    """Changelogs that do not exist, each with its sub-topology and store. Source topics are not made by anybody here."""
    internal = {topic.name for topic in plan.internal}
    return {
        topic: (part, store)
        for part, changelogs in plan.changelogs.items()
        for store, topic in changelogs.items()
        if topic in internal and topic not in existing
    }


def _await_spread(wanted: Iterable[str], topics: Callable[[], Mapping[str, int]]) -> Mapping[str, int]:
    deadline = time.monotonic() + _SPREAD_S
    while True:
        existing = topics()
        if all(topic in existing for topic in wanted) or time.monotonic() >= deadline:
            return existing
        time.sleep(_PAUSE_S)


def _lost(gone: Sequence[str]) -> str:
    several = len(gone) > 1
    named = ", ".join(f"'{topic}'" for topic in gone)
    return (
        f"changelog{'s' if several else ''} {named} {'were' if several else 'was'} deleted, and with "
        f"{'them' if several else 'it'} the state, while the committed offsets go on: made again, "
        f"{'they' if several else 'it'} would begin empty. Nothing is dropped. Restore "
        f"{'the topics with their' if several else 'the topic with its'} content, or run 'millpond reset' to process the "
        f"inputs from the beginning."
    )


def _added_again(path: Path) -> str:
    return (
        f" If the topology had lost the store and its deleted changelog, and now has the store again, delete the rows of the "
        f"former one, which are in the state directory '{path}', and restart the worker."
    )
