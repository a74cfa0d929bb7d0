"""Decides when to commit, collects the commit, and writes the state when it is complete."""

from __future__ import annotations

import time
from typing import Any

from millpond.runtime.commit.pipeline import Commit, CommitPhase, CommitPipeline
from millpond.runtime.commit.record_collector import RecordCollector
from millpond.runtime.commit.transaction_size import TransactionSize
from millpond.runtime.config.model import Config
from millpond.runtime.http.metrics import WorkerMetrics
from millpond.runtime.listeners import CommitStats, WorkerListener
from millpond.runtime.offsets.metadata import CommittedOffset, Partition
from millpond.runtime.processing.stream_task import CommitRows
from millpond.runtime.processing.tracing import RecordSpan
from millpond.runtime.restoring.changelog_reader import Restoration
from millpond.runtime.restoring.reusable_state import longest_unwritten_ms
from millpond.state.stores.row_cache import RowCache

from .assembly import Assembly
from .memory.gc import GarbageCollector

__all__ = ("CommitScheduler",)

#: Reading pauses when the output that waits for the next transaction is about this large, in bytes.
OUTBOX_BYTES = 64 * 1024**2
#: The size of a row beside its value, in bytes.
_ROW_BYTES = 400
#: Staged state is measured after this many records.
_MEASURE_EVERY = 2_000
#: Brokers delete offsets, and the owners in them, when nothing was committed for days (`offsets.retention.minutes`),
#: even while the worker runs, since it is no member of the consumer group. So idle tasks are committed at this
#: interval.
_REFRESH_S = 600.0
#: The maximum age of the time beside an unchanged store on disk, in milliseconds, however long deletions are kept.
_MAX_STAMP_AGE_MS = 60_000


class CommitScheduler:
    """The schedule of a worker's commits; it lives as long as the producer.

    Attributes:
        next_commit: the end of the commit interval, in monotonic seconds.
        flushes_first: whether to flush all tasks before a transaction begins, since flushes may take too long for it.
    """

    def __init__(  # noqa: PLR0913 - the parts of the worker that a commit touches
        self,
        assembly: Assembly,
        config: Config,
        collector: RecordCollector,
        pipeline: CommitPipeline,
        metrics: WorkerMetrics,
        garbage: GarbageCollector,
        listener: WorkerListener,
        transactions: TransactionSize,
    ) -> None:
        self._cluster, self._plan, self._executor = assembly.cluster, assembly.plan, assembly.executor
        self._consumer = assembly.consumer
        self._expired = assembly.expired
        self._cache_bytes = assembly.environment.cache_bytes
        self._row_cache = RowCache(assembly.environment.row_cache_bytes)
        self._now_ms = assembly.environment.now_ms
        self._config = config
        self._interval_s = config.commit_interval_ms / 1000
        self._collector = collector
        self._pipeline = pipeline
        self._metrics = metrics
        self._garbage = garbage
        self._listener = listener
        self._transactions = transactions
        self.next_commit: float = time.monotonic() + self._interval_s
        self.flushes_first = False
        self._purgeable: dict[tuple[str, int], int] = {}
        self._next_purge = time.monotonic() + config.repartition_purge_interval_ms / 1000
        self._next_refresh = time.monotonic() + _REFRESH_S
        self._since_measured = 0
        self._full = False

    @property
    def phase(self) -> CommitPhase:
        """The phase of the commit in flight."""
        return self._pipeline.phase

    def needed(self) -> bool:
        """Return whether any task has changes to commit, or is to be handed over."""
        executor = self._executor
        return any(task.commit_needed for task in executor.running) or bool(executor.to_release())

    def processed(self, records: int) -> None:
        """Count records that tasks have processed."""
        self._since_measured += records
        self._transactions.processed(records)

    def advance(self, now: float) -> None:
        """Advance the commit in flight, and begin the next one when it is due.

        Raises:
            CommitFailed, KafkaException, BrokerError: the commit failed, or its result is unknown.
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

    def pauses_reading(self) -> bool:
        """Return whether reading waits for the commit in flight, so that staged state and output stay bounded."""
        if self.phase is CommitPhase.IDLE:
            return False
        outbox = self._collector.outbox
        if outbox and len(outbox) * (_ROW_BYTES + len(outbox[-1][1] or b"")) > OUTBOX_BYTES:
            return True
        if self._since_measured >= _MEASURE_EVERY:
            self._since_measured = 0
            limit = self._config.statestore_uncommitted_max_bytes
            # Twice the limit: once for the commit in flight, once for the next.
            self._full = 0 <= 2 * limit < sum(store.staged_bytes() for store in self._executor.active_stores())
        return self._full

    def _over_limits(self) -> bool:
        """Return whether a commit is due because of the size of staged state or of the record caches.

        Record caches above their limit are flushed instead, unless that may take too long for a transaction.
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
        # Now, while the processor's caches still have what the stores have just forwarded.
        self._collector.drain()

    def begin(self) -> None:
        """Flush all tasks, pass their records to the producer, and start the commit."""
        offsets = {}
        expected: dict[Partition, CommittedOffset] = {}
        rows = []
        first_timestamps: list[int] = []
        input_times: list[tuple[int, str, int, int]] = []
        spans: list[RecordSpan] = []
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
            if task.first_timestamp >= 0:
                first_timestamps.append(task.first_timestamp)
                task.first_timestamp = -1
            input_times += task.take_input_times()
            spans += task.take_spans()
            task.commit_needed = False
            task.context.commit_requested = False  # what a flush asked for is in this commit
        for held in released:
            if held.task is None:
                offsets.update(executor.positions(held))
        for held in {executor.held[task.id] for task in concerned}.union(released):
            if not held.confirmed:
                expected.update((each, known) for each, known in held.committed.items() if each in offsets)
        if released:
            executor.releasing(released)
        self._collector.drain()
        self._collector.ensure_transaction()
        self._transactions.commit_begun()
        ids = [held.id for held in released]
        self._pipeline.begin(Commit(offsets, rows, ids, self._now_ms(), first_timestamps, input_times, spans, expected))

    def _completed(self, commit: Commit) -> None:
        """Handle a commit that the broker has completed: write the state, notify the listener, purge."""
        self._write(commit)
        took = time.monotonic() - commit.started
        self._metrics.committed(took, len(commit.offsets))
        self._transactions.committed(time.monotonic() - self._collector.begun_at)
        self._metrics.latencies(commit.first_timestamps, commit.input_times, self._now_ms())
        for span in commit.spans:
            span.end()
        self._expired.completed(commit.rows, commit.offsets)
        commit.rows.clear()
        self._executor.committed(commit.offsets)
        if commit.released:
            self._executor.released(commit.released)
        self._garbage.committed()
        self._listener.committed(CommitStats(took, len(commit.offsets), self._metrics.records_processed))
        if self._plan.repartition:
            self._purge(commit)

    def _purge(self, commit: Commit) -> None:
        """Delete processed records of repartition topics, once per `repartition.purge.interval.ms`."""
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
                written[key] = (self._offset(commit, source, backend, key, changed=changed), metadata)
                if source is not None:
                    provenances[key] = source.provenance(commit.started_ms)
            if groups:
                backend.write(groups, written, provenances)
        for store, _, _ in commit.rows:
            store.committed()
        self._row_cache.shrink(self._executor.active_stores(), [store for store, _, _ in commit.rows])

    def _offset(
        self, commit: Commit, source: Restoration | None, backend: Any, key: tuple[str, int], *, changed: bool
    ) -> int | None:
        """Return a store's changelog offset after the commit; None if it has no changelog."""
        if source is None:
            return None
        if source.bounded:
            # The changelog is the task's input.
            return commit.offsets[source.source][0]
        offset = self._collector.take_acknowledged(key) if changed else None
        known: int | None = backend.offset(*key) if offset is None else offset
        return known

    def _stamp_is_old(self, commit: Commit, source: Restoration, backend: Any, key: tuple[str, int]) -> bool:
        """Return whether to write a store without changes, to renew the time as of which its rows are complete."""
        known = backend.provenance(*key)
        if source.bounded and source.source in commit.offsets:
            return bool(backend.offset(*key) != commit.offsets[source.source][0])
        limit_ms = min(_MAX_STAMP_AGE_MS, longest_unwritten_ms(source.facts))
        return known is not None and commit.started_ms - known.as_of_ms > limit_ms

    def finish(self, deadline: float, wait_s: float) -> bool:
        """Wait for the commit in flight, and return whether it ended before the deadline.

        Args:
            deadline: in monotonic seconds.
            wait_s: the time between two checks, in seconds.
        """
        while self.phase is not CommitPhase.IDLE:
            if self._complete():
                continue
            if time.monotonic() >= deadline:
                return False
            # Without transactions, the answer to an offset commit comes through the consumer.
            self._consumer.poll(wait_s)
        return True
