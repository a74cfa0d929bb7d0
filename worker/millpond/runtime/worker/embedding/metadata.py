"""What a program sees of the tasks and stores of its worker (Kafka Streams' `metadataForLocalThreads` and lags)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from millpond.protocol import Role, TaskState
from millpond.protocol.loads import WorkerLoad
from millpond.runtime.offsets.metadata import Partition
from millpond.runtime.states import WorkerState
from millpond.runtime.tasks.held_tasks import HeldTask
from millpond.topology import TaskId

__all__ = ("LagInfo", "TaskMetadata", "ThreadMetadata", "lags_of", "tasks_of")


class TaskMetadata(NamedTuple):
    """A task that a worker holds."""

    task_id: TaskId
    """The task's id."""
    role: str
    """`active`, `standby` or `warm-up`."""
    state: str
    """`acquiring`, `restoring`, `running` or `releasing`."""
    topic_partitions: frozenset[Partition]
    """Its inputs, by the topics' names in Kafka."""
    committed_offsets: Mapping[Partition, int]
    """The committed offset of each input, the next one to read; empty for copies and before the first commit."""
    end_offsets: Mapping[Partition, int]
    """The end of each input, as last measured; empty for copies."""


class ThreadMetadata(NamedTuple):
    """The loop of a worker, and its tasks. A worker has one loop, where Kafka Streams has several threads."""

    thread_name: str
    """The worker's id."""
    thread_state: WorkerState
    """The worker's state."""
    active_tasks: tuple[TaskMetadata, ...]
    """The active tasks, by id."""
    standby_tasks: tuple[TaskMetadata, ...]
    """The copies, by id."""

    @classmethod
    def of(cls, name: str, state: WorkerState, tasks: Iterable[TaskMetadata]) -> ThreadMetadata:
        """Return the metadata of a worker with these tasks."""
        active: list[TaskMetadata] = []
        copies: list[TaskMetadata] = []
        for task in tasks:
            (active if task.role == Role.ACTIVE.value else copies).append(task)
        return cls(name, state, tuple(active), tuple(copies))


class LagInfo(NamedTuple):
    """How far a store is behind its changelog (KIP-535)."""

    current_offset_position: int
    """The changelog offset that the store has reached."""
    end_offset_position: int
    """The end of the changelog, as the worker knows it."""
    offset_lag: int
    """Changelog offsets between the two; 0 for the store of an active task that runs."""


def tasks_of(
    held: Iterable[HeldTask], inputs: Mapping[TaskId, Iterable[str]], load: WorkerLoad | None
) -> tuple[TaskMetadata, ...]:
    """Return the metadata of tasks, by id.

    Args:
        held: the tasks.
        inputs: the topics that each task reads.
        load: the last measured load, for the ends of inputs; None without one.
    """
    return tuple(sorted((_task(each, inputs, load) for each in held), key=lambda task: task.task_id))


def _task(held: HeldTask, inputs: Mapping[TaskId, Iterable[str]], load: WorkerLoad | None) -> TaskMetadata:
    partitions = frozenset(Partition(topic, held.id.partition) for topic in inputs.get(held.id, ()))
    committed: dict[Partition, int] = {}
    ends: dict[Partition, int] = {}
    if held.role is Role.ACTIVE:
        committed = {at: each.offset for at, each in list(held.committed.items()) if each.offset is not None}
        ends = _ends(held.task, load)
    role = held.role.value.replace("_", "-")
    return TaskMetadata(held.id, role, held.state.value, partitions, committed, ends)


def _ends(task: Any, load: WorkerLoad | None) -> dict[Partition, int]:
    measured = None if load is None or task is None else load.tasks.get(str(task.id))
    if measured is None:
        return {}
    return {
        Partition(topic, task.id.partition): max(0, queue.position) + known.lag
        for topic, queue in list(task.inputs.items())
        if (known := measured.inputs.get(topic)) is not None and known.lag is not None
    }


def lags_of(held: Iterable[HeldTask]) -> dict[str, dict[int, LagInfo]]:
    """Return the lag of each store that has a changelog, by store and partition."""
    found: dict[str, dict[int, LagInfo]] = {}
    for task in held:
        runs = task.role is Role.ACTIVE and task.state in (TaskState.RUNNING, TaskState.RELEASING)
        for changelog in list(task.changelogs):
            store, position, end = changelog.store, changelog.position, changelog.end
            if runs:  # its own commits move the end
                position = end = changelog.backend.offset(store.name, store.partition) or position
            lag = LagInfo(position, max(end, position), max(0, end - position))
            found.setdefault(store.name, {})[store.partition] = lag
    return found
