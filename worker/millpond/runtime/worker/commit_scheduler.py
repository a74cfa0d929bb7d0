"""When to commit, what belongs to a commit, and what follows when it is through."""

from __future__ import annotations

import time
from typing import Any

from millpond.runtime.commit.pipeline import Commit, CommitPhase, CommitPipeline
from millpond.runtime.commit.record_collector import RecordCollector
from millpond.runtime.config.model import Config
from millpond.runtime.http.metrics import WorkerMetrics
from millpond.runtime.listeners import CommitStats, WorkerListener
from millpond.runtime.processing.stream_task import CommitRows
from millpond.runtime.restoring.changelog_reader import Restoration
from millpond.runtime.restoring.reusable_state import longest_unwritten_ms

from .assembly import Assembly
from .gc import GarbageCollector

__all__ = ("CommitScheduler",)

#: Reading pauses when about this many bytes wait for the next transaction; a row takes this many beside its value.
OUTBOX_BYTES = 64 * 1024**2
_ROW_BYTES = 400
#: Staged state is measured after this many records.
_MEASURE_EVERY = 2_000
#: Brokers forget offsets, and whose they are, when nothing was committed for days (`offsets.retention.minutes`), however
#: alive the worker is: it is no member of the group. So idle tasks are committed as well, this often.
_REFRESH_S = 600.0
#: How old the time beside an unchanged store on disk may become, in milliseconds, however long deletions are kept.
_STAMP_MS = 60_000


class CommitScheduler:
    """Commits the tasks of a worker; lasts as long as its producer does.

    Attributes:
        next_commit: when the commit interval ends, in monotonic seconds.
        flushes_first: all tasks are flushed before anything is sent, since that may take too long for a transaction.
    """

    def __init__(
        self,
        assembly: Assembly,
        config: Config,
        collector: RecordCollector,
        pipeline: CommitPipeline,
        metrics: WorkerMetrics,
        garbage: GarbageCollector,
        listener: WorkerListener,
    ) -> None:
        self._cluster, self._plan, self._executor = assembly.cluster, assembly.plan, assembly.executor
        self._consumer = assembly.consumer
        self._cache_bytes = assembly.environment.cache_bytes
        self._now_ms = assembly.environment.now_ms
        self._config = config
        self._interval_s = config.commit_interval_ms / 1000
        self._collector = collector
        self._pipeline = pipeline
        self._metrics = metrics
        self._garbage = garbage
        self._listener = listener
        self.next_commit: float = time.monotonic() + self._interval_s
        self.flushes_first = False
        self._purgeable: dict[tuple[str, int], int] = {}
        self._next_purge = time.monotonic() + config.repartition_purge_interval_ms / 1000
        self._next_refresh = time.monotonic() + _REFRESH_S
        self._since_measured = 0
        self._full = False

    @property
    def phase(self) -> CommitPhase:
        """Where the commit in flight is."""
        return self._pipeline.phase

    def needed(self) -> bool:
        """Whether anything happened since the last commit, or a task is to be handed over."""
        executor = self._executor
        return any(task.commit_needed for task in executor.running) or bool(executor.to_release())

    def processed(self, records: int) -> None:
        """So many records were processed."""
        self._since_measured += records

    def advance(self, now: float) -> None:
        """Move the commit in flight along; begin one when it is time.

        Raises:
            CommitFailed, KafkaException, BrokerError: the commit failed, or nobody knows.
        """
        if self.phase is not CommitPhase.IDLE:
            if not self._complete():
                return
            self._collector.drain()
        if now >= self._next_refresh:
            self._next_refresh = now + _REFRESH_S
            for task in self._executor.running:
                task.commit_needed = True
        over = self._over_limits()
        requested = any(task.context.commit_requested for task in self._executor.running)
        if (now >= self.next_commit or over or requested or self._executor.to_release()) and self.needed():
            self.begin()
            self.next_commit = now + self._interval_s
            self._complete()
        elif now >= self.next_commit:
            self.next_commit = now + self._interval_s

    def _complete(self) -> bool:
        done = self._pipeline.advance()
        if done is None:
            return False
        self._completed(done)
        return True

    def holds_reading(self) -> bool:
        """Whether reading waits for the commit in flight, lest what is staged or on its way out outgrow its bounds."""
        if self.phase is CommitPhase.IDLE:
            return False
        outbox = self._collector.outbox
        if outbox and len(outbox) * (_ROW_BYTES + len(outbox[-1][1] or b"")) > OUTBOX_BYTES:
            return True
        if self._since_measured >= _MEASURE_EVERY:
            self._since_measured = 0
            limit = self._config.statestore_uncommitted_max_bytes
            # Twice: once for the commit in flight, once for the next.
            self._full = 0 <= 2 * limit < sum(store.staged_bytes() for store in self._executor.active_stores())
        return self._full

    def _over_limits(self) -> bool:
        """Whether staged state asks for a commit now. Flushes the record caches when they are over their limit, unless that
        may take too long for a transaction.
        """
        if self._since_measured < _MEASURE_EVERY and not self._full:
            return False
        self._since_measured = 0
        self._full = False
        stores = self._executor.active_stores()
        limit = self._config.statestore_uncommitted_max_bytes
        if 0 <= limit < sum(store.staged_bytes() for store in stores):
            return True
        if sum(store.dirty_bytes() for store in stores if store.caching) > self._cache_bytes:
            if self.flushes_first:
                return True  # a commit flushes all tasks before it opens a transaction
            for task in self._executor.running:
                self._send_changes(task.flush())
        return False

    def _send_changes(self, changes: list[CommitRows]) -> None:
        for store, rows in changes:
            self._collector.send_tracked((store.name, store.partition), rows)
        # While the processor's caches still have what the stores have just forwarded.
        self._collector.drain()

    def begin(self) -> None:
        """Flush all tasks, hand their records to the producer, and start the commit."""
        offsets = {}
        rows = []
        executor = self._executor
        released = executor.to_release()
        handed_over = {held.id for held in released}
        concerned = [task for task in executor.running if task.commit_needed or task.id in handed_over]
        flushed = {task.id: task.flush() for task in concerned} if self.flushes_first else {}
        for task in executor.running:
            task.context.commit_requested = False
        for task in concerned:
            self._send_changes(flushed[task.id] if self.flushes_first else task.flush())
            rows += [(store, store.seal(), store.metadata()) for store in task.stores.values()]
            offsets.update(executor.positions(executor.held[task.id]))
            task.commit_needed = False
            task.context.commit_requested = False  # what a flush asked for is in this commit
        for held in released:
            if held.task is None:
                offsets.update(executor.positions(held))
        if released:
            executor.releasing(released)
        self._collector.drain()
        self._collector.ensure_transaction()
        self._pipeline.begin(Commit(offsets, rows, [held.id for held in released], self._now_ms()))

    def _completed(self, commit: Commit) -> None:
        """The broker has it: write the state, tell who wants to know, purge."""
        self._write(commit)
        took = time.monotonic() - commit.started
        self._metrics.committed(took, len(commit.offsets))
        commit.rows.clear()
        self._executor.committed(commit.offsets)
        if commit.released:
            self._executor.released(commit.released)
        self._garbage.committed()
        self._listener.committed(CommitStats(took, len(commit.offsets), self._metrics.records_processed))
        if self._plan.repartition:
            self._purge(commit)

    def _purge(self, commit: Commit) -> None:
        """Delete, now and then, what was processed of repartition topics: since the last time, whichever commit it was in."""
        self._purgeable.update(
            ((partition.topic, partition.partition), offset)
            for partition, (offset, _) in commit.offsets.items()
            if partition.topic in self._plan.repartition
        )
        now = time.monotonic()
        if now >= self._next_purge and self._purgeable:
            self._next_purge = now + self._config.repartition_purge_interval_ms / 1000
            if self._cluster.purge(self._purgeable):
                self._purgeable.clear()

    def _write(self, commit: Commit) -> None:
        stores = self._executor.stores
        for backend in stores.backends:
            groups = []
            written = {}
            provenances = {}
            for store, rows, metadata in commit.rows:
                if stores.backend(store.name) is not backend:
                    continue
                key = (store.name, store.partition)
                source = stores.source(*key)
                changed = bool(rows or rows.ranges)
                if not changed and (source is None or not self._stamp_is_old(commit, source, backend, key)):
                    continue
                groups.append((*key, rows))
                written[key] = (self._offset(commit, source, backend, key), metadata)
                if source is not None:
                    provenances[key] = source.provenance(commit.started_ms)
            if groups:
                backend.write(groups, written, provenances)
        for store, _, _ in commit.rows:
            store.committed()

    def _offset(self, commit: Commit, source: Restoration | None, backend: Any, key: tuple[str, int]) -> int | None:
        """Where a store stands in its changelog after the commit; None when it has none."""
        if source is None:
            return None
        if source.bounded:
            # Its changelog is the task's input.
            return commit.offsets[source.source][0]
        offset = self._collector.acknowledged.get(key)
        known: int | None = backend.offset(*key) if offset is None else offset
        return known

    def _stamp_is_old(self, commit: Commit, source: Restoration, backend: Any, key: tuple[str, int]) -> bool:
        """Whether to write down that nothing has changed: rows count as old as the time beside them."""
        known = backend.provenance(*key)
        if source.bounded and source.source in commit.offsets:
            return bool(backend.offset(*key) != commit.offsets[source.source][0])
        most_ms = min(_STAMP_MS, longest_unwritten_ms(source.facts))
        return known is not None and commit.started_ms - known.as_of_ms > most_ms

    def finish(self, deadline: float, wait_s: float) -> bool:
        """Wait for the commit in flight until the deadline (monotonic seconds); whether none is left."""
        while self.phase is not CommitPhase.IDLE:
            if self._complete():
                continue
            if time.monotonic() >= deadline:
                return False
            # The answer to offsets that are committed by themselves comes through the consumer.
            self._consumer.poll(wait_s)
        return True
