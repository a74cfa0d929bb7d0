"""The tasks of a topology, and the differences between two topologies as text."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from itertools import islice

import msgspec

from millpond.protocol import Heartbeat, SubtopologySummary, TopologySummary
from millpond.topology import TaskId
from millpond_operator.assignment import Task

__all__ = ("change", "differences", "only_known", "tasks_of", "united")

#: The number of differences that are listed; more of them only mean that the topologies have nothing in common.
_MAX_LISTED = 4


def tasks_of(topology: TopologySummary) -> dict[TaskId, Task]:
    """Return the tasks of a topology."""
    return {
        task: Task(task, stateful=each.stateful)
        for each in topology.subtopologies
        for task in (TaskId(each.id, partition) for partition in range(each.partitions))
    }


def united(one: TopologySummary, other: TopologySummary) -> TopologySummary | None:
    """Return the topology of an application whose workers run both; None when these may not run side by side.

    They may if they differ only in the number of tasks of sub-topologies that follow their inputs: workers notice new
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
    """Return a log line about a change of the application's topology."""
    if ours.hash == new.hash:
        return f"source topics: the number of partitions changed: {differences(ours, new)}"
    return f"topology {new.hash}: replaces {ours.hash}, which no worker runs any more"


def only_known(heartbeat: Heartbeat, ids: Collection[str]) -> Heartbeat:
    """Remove all tasks from a heartbeat but those with these names."""
    if all(
        text in ids
        for each in (heartbeat.tasks, heartbeat.on_disk, heartbeat.taken_over, heartbeat.committed, _loaded(heartbeat))
        for text in each
    ):
        return heartbeat
    load = heartbeat.load
    return msgspec.structs.replace(
        heartbeat,
        tasks={text: report for text, report in heartbeat.tasks.items() if text in ids},
        committed={text: mark for text, mark in heartbeat.committed.items() if text in ids},
        on_disk={text: offset for text, offset in heartbeat.on_disk.items() if text in ids},
        taken_over={text: owner for text, owner in heartbeat.taken_over.items() if text in ids},
        load=load
        and msgspec.structs.replace(load, tasks={text: each for text, each in load.tasks.items() if text in ids}),
    )


def _loaded(heartbeat: Heartbeat) -> Collection[str]:
    """Return the tasks whose load a heartbeat reports."""
    return () if heartbeat.load is None else heartbeat.load.tasks


def differences(running: TopologySummary, other: TopologySummary) -> str:
    """Return how `other` differs from `running`, as a clause for a sentence."""
    found = list(islice(_differences(running, other), _MAX_LISTED + 1))
    if not found:
        return "sub-topologies, stores and source topics are equal; something else in the hash differs"
    more = ["and more"] if len(found) > _MAX_LISTED else []
    return "; ".join(found[:_MAX_LISTED] + more)


def _differences(running: TopologySummary, other: TopologySummary) -> Iterator[str]:
    old = {each.id: each for each in running.subtopologies}
    new = {each.id: each for each in other.subtopologies}
    for id in sorted(old.keys() | new.keys()):
        if id not in new:
            yield f"sub-topology {id} is missing"
        elif id not in old:
            yield f"sub-topology {id} is new"
        else:
            yield from _differences_in(id, old[id], new[id])


def _differences_in(id: int, old: SubtopologySummary, new: SubtopologySummary) -> Iterator[str]:
    for store in sorted({*old.stores, *new.stores}):
        if store not in new.stores:
            yield f"sub-topology {id} no longer has store '{store}'"
        elif store not in old.stores:
            yield f"sub-topology {id} has a new store '{store}'"
    for topic in sorted(old.sources.keys() | new.sources.keys()):
        if topic not in new.sources:
            yield f"sub-topology {id} no longer reads '{topic}'"
        elif topic not in old.sources:
            yield f"sub-topology {id} also reads '{topic}'"
        elif old.sources[topic] != new.sources[topic]:
            yield f"'{topic}' has {new.sources[topic]} partitions, not {old.sources[topic]}"
    if old.partitions != new.partitions:
        yield f"sub-topology {id} has {new.partitions} tasks, not {old.partitions}"
    if old.stateful != new.stateful:
        yield f"sub-topology {id} is {'' if new.stateful else 'not '}stateful"
