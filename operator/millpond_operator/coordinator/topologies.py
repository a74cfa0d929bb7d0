"""The tasks of a topology, and what tells two topologies apart, in words."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from itertools import islice

import msgspec

from millpond.protocol import Heartbeat, SubtopologySummary, TopologySummary
from millpond.topology import TaskId
from millpond_operator.assignment import Task

__all__ = ("change", "differences", "only_known", "tasks_of", "united")

#: Further differences say little more than that the topologies have nothing in common.
_MOST_NAMED = 4


def tasks_of(topology: TopologySummary) -> dict[TaskId, Task]:
    """The tasks of a topology."""
    return {
        task: Task(task, stateful=each.stateful)
        for each in topology.subtopologies
        for task in (TaskId(each.id, partition) for partition in range(each.partitions))
    }


def united(one: TopologySummary, other: TopologySummary) -> TopologySummary | None:
    """Return the topology of an application whose workers run both; None when these may not run side by side.

    They may where they differ in nothing but the number of tasks of sub-topologies that follow their inputs: workers notice new
    partitions at different times, and the larger number is the newer one.
    """
    if one.hash != other.hash or len(one.subtopologies) != len(other.subtopologies):
        return None
    parts = []
    for each, twin in zip(one.subtopologies, other.subtopologies, strict=True):
        more = max(each, twin, key=lambda part: part.partitions)
        if each != twin and not (each.follows_inputs and _counted_as(each, more) == _counted_as(twin, more)):
            return None
        parts.append(more)
    return TopologySummary(one.hash, tuple(parts))


def _counted_as(part: SubtopologySummary, other: SubtopologySummary) -> SubtopologySummary:
    sources = dict.fromkeys(part.sources, other.partitions)
    return msgspec.structs.replace(part, partitions=other.partitions, sources=sources)


def change(ours: TopologySummary, new: TopologySummary) -> str:
    """Say, in a sentence, what becomes of an application's topology."""
    if ours.hash == new.hash:
        return f"The partitions of inputs have changed: {differences(ours, new)}."
    return f"Topology {new.hash} takes the place of {ours.hash}, which nobody runs any more."


def only_known(heartbeat: Heartbeat, ids: Collection[str]) -> Heartbeat:
    """A heartbeat without tasks whose ids are not among these."""
    if all(
        text in ids
        for each in (heartbeat.tasks, heartbeat.on_disk, heartbeat.taken_over, heartbeat.committed)
        for text in each
    ):
        return heartbeat
    return msgspec.structs.replace(
        heartbeat,
        tasks={text: report for text, report in heartbeat.tasks.items() if text in ids},
        committed={text: mark for text, mark in heartbeat.committed.items() if text in ids},
        on_disk={text: offset for text, offset in heartbeat.on_disk.items() if text in ids},
        taken_over={text: owner for text, owner in heartbeat.taken_over.items() if text in ids},
    )


def differences(running: TopologySummary, other: TopologySummary) -> str:
    """What `other` has that `running` has not, and the other way round: a clause for a sentence."""
    found = list(islice(_differences(running, other), _MOST_NAMED + 1))
    if not found:
        return "sub-topologies, stores and source topics are alike, so something else that the hash covers differs"
    more = ["and more"] if len(found) > _MOST_NAMED else []
    return "; ".join(found[:_MOST_NAMED] + more)


def _differences(running: TopologySummary, other: TopologySummary) -> Iterator[str]:
    old = {each.id: each for each in running.subtopologies}
    new = {each.id: each for each in other.subtopologies}
    for id in sorted(old.keys() | new.keys()):
        if id not in new:
            yield f"sub-topology {id} is gone"
        elif id not in old:
            yield f"sub-topology {id} is new"
        else:
            yield from _differences_in(id, old[id], new[id])


def _differences_in(id: int, old: SubtopologySummary, new: SubtopologySummary) -> Iterator[str]:
    for store in sorted({*old.stores, *new.stores}):
        if store not in new.stores:
            yield f"sub-topology {id} has no store '{store}' any more"
        elif store not in old.stores:
            yield f"sub-topology {id} has a new store '{store}'"
    for topic in sorted(old.sources.keys() | new.sources.keys()):
        if topic not in new.sources:
            yield f"sub-topology {id} does not read '{topic}' any more"
        elif topic not in old.sources:
            yield f"sub-topology {id} reads '{topic}' too"
        elif old.sources[topic] != new.sources[topic]:
            yield f"'{topic}' has {new.sources[topic]} partitions, not {old.sources[topic]}"
    if old.partitions != new.partitions:
        yield f"sub-topology {id} has {new.partitions} tasks, not {old.partitions}"
    if old.stateful != new.stateful:
        yield f"sub-topology {id} is {'' if new.stateful else 'not '}stateful"
