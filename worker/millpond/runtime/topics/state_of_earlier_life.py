"""Checks that no task starts over with the state of an earlier life: without commits, but with records in a changelog.

A worker commits an owner for each of its tasks before it writes to their changelogs. So a changelog with records, of a
task whose offsets have no metadata, is left of an earlier life: the offsets were reset by hand, or have expired, or a
reset has kept the changelog. If the inputs are read from their beginning, each record would count twice. If they are
read from elsewhere, as after a record was skipped by hand or after Kafka Streams, the state may be right.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence

from millpond.errors import TopicError
from millpond.runtime.offsets.metadata import CommittedOffset, OffsetMetadata, Partition
from millpond.topology import TaskId

from .plan import Plan

__all__ = ("check_no_earlier_life",)

log: logging.Logger = logging.getLogger(__name__)

_NOTHING = OffsetMetadata()

Survey = Callable[[Sequence[Partition]], Mapping[Partition, CommittedOffset]]
Ranges = Callable[[Collection[Partition]], Mapping[Partition, tuple[int, int]]]
Starts = Callable[[str], bool]


def check_no_earlier_life(
    plan: Plan, existing: Collection[str], survey: Survey, ranges: Ranges, from_beginning: Starts
) -> None:
    """Check that no task reads its inputs from the beginning while its changelogs have records of an earlier life.

    Args:
        plan: the topics and tasks of the application.
        existing: all topics.
        survey: reads the committed offsets of partitions, without waiting for open transactions.
        ranges: requests the first offsets and the ends of partitions.
        from_beginning: returns whether an input without a committed offset is read from its beginning, by topic.

    Raises:
        TopicError: a task does.
    """
    internal = {topic.name for topic in plan.internal} & set(existing)
    changelogs = {
        task: found
        for task in plan.tasks
        if (found := [each for each in plan.changelogs_of(task) if each.topic in internal])
    }
    inputs = {task: [each for each in plan.inputs_of(task) if each.topic in existing] for task in changelogs}
    bare = _without_metadata(inputs, survey)
    if not bare:
        return
    ends = ranges(sorted({each for task in bare for each in (*changelogs[task], *inputs[task])}))
    written = {
        task: [each for each in changelogs[task] if ends[each][1] > ends[each][0]] for task in bare
    }  # fmt: skip
    suspects = {task: inputs[task] for task, found in written.items() if found}
    # Asked again, since another worker may have claimed a task and written to its changelogs meanwhile.
    for task, committed in _without_metadata(suspects, survey).items():
        topics = sorted({each.topic for each in written[task]})
        if _starts_over(inputs[task], committed, ends, from_beginning):
            raise TopicError(_refusal(task, topics, inputs[task]))
        log.warning(
            "task %s: no worker of this application has committed its offsets, and %s has state already, which is "
            "used. That is right after a move from Kafka Streams, or if offsets were set by hand to skip records. If "
            "they were set back, records count twice: stop the workers, and run `millpond reset`",
            task, ", ".join(f"'{topic}'" for topic in topics),
        )  # fmt: skip


def _without_metadata(
    inputs: Mapping[TaskId, Sequence[Partition]], survey: Survey
) -> dict[TaskId, Mapping[Partition, CommittedOffset]]:
    """Return the tasks of which no input has a committed offset with metadata, each with its committed offsets."""
    wanted = [each for own in inputs.values() for each in own]
    if not wanted:
        return {}
    committed = survey(wanted)
    return {
        task: {each: committed[each] for each in own}
        for task, own in inputs.items()
        if own and all(committed[each].metadata == _NOTHING for each in own)
    }


def _starts_over(
    inputs: Sequence[Partition],
    committed: Mapping[Partition, CommittedOffset],
    ends: Mapping[Partition, tuple[int, int]],
    from_beginning: Starts,
) -> bool:
    """Return whether a task reads all its inputs from their first record, and one of them has records."""
    for each in inputs:
        offset = committed[each].offset
        if not from_beginning(each.topic) if offset is None else offset > ends[each][0]:
            return False
    return any(ends[each][1] > ends[each][0] for each in inputs)


def _refusal(task: TaskId, topics: Sequence[str], inputs: Sequence[Partition]) -> str:
    several = len(topics) > 1
    named = ", ".join(f"'{topic}'" for topic in topics)
    return (
        f"task {task}: changelog{'s' if several else ''} {named} {'have' if several else 'has'} state of an earlier "
        f"life of this application, but its inputs ({', '.join(map(str, inputs))}) would be read from the beginning: "
        f"the committed offsets were reset or have expired, and each record would count twice. Nothing was changed. "
        f"Run 'millpond reset' to make the state again from the inputs; or, to keep the state, commit the offsets up "
        f"to which it is complete by 'kafka-consumer-groups.sh --reset-offsets'."
    )
