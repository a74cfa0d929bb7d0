"""Makes the stores of tasks, and says from where in their changelogs they have to be restored."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from millpond.errors import StateCorrupted
from millpond.state import MemoryBackend, StateFile
from millpond.topology import TaskId

from .environment import Environment
from .holdings import Held
from .ownership import Partition
from .plan import Plan
from .restore import Restoration

__all__ = ("TaskStores",)

log = logging.getLogger(__name__)


class TaskStores:
    """The worker's state: one RocksDB and one memory, shared by the stores of all tasks.

    Attributes:
        backends: both.
    """

    def __init__(self, plan: Plan, environment: Environment, state_file: StateFile) -> None:
        self._plan = plan
        self._environment = environment
        self._state_file = state_file
        self._memory = MemoryBackend()
        self.backends: tuple[Any, ...] = (state_file, self._memory)
        self._builders = {
            each.id: [environment.complete(builder) for builder in each.stores] for each in plan.subtopologies
        }
        self._backends = {
            builder.name: self.of_builder(builder) for builders in self._builders.values() for builder in builders
        }

    def adopt(self, plan: Plan) -> None:
        """Take a plan with the same stores."""
        self._plan = plan

    def of_builder(self, builder: Any) -> Any:
        """Where a store's committed rows are."""
        return self._state_file if builder.persistent else self._memory

    def add_global(self, builder: Any) -> None:
        """Know where a global store's rows are."""
        self._backends[builder.name] = self.of_builder(builder)

    def backend(self, store: str) -> Any:
        """As `of_builder`, by a store's name.

        Raises:
            KeyError: the application has no such store.
        """
        return self._backends[store]

    def open(self, held: Held, ranges: Mapping[Partition, tuple[int, int]], *, following: bool) -> None:
        """Make the stores of a task, and what has to be restored of them.

        Args:
            held: the task; its `stores` and `changelogs` are filled.
            ranges: where its changelogs begin and end.
            following: whether they are a copy's.
        """
        changelogs = self._plan.changelogs[held.id.subtopology]
        for builder in self._builders[held.id.subtopology]:
            topic = changelogs.get(builder.name)
            store = builder.build(held.id.partition, self._backends[builder.name], topic)
            held.stores[builder.name] = store
            if topic is not None:
                source = Partition(topic, held.id.partition)
                bounded = topic in self._plan.tasks[held.id]
                held.changelogs.append(self._restoration(store, source, ranges[source], bounded, following))
        held.opened = True

    def _restoration(
        self, store: Any, source: Partition, found: tuple[int, int], bounded: bool, following: bool
    ) -> Restoration:
        backend = self._backends[store.name]
        first, end = found
        offset = backend.offset(store.name, store.partition)
        if offset is not None and offset > end and not bounded:
            log.warning(
                "the state of store %s partition %d is ahead of its changelog %s (%d > %d): the topic was made anew; "
                "restoring from its beginning", store.name, store.partition, source, offset, end,
            )  # fmt: skip
            backend.drop(store.name, store.partition)
            store.revert()
            offset = None
        start = first if offset is None else max(offset, first)
        return Restoration(store, backend, source, min(start, end), end, bounded=bounded, following=following)

    def close(self, held: Held, *, for_good: bool) -> None:
        """Close a task's stores; rows on disk stay, those in memory unless it is for good."""
        for name, store in held.stores.items():
            store.close()
            if for_good and self._backends[name] is self._memory:
                self._memory.drop(name, held.id.partition)
        held.stores = {}
        held.changelogs = []
        held.opened = False

    def on_disk(self, besides: Mapping[TaskId, Held]) -> dict[TaskId, int]:
        """Tasks that have rows on disk and are not held: the sum of the changelog offsets they reach."""
        found: dict[TaskId, int] = {}
        for task in self._plan.tasks:
            if task in besides:
                continue
            offsets = [
                self._state_file.offset(name, task.partition)
                for name in self._plan.changelogs[task.subtopology]
                if self._backends[name] is self._state_file
            ]
            known = [offset for offset in offsets if offset is not None]
            if known:
                found[task] = sum(known)
        return found

    def forget(self, task: TaskId) -> None:
        """Delete a task's rows from the disk."""
        log.info("deleting the state of task %s, which is not this worker's any more", task)
        for builder in self._builders[task.subtopology]:
            backend = self._backends[builder.name]
            if task.partition in backend.partitions(builder.name):
                backend.drop(builder.name, task.partition)

    def rebuild(self, error: StateCorrupted) -> None:
        """Forget the local rows of a corrupted store, which must be closed everywhere."""
        assert error.store is not None
        log.error("%s Rebuilding store %s from its changelog.", error, error.store)
        self._state_file.rebuild(error.store)
