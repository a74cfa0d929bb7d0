"""Makes the stores of tasks, and says from where in their changelogs they have to be restored."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from typing import Any

from millpond.errors import StateCorrupted, TopicError
from millpond.runtime.offsets.completeness import Completeness
from millpond.runtime.offsets.metadata import Partition
from millpond.runtime.ownership.lookups import TaskLookup
from millpond.runtime.processing.environment import Environment
from millpond.runtime.restoring.changelog_reader import Restoration
from millpond.runtime.restoring.reusable_state import (
    ChangelogFacts,
    LocalRows,
    LocalRowsVerdict,
    Verdict,
    digest_of,
    judge,
    lacks_beginning,
)
from millpond.runtime.restoring.snapshot_choice import WantedStore
from millpond.runtime.topics.plan import Plan
from millpond.snapshots.layouts import layout_of
from millpond.state import MemoryBackend, StateFile
from millpond.state.provenance import Provenance
from millpond.topology import TaskId

from .held_tasks import HeldTask

__all__ = ("TaskStores",)

log: logging.Logger = logging.getLogger(__name__)

Ranges = Callable[[Collection[Partition]], Mapping[Partition, tuple[int, int]]]


class TaskStores:
    """The worker's state: one RocksDB and one memory, shared by the stores of all tasks.

    Attributes:
        backends: both.
        position_of: where a task goes on reading an input, also one that was never committed.
    """

    def __init__(self, plan: Plan, environment: Environment, state_file: StateFile, ranges: Ranges) -> None:
        """Args:
        plan: what the application needs.
        environment: of the worker.
        state_file: what is on disk.
        ranges: asks where partitions begin and end.
        """
        self._plan = plan
        self._ranges = ranges
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
        self._sources: dict[tuple[str, int], Restoration] = {}
        self.position_of: Callable[[Partition, TaskLookup], int] = _committed

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

    def source(self, store: str, partition: int) -> Restoration | None:
        """What an open store is restored from; None when it has no changelog."""
        return self._sources.get((store, partition))

    def digest(self, where: TaskLookup, task: TaskId) -> str:
        """What stands for a task's changelogs in the metadata of its offsets; source topics are no changelogs here."""
        inputs = self._plan.tasks[task]
        return digest_of(facts.id for topic, facts in where.topics.items() if topic not in inputs)

    def doubtful(self, task: TaskId, where: TaskLookup) -> bool:
        """Whether local rows are of another topic than the changelog: what to do tell the committed offsets."""
        return any(
            (verdict := self._judged(builder.name, task, where)) is not None
            and verdict.trust is LocalRowsVerdict.OTHER_TOPIC
            for builder in self._builders[task.subtopology]
        )

    def open(self, held: HeldTask, where: TaskLookup, *, topology: str, following: bool) -> None:
        """Make the stores of a task, and what has to be restored of them.

        Args:
            held: the task; its `stores` and `changelogs` are filled.
            where: where it stands in Kafka.
            topology: hash of the worker's.
            following: whether they are a copy's.

        Raises:
            TopicError: a changelog was deleted and made again, or its beginning was deleted, and with it the state may be lost.
        """
        task = held.id
        changelogs = self._plan.changelogs[task.subtopology]
        self._drop_snapshots_of_other_topics(task, where)
        if not following:
            self._check_not_lost(task, where, topology)
        for builder in self._builders[task.subtopology]:
            topic = changelogs.get(builder.name)
            self._drop_untrusted(builder.name, task, where)
            self._check_whole(builder.name, task, where)
            store = builder.build(task.partition, self._backends[builder.name], topic)
            held.stores[builder.name] = store
            if topic is not None:
                restoration = self._restoration(store, Partition(topic, task.partition), where, following)
                held.changelogs.append(restoration)
                self._sources[store.name, store.partition] = restoration

    def wanted(self, task: TaskId, where: TaskLookup) -> list[WantedStore]:
        """What has to be restored of a task, as far as snapshots may have it; nothing where a changelog is in doubt."""
        found: list[WantedStore] = []
        for builder in self._builders[task.subtopology]:
            topic = self._plan.changelogs[task.subtopology].get(builder.name)
            if topic is None:
                continue
            verdict = self._judged(builder.name, task, where)
            if verdict is not None and verdict.trust is LocalRowsVerdict.OTHER_TOPIC:
                return []
            kept = verdict is not None and verdict.trust is LocalRowsVerdict.KEEP
            source = Partition(topic, task.partition)
            log = ChangelogFacts(where.ranges[source][0], self.end_of(source, where), where.topics[topic])
            offset = self._backends[builder.name].offset(builder.name, task.partition) if kept else None
            partitions = self._plan.partitions_of(topic)
            is_input = topic in self._plan.tasks[task]
            found.append(
                WantedStore(builder.name, layout_of(builder), topic, task.partition, partitions, log, offset, is_input)
            )
        return found

    def _restoration(self, store: Any, source: Partition, where: TaskLookup, following: bool) -> Restoration:
        backend = self._backends[store.name]
        offset = backend.offset(store.name, store.partition)
        end = self.end_of(source, where)
        start = min(where.ranges[source][0] if offset is None else offset, end)
        as_of_ms = where.asked.wall_ms if offset is None else self._provenance(store.name, store.partition).as_of_ms
        restoration = Restoration(
            store, backend, source, start, end, bounded=source in where.committed, following=following,
            facts=where.topics[source.topic], completeness=Completeness(as_of_ms), whole=offset is None,
        )  # fmt: skip
        restoration.completeness.record_end(where.asked, end, start)
        return restoration

    def _judged(self, store: str, task: TaskId, where: TaskLookup) -> Verdict | None:
        """What to do with the local rows of a store; None where there are none."""
        topic = self._plan.changelogs[task.subtopology].get(store)
        if topic is None:
            return None
        source = Partition(topic, task.partition)
        offset = self._backends[store].offset(store, task.partition)
        if offset is None:
            return None
        first, end = where.ranges[source]
        rows = LocalRows(offset, self._provenance(store, task.partition))
        verdict = judge(rows, ChangelogFacts(first, end, where.topics[topic]), self._environment.now_ms())
        if verdict.trust is LocalRowsVerdict.KEEP and offset > self.end_of(source, where):
            return Verdict(
                LocalRowsVerdict.REBUILD,
                f"stand at offset {offset}, and the task has processed {self.end_of(source, where)}",
            )
        return verdict

    def _provenance(self, store: str, partition: int) -> Provenance:
        """Where local rows come from. Without a time of their own, they are as old as the whole state file."""
        found: Provenance | None = self._backends[store].provenance(store, partition)
        return found or Provenance("", self._state_file.last_used_ms or 0)

    def _drop_snapshots_of_other_topics(self, task: TaskId, where: TaskLookup) -> None:
        """Drop rows of a snapshot whose changelog was made again since: such a worker is like one with an empty disk."""
        for builder in self._builders[task.subtopology]:
            verdict = self._judged(builder.name, task, where)
            if verdict is None or verdict.trust is not LocalRowsVerdict.OTHER_TOPIC:
                continue
            if self._provenance(builder.name, task.partition).of_snapshot:
                log.warning(
                    "store %s partition %d: the rows of the snapshot %s; they are dropped",
                    builder.name, task.partition, verdict.reason,
                )  # fmt: skip
                self._backends[builder.name].drop(builder.name, task.partition)

    def _drop_untrusted(self, store: str, task: TaskId, where: TaskLookup) -> None:
        """Drop local rows that have to be restored from the beginning.

        Raises:
            TopicError: they are of another topic, and nobody asked to begin anew.
        """
        topic = self._plan.changelogs[task.subtopology].get(store)
        backend = self._backends[store]
        verdict = self._judged(store, task, where)
        if topic is None or verdict is None or verdict.trust is LocalRowsVerdict.KEEP:
            if topic in self._plan.tasks[task] and verdict is None and task.partition in backend.partitions(store):
                backend.drop(store, task.partition)  # older versions wrote no offset, and so no deletions since
            return
        if verdict.trust is LocalRowsVerdict.OTHER_TOPIC and topic not in self._plan.tasks[task]:
            self._check_begun_anew(store, topic, task, where, verdict)
        log.warning(
            "store %s partition %d: the local rows %s; restoring from the beginning of %s",
            store, task.partition, verdict.reason, topic,
        )  # fmt: skip
        backend.drop(store, task.partition)

    def _check_whole(self, store: str, task: TaskId, where: TaskLookup) -> None:
        """Make sure that a changelog has every key, when a store is restored from nothing else. Inputs are as they are.

        Raises:
            TopicError: somebody deleted records from its beginning.
        """
        topic = self._plan.changelogs[task.subtopology].get(store)
        if topic is None or topic in self._plan.tasks[task]:
            return
        found = ChangelogFacts(*where.ranges[Partition(topic, task.partition)], where.topics[topic])
        if lacks_beginning(found) and self._backends[store].offset(store, task.partition) is None:
            raise TopicError(
                f"task {task}: changelog '{topic}' begins at offset {found.first}: records were deleted from it, and neither "
                f"it nor local rows or a snapshot have all of store '{store}'. Restore the topic's content, start a worker "
                f"that still has the rows, or run 'millpond reset' to process the inputs from the beginning."
            )

    def _check_begun_anew(self, store: str, topic: str, task: TaskId, where: TaskLookup, verdict: Verdict) -> None:
        """Make sure that the application began anew, by a reset, with this changelog.

        Raises:
            TopicError: it did not, so the changelog was replaced behind its back.
        """
        digests = {each.metadata.changelogs for each in where.committed.values()} - {""}
        if digests and digests == {self.digest(where, task)}:
            return
        # Whoever writes a topic's id into the state file commits the digest, too: without one, offsets are of a reset.
        known = self._backends[store].provenance(store, task.partition)
        if not digests and known is not None and known.topic_id:
            return
        raise TopicError(
            f"task {task}: changelog '{topic}' was deleted and made again: the local rows of store '{store}' "
            f"{verdict.reason}. They may be the only copy of the state, so nothing is dropped. If the topic has its "
            f"content again, delete the state directory '{self._state_file.path}' and restart the worker; if not, run "
            f"'millpond reset' to process the inputs from the beginning."
        )

    def _check_not_lost(self, task: TaskId, where: TaskLookup, topology: str) -> None:
        """Make sure that what is committed of a task was committed with these changelogs, where there are no local rows.

        Raises:
            TopicError: a changelog was made again, and is empty.
        """
        written = {
            each.metadata.changelogs
            for each in where.committed.values()
            # Another topology may have had other changelogs: one that is new to this one is empty by rights.
            if each.metadata.topology == topology and not each.metadata.former_changelogs
        } - {""}
        digest = self.digest(where, task)
        if not written or not digest or digest in written:
            return
        for store, topic in self._plan.changelogs[task.subtopology].items():
            if topic in self._plan.tasks[task] or self._backends[store].offset(store, task.partition) is not None:
                continue
            if where.ranges[Partition(topic, task.partition)][1] == 0 and self._is_empty(topic, task):
                raise TopicError(
                    f"task {task}: changelog '{topic}' was deleted and made again, and it is empty: the state of store "
                    f"'{store}' is lost, while the committed offsets go on. Restore the topic's content, or run "
                    f"'millpond reset' to process the inputs from the beginning."
                )
        log.warning("task %s: a changelog was made again since the last commit; its content is taken as it is", task)

    def _is_empty(self, topic: str, of: TaskId) -> bool:
        """Whether nothing is in any partition: a single one may always have been empty."""
        partitions = [
            Partition(topic, each.partition) for each in self._plan.tasks if each.subtopology == of.subtopology
        ]
        return all(end == 0 for _, end in self._ranges(partitions).values())

    def close(self, held: HeldTask, *, for_good: bool) -> None:
        """Close a task's stores; rows on disk stay, those in memory unless it is for good."""
        for name, store in held.stores.items():
            store.close()
            self._sources.pop((name, held.id.partition), None)
        for builder in self._builders[held.id.subtopology] if for_good else ():
            if self._backends[builder.name] is self._memory:  # also of a task that was never opened: from a snapshot
                self._memory.drop(builder.name, held.id.partition)
        held.stores = {}
        held.changelogs = []

    def on_disk(self, besides: Mapping[TaskId, HeldTask]) -> dict[TaskId, int]:
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

    def end_of(self, source: Partition, where: TaskLookup) -> int:
        """Where a changelog ends for a task: one that is an input too, at what is processed of it."""
        end = where.ranges[source][1]
        return min(end, self.position_of(source, where)) if source in where.committed else end

    def rebuild(self, error: StateCorrupted) -> None:
        """Forget the local rows of a corrupted store, which must be closed everywhere."""
        assert error.store is not None
        log.error("%s Rebuilding store %s from its changelog.", error, error.store)
        self._state_file.rebuild(error.store)


def _committed(partition: Partition, where: TaskLookup) -> int:
    return where.committed[partition].offset or where.ranges[partition][0]
