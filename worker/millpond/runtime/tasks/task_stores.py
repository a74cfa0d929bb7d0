"""The stores of a worker's tasks: which local rows are kept, and from which offset each store is restored."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from typing import Any

from millpond.errors import StateCorrupted, TopicError
from millpond.runtime.all_steps import take_all
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
    judge,
    lacks_beginning,
)
from millpond.runtime.restoring.snapshot_choice import WantedStore
from millpond.runtime.topics.identity import digest_of
from millpond.runtime.topics.plan import Plan
from millpond.runtime.topics.window_changelogs import missing_windows, warn_of_missing_windows
from millpond.snapshots.layouts import covered, layout_of
from millpond.state import MemoryBackend, StateFile
from millpond.state.provenance import Provenance
from millpond.topology import TaskId

from .held_tasks import HeldTask

__all__ = ("TaskStores",)

log: logging.Logger = logging.getLogger(__name__)

Ranges = Callable[[Collection[Partition]], Mapping[Partition, tuple[int, int]]]


class TaskStores:
    """The worker's state: one RocksDB and one memory backend, shared by the stores of all tasks.

    Args:
        plan: the tasks, stores and changelogs of the application.
        environment: the environment of the worker.
        state_file: the RocksDB database.
        ranges: requests the first offsets and the ends of partitions.

    Attributes:
        backends: both backends.
        position_of: returns the offset at which a task continues an input, also without a committed offset.
        time_limits: the limit by which brokers may have deleted windows from a changelog, in ms, by topic.
    """

    def __init__(self, plan: Plan, environment: Environment, state_file: StateFile, ranges: Ranges) -> None:
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
        self.time_limits: Mapping[str, int] = {}

    def adopt(self, plan: Plan) -> None:
        """Use a plan with the same stores."""
        self._plan = plan

    def of_builder(self, builder: Any) -> Any:
        """Return the backend for the stores of a builder."""
        return self._state_file if builder.persistent else self._memory

    def add_global(self, builder: Any) -> None:
        """Register the backend of a global store."""
        self._backends[builder.name] = self.of_builder(builder)

    def backend(self, store: str) -> Any:
        """Return the backend of a store.

        Raises:
            KeyError: the application has no such store.
        """
        return self._backends[store]

    def source(self, store: str, partition: int) -> Restoration | None:
        """Return the restoration of an open store; None if it has no changelog."""
        return self._sources.get((store, partition))

    def digest(self, lookup: TaskLookup, task: TaskId) -> str:
        """Return the digest of a task's changelogs for the offset metadata. Inputs that are changelogs do not count."""
        inputs = self._plan.tasks[task]
        return digest_of(facts.id for topic, facts in lookup.topics.items() if topic not in inputs)

    def changelog_replaced(self, task: TaskId, lookup: TaskLookup) -> bool:
        """Return whether a changelog was created again, or has lost records, since the local rows were written."""
        return any(
            (verdict := self._judged(builder.name, task, lookup)) is not None
            and verdict.trust in (LocalRowsVerdict.OTHER_TOPIC, LocalRowsVerdict.LOST_RECORDS)
            for builder in self._builders[task.subtopology]
        )

    def open(self, held: HeldTask, lookup: TaskLookup, *, topology: str, following: bool) -> None:
        """Create the stores of a task and their restorations.

        Args:
            held: the task; its `stores` and `changelogs` are filled.
            lookup: the last lookup of the task.
            topology: the hash of the worker's topology.
            following: whether the stores belong to a copy.

        Raises:
            TopicError: a changelog was deleted and created again, or its beginning was deleted, so that state may be
            lost.
        """
        task = held.id
        changelogs = self._plan.changelogs[task.subtopology]
        self._drop_snapshots_of_other_topics(task, lookup)
        if not following:
            self._check_not_lost(task, lookup, topology)
        for builder in self._builders[task.subtopology]:
            topic = changelogs.get(builder.name)
            self._drop_untrusted(builder.name, task, lookup)
            self._check_beginning(builder.name, task, lookup)
            store = builder.build(task.partition, self._backends[builder.name], topic)
            held.stores[builder.name] = store
            if topic is not None:
                restoration = self._restoration(store, Partition(topic, task.partition), lookup, following=following)
                held.changelogs.append(restoration)
                self._sources[store.name, store.partition] = restoration
        if not following:
            self.check_windows(held, lookup)

    def check_windows(self, held: HeldTask, lookup: TaskLookup) -> None:
        """Warn of stores that are restored from changelogs from which brokers have deleted windows."""
        stream_time = max((each.metadata.partition_time for each in lookup.committed.values()), default=-1)
        for restoration in held.changelogs:
            store, topic = restoration.store, restoration.source.topic
            if (limit_ms := self.time_limits.get(topic)) is None:
                continue
            first = restoration.start  # a copy may have begun before records were deleted
            span = missing_windows(
                stream_time=stream_time,
                retention_ms=store.retention_ms,
                limit_ms=limit_ms,
                first=first,
                whole=restoration.whole,
                now_ms=self._environment.now_ms(),
            )
            if span is not None:
                store.incomplete_until = span[1]
                warn_of_missing_windows(store, (topic, first), limit_ms, span)

    def wanted(self, task: TaskId, lookup: TaskLookup) -> list[WantedStore]:
        """Return the stores of a task that snapshots may restore; an empty list if a changelog was created again."""
        stores: list[WantedStore] = []
        for builder in self._builders[task.subtopology]:
            topic = self._plan.changelogs[task.subtopology].get(builder.name)
            if topic is None or not covered(builder):
                continue
            verdict = self._judged(builder.name, task, lookup)
            if verdict is not None and verdict.trust not in (LocalRowsVerdict.KEEP, LocalRowsVerdict.REBUILD):
                return []
            kept = verdict is not None and verdict.trust is LocalRowsVerdict.KEEP
            source = Partition(topic, task.partition)
            log = ChangelogFacts(lookup.ranges[source][0], self.end_of(source, lookup), lookup.topics[topic])
            offset = self._backends[builder.name].offset(builder.name, task.partition) if kept else None
            partitions = self._plan.partitions_of(topic)
            is_input = topic in self._plan.tasks[task]
            stores.append(
                WantedStore(builder.name, layout_of(builder), topic, task.partition, partitions, log, offset, is_input)
            )
        return stores

    def _restoration(self, store: Any, source: Partition, lookup: TaskLookup, *, following: bool) -> Restoration:
        backend = self._backends[store.name]
        offset = backend.offset(store.name, store.partition)
        end = self.end_of(source, lookup)
        start = min(lookup.ranges[source][0] if offset is None else offset, end)
        as_of_ms = lookup.asked.wall_ms if offset is None else self._provenance(store.name, store.partition).as_of_ms
        restoration = Restoration(
            store, backend, source, start, end, bounded=source in lookup.committed, following=following,
            facts=lookup.topics[source.topic], completeness=Completeness(as_of_ms), whole=offset is None,
        )  # fmt: skip
        restoration.completeness.record_end(lookup.asked, end, start)
        return restoration

    def _judged(self, store: str, task: TaskId, lookup: TaskLookup) -> Verdict | None:
        """Return the decision about the local rows of a store; None without local rows."""
        topic = self._plan.changelogs[task.subtopology].get(store)
        if topic is None:
            return None
        source = Partition(topic, task.partition)
        offset = self._backends[store].offset(store, task.partition)
        if offset is None:
            return None
        first, end = lookup.ranges[source]
        rows = LocalRows(offset, self._provenance(store, task.partition))
        verdict = judge(rows, ChangelogFacts(first, end, lookup.topics[topic]), self._environment.now_ms())
        if verdict.trust is LocalRowsVerdict.KEEP and offset > self.end_of(source, lookup):
            return Verdict(
                LocalRowsVerdict.REBUILD,
                f"stand at offset {offset}, and the task has processed {self.end_of(source, lookup)}",
            )
        return verdict

    def _provenance(self, store: str, partition: int) -> Provenance:
        """Return the provenance of local rows. Without a stored time, rows count as old as the state file."""
        known: Provenance | None = self._backends[store].provenance(store, partition)
        return known or Provenance("", self._state_file.last_used_ms or 0)

    def _drop_snapshots_of_other_topics(self, task: TaskId, lookup: TaskLookup) -> None:
        """Drop rows of a snapshot if the changelog was created again since, as if the disk were empty."""
        for builder in self._builders[task.subtopology]:
            verdict = self._judged(builder.name, task, lookup)
            if verdict is None or verdict.trust is not LocalRowsVerdict.OTHER_TOPIC:
                continue
            if self._provenance(builder.name, task.partition).of_snapshot:
                log.warning(
                    "store %s partition %d: the rows of the snapshot %s; they are dropped",
                    builder.name, task.partition, verdict.reason,
                )  # fmt: skip
                self._backends[builder.name].drop(builder.name, task.partition)

    def _drop_untrusted(self, store: str, task: TaskId, lookup: TaskLookup) -> None:
        """Drop local rows that have to be restored from the beginning.

        Raises:
            TopicError: the changelog was deleted and created again without a reset of the application, or has lost
                records.
        """
        topic = self._plan.changelogs[task.subtopology].get(store)
        backend = self._backends[store]
        verdict = self._judged(store, task, lookup)
        if topic is None or verdict is None or verdict.trust is LocalRowsVerdict.KEEP:
            if topic in self._plan.tasks[task] and verdict is None and task.partition in backend.partitions(store):
                backend.drop(store, task.partition)  # rows of older versions have no offset, and lack later deletions
            return
        if topic not in self._plan.tasks[task]:
            if verdict.trust is LocalRowsVerdict.OTHER_TOPIC:
                self._check_reset(store, topic, task, lookup, verdict)
            elif verdict.trust is LocalRowsVerdict.LOST_RECORDS:
                raise TopicError(self._lost_records(store, Partition(topic, task.partition), lookup))
        log.warning(
            "store %s partition %d: the local rows %s; restoring from the beginning of %s",
            store, task.partition, verdict.reason, topic,
        )  # fmt: skip
        backend.drop(store, task.partition)

    def _lost_records(self, store: str, changelog: Partition, lookup: TaskLookup) -> str:
        offset, end = self._backends[store].offset(store, changelog.partition), lookup.ranges[changelog][1]
        return (
            f"changelog {changelog} ends at {end}, but the local rows of store '{store}' are at offset {offset}, and "
            f"it is still the same topic: brokers have lost records {end} to {offset - 1}, as in an unclean leader "
            f"election. The rows may be the only copy of the state, so nothing is dropped. Restore the topic's "
            f"content, or run 'millpond reset' to process the inputs from the beginning; or, to continue with state "
            f"that lacks these records, delete the state directory '{self._state_file.path}' and restart the worker."
        )

    def _check_beginning(self, store: str, task: TaskId, lookup: TaskLookup) -> None:
        """Check that a changelog has its beginning if the store is restored from the changelog alone.

        Inputs that are changelogs are not checked: their retention is not this application's.

        Raises:
            TopicError: records were deleted from the beginning of the changelog.
        """
        topic = self._plan.changelogs[task.subtopology].get(store)
        if topic is None or topic in self._plan.tasks[task]:
            return
        changelog = ChangelogFacts(*lookup.ranges[Partition(topic, task.partition)], lookup.topics[topic])
        if lacks_beginning(changelog) and self._backends[store].offset(store, task.partition) is None:
            raise TopicError(
                f"task {task}: changelog '{topic}' begins at offset {changelog.first}: records were deleted from it, "
                f"and neither it nor local rows or a snapshot have all of store '{store}'. Restore the topic's "
                f"content, start a worker that still has the rows, or run 'millpond reset' to process the inputs from "
                f"the beginning."
            )

    def _check_reset(self, store: str, topic: str, task: TaskId, lookup: TaskLookup, verdict: Verdict) -> None:
        """Check that a changelog was created again by a reset of the application.

        Raises:
            TopicError: the changelog was created again for another reason.
        """
        digests = {each.metadata.changelogs for each in lookup.committed.values()} - {""}
        if digests and digests == {self.digest(lookup, task)}:
            return
        # A version that writes a topic's id into the state file also commits the digest; only a reset leaves none.
        known = self._backends[store].provenance(store, task.partition)
        if not digests and known is not None and known.topic_id:
            return
        raise TopicError(
            f"task {task}: changelog '{topic}' was deleted and created again: the local rows of store '{store}' "
            f"{verdict.reason}. They may be the only copy of the state, so nothing is dropped. If the topic has its "
            f"content again, delete the state directory '{self._state_file.path}' and restart the worker; if not, run "
            f"'millpond reset' to process the inputs from the beginning."
        )

    def _check_not_lost(self, task: TaskId, lookup: TaskLookup, topology: str) -> None:
        """Check that the committed offsets of a task belong to these changelogs, for stores without local rows.

        Raises:
            TopicError: a changelog was created again, and it is empty.
        """
        written = {
            each.metadata.changelogs
            for each in lookup.committed.values()
            # Another topology may have had other changelogs; one that is new in this topology may be empty.
            if each.metadata.topology == topology and not each.metadata.former_changelogs
        } - {""}
        digest = self.digest(lookup, task)
        if not written or not digest or digest in written:
            return
        for store, topic in self._plan.changelogs[task.subtopology].items():
            if topic in self._plan.tasks[task] or self._backends[store].offset(store, task.partition) is not None:
                continue
            if lookup.ranges[Partition(topic, task.partition)][1] == 0 and self._is_empty(topic, task):
                raise TopicError(
                    f"task {task}: changelog '{topic}' was deleted and created again, and it is empty: the state of "
                    f"store '{store}' is lost, but the committed offsets remain. Restore the topic's content, or run "
                    f"'millpond reset' to process the inputs from the beginning."
                )
        log.warning("task %s: a changelog was created again since the last commit; using its present content", task)

    def _is_empty(self, topic: str, task: TaskId) -> bool:
        """Return whether all partitions are empty, since a single partition may always have been empty."""
        partitions = [
            Partition(topic, each.partition) for each in self._plan.tasks if each.subtopology == task.subtopology
        ]
        return all(end == 0 for _, end in self._ranges(partitions).values())

    def close(self, held: HeldTask, *, for_good: bool) -> None:
        """Close a task's stores. Rows on disk stay; rows in memory are dropped if `for_good`."""
        stores, held.stores, held.changelogs = held.stores, {}, []
        for name in stores:
            self._sources.pop((name, held.id.partition), None)
        self._state_file.end_iterators(stores)
        take_all(each.close for each in stores.values())
        for builder in self._builders[held.id.subtopology] if for_good else ():
            if self._backends[builder.name] is self._memory:  # a task that was never opened may have a snapshot's rows
                self._memory.drop(builder.name, held.id.partition)

    def on_disk(self, held: Mapping[TaskId, HeldTask]) -> dict[TaskId, int]:
        """Return the tasks that have rows on disk and are not held, each with the sum of its changelog offsets."""
        found: dict[TaskId, int] = {}
        for task in self._plan.tasks:
            if task in held:
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
        log.info("task %s: deleting its state from the disk, since this worker no longer holds it", task)
        for builder in self._builders[task.subtopology]:
            backend = self._backends[builder.name]
            if task.partition in backend.partitions(builder.name):
                backend.drop(builder.name, task.partition)

    def end_of(self, source: Partition, lookup: TaskLookup) -> int:
        """Return the end of a changelog for a task: for one that is also an input, the task's position in it."""
        end = lookup.ranges[source][1]
        return min(end, self.position_of(source, lookup)) if source in lookup.committed else end

    def rebuild(self, error: StateCorrupted) -> None:
        """Delete the local rows of a corrupted store, all of whose instances must be closed."""
        assert error.store is not None
        log.error("store %s: rebuilding it from its changelog: %s", error.store, error)
        self._state_file.rebuild(error.store)


def _committed(partition: Partition, lookup: TaskLookup) -> int:
    return lookup.committed[partition].offset or lookup.ranges[partition][0]
