"""The worker: one process, one loop, one consumer, one producer, one state file.

Each turn of the loop polls a batch, hands it to tasks, lets them process, and moves the commit in flight along.
When a commit fails, or nobody knows whether it did, the worker does the same as at its start: it reads what is
committed, brings its stores there, and goes on. There is no other way back, so that one is well tried.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from itertools import groupby

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from millpond.errors import BrokerError, MillpondError, OwnershipError, StateCorrupted
from millpond.state import StateFile, StateFileOptions
from millpond.topology import Topology

from .backpressure import BackPressure
from .careful import CAREFUL_RECORDS, CarefulCollector, Refusals, refuses
from .claims import OffsetStore, initialised
from .clients import log as client_log
from .clients import make_consumer, make_producer
from .cluster import Cluster
from .collector import RecordCollector
from .commit import (
    Commit,
    CommitFailed,
    CommitPipeline,
    OffsetCommitter,
    OffsetSink,
    Phase,
    TransactionCommitter,
    is_fenced,
)
from .config import Config
from .environment import Environment
from .garbage import GarbageCollector
from .handlers import Handlers
from .listeners import CommitStats, WorkerListener
from .metrics import WorkerMetrics
from .ownership import Partition
from .plan import Plan, make_plan
from .restore import ChangelogReader, Restoration
from .states import WorkerState, may_follow
from .task import StreamTask
from .task_manager import TaskManager

__all__ = ("Worker",)

log = logging.getLogger(__name__)

#: The most records per poll and per task in a turn of the loop, which then takes milliseconds.
POLL_RECORDS = 2_000
#: A turn takes fewer records when these take longer: commits, time and `stop()` are looked at between turns.
_LONGEST_TURN_S = 0.25
_FIRST_TURN_RECORDS = 100
#: While a commit is in flight, its end is looked for at least this often.
_IN_FLIGHT_WAIT_S = 0.001
#: Reading pauses when about this many bytes wait for the next transaction; a row takes this many beside its value.
_OUTBOX_BYTES = 64 * 1024**2
_ROW_BYTES = 400
#: Staged state is measured after this many records.
_MEASURE_EVERY = 2_000
#: How long a fenced worker leaves its transactional id to whoever fenced it.
_RIVAL_WAIT_S = 0.3

#: A topic may be gone, or be too new for a broker to know it.
_GONE = frozenset({KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION})

_UNREADABLE = frozenset(
    {
        KafkaError._BAD_MSG, KafkaError._BAD_COMPRESSION, KafkaError._NOT_IMPLEMENTED, KafkaError.INVALID_MSG,
        KafkaError.MSG_SIZE_TOO_LARGE,
    }
)  # fmt: skip

_topic = Message.topic
_partition = Message.partition
_error = Message.error


class Worker:
    """Runs all tasks of an application until it is stopped.

    Args:
        topology: what to run.
        config: how.
        listener: told about states, restoring and commits; None for nobody.
        take_over: whether tasks that belong to other workers are taken from them.
    """

    def __init__(
        self, topology: Topology, config: Config, listener: WorkerListener | None = None, *, take_over: bool = False
    ) -> None:
        self._topology = topology
        self._config = config
        self._listener = listener or WorkerListener()
        self._take_over = take_over
        self._stop = threading.Event()
        self.state = WorkerState.CREATED
        self.metrics = WorkerMetrics(config)
        self._garbage = GarbageCollector()
        self._environment: Environment
        self._cluster: Cluster
        self._plan: Plan
        self._consumer: Consumer
        self._manager: TaskManager
        self._collector: RecordCollector
        self._pipeline: CommitPipeline
        self._offset_sink: OffsetSink
        self._tasks: list[StreamTask] = []
        self._restored_tasks = False
        self._next_commit = 0.0
        self._next_purge = 0.0
        self._since_measured = 0
        self._full = False
        self._turn_records = _FIRST_TURN_RECORDS
        self._behind = False
        self._back_pressure: BackPressure
        self._refusals = Refusals()
        self._fatal: KafkaError | None = None
        self._doubtful = False
        self.last_turn = time.monotonic()

    # Life -----------------------------------------------------------------------------------------------------

    def stop(self) -> None:
        """Ask the worker to commit and end. Safe from any thread and from signal handlers."""
        self._stop.set()

    def run(self) -> None:
        """Run until `stop()`.

        Raises:
            MillpondError: the worker cannot go on; what it had not committed is not lost.
        """
        try:
            with self.metrics.serving(self), self._garbage.in_charge():
                self._open()
                try:
                    self._run()
                finally:
                    self._close()
        except MillpondError as error:
            if self._stop.is_set() and isinstance(error, BrokerError) and self.state is WorkerState.STARTING:
                # Told to stop while it waited for the brokers: it had nothing to commit yet.
                log.info("stopped before the start was through: %s", error)
                self._become(WorkerState.PENDING_SHUTDOWN)
            else:
                self._become(WorkerState.ERROR)
                raise
        except KafkaException as error:
            self._become(WorkerState.ERROR)
            raise BrokerError(f"Kafka refused to go on: {error.args[0].str()}.") from error
        except BaseException:
            self._become(WorkerState.ERROR)
            raise
        self._become(WorkerState.NOT_RUNNING)

    def _run(self) -> None:
        self._start_tasks(first=True)
        while not self._stop.is_set():
            try:
                self._turn()
            except (CommitFailed, KafkaException) as error:
                self._recover(error)
            except StateCorrupted as error:
                if error.store is None:
                    raise
                self._manager.rebuild_corrupted(error)
                self._recover(error)
        self._become(WorkerState.PENDING_SHUTDOWN)
        self._finish()

    def _become(self, state: WorkerState) -> None:
        if may_follow(self.state, state):
            log.info("worker %s: %s -> %s", self._config.worker_id, self.state.value, state.value)
            self.state = state
            self._listener.state_changed(state)

    # Start ----------------------------------------------------------------------------------------------------

    def _open(self) -> None:
        config = self._config
        self._become(WorkerState.STARTING)
        patience = timedelta(milliseconds=config.task_timeout_ms)
        self._cluster = Cluster(config.admin_settings(), patience=patience, stopping=self._stop.is_set)
        existing = self._cluster.topics()
        self._plan = make_plan(
            self._topology,
            existing,
            config.application_id,
            topic_config=config.topic,
            additional_retention_ms=config.windowstore_changelog_additional_retention_ms,
            dead_letter_topic=config.errors_dead_letter_queue_topic_name,
        )
        self._state_file = StateFile(
            config.directory,
            StateFileOptions(
                cache_bytes=max(config.rocksdb_block_cache_bytes, config.rocksdb_write_buffer_bytes),
                write_buffer_bytes=config.rocksdb_write_buffer_bytes,
            ),
        )
        if self._state_file.set_aside is not None:
            log.error(
                "the local state could not be opened (%s); it was moved to %s, and every store is restored from its "
                "changelog", self._state_file.reason, self._state_file.set_aside,
            )  # fmt: skip
        made = self._cluster.ensure(self._plan.internal, existing, config.replication_factor)
        if made:
            log.info("created %d internal topics", len(made))
        self._environment = Environment(
            application_id=config.application_id,
            handlers=Handlers(
                config.deserialization_exception_handler,
                config.processing_exception_handler,
                config.production_exception_handler,
                config.errors_dead_letter_queue_topic_name,
            ),
            internal_topics=frozenset(self._topology.repartition_topics),
            default_key=config.default_key_serde,
            default_value=config.default_value_serde,
            default_timestamp_extractor=config.default_timestamp_extractor,
            max_task_idle_ms=config.max_task_idle_ms,
            cache_bytes=config.statestore_cache_max_bytes,
            row_cache_bytes=config.rocksdb_row_cache_bytes,
            settings=config.as_mapping(),
            partition_count=self._cluster.partition_count,
        )
        offset_committer: OffsetCommitter | None = None

        def on_commit(error: KafkaError | None, partitions: list[TopicPartition]) -> None:
            if offset_committer is not None:
                offset_committer.on_commit(error, partitions)

        self._consumer = make_consumer(
            config,
            sum(len(topics) for topics in self._plan.tasks.values()),
            None if config.exactly_once else on_commit,
            self._client_error,
        )
        self._back_pressure = BackPressure(self._consumer, config.buffered_records_per_partition)
        if not config.exactly_once:
            offset_committer = OffsetCommitter(self._consumer)
            self._offset_sink = offset_committer
        offsets = OffsetStore(self._consumer, self._stop.is_set, config.task_timeout_ms / 1000)
        self._manager = TaskManager(
            self._topology, self._plan, config, self._environment, self._state_file, self._consumer, offsets,
            ChangelogReader(self._restore_progress, self._listener),
        )  # fmt: skip
        self.metrics.watch(self._manager, self._state_file)

    def _start_tasks(self, *, first: bool) -> None:
        config, manager = self._config, self._manager

        def made() -> Producer:
            return make_producer(
                config,
                config.worker_id if config.exactly_once else None,
                self._client_error,
                careful=self._refusals.careful,
                batch_bytes=self._refusals.batch_bytes,
            )

        producer = self._initialised(made) if config.exactly_once else made()
        self._collector = self._careful(producer) or RecordCollector(producer, transactional=config.exactly_once)
        self.metrics.collector = self._collector
        if config.exactly_once:
            self._offset_sink = TransactionCommitter(producer, self._consumer, lambda: None)
        self._pipeline = CommitPipeline(self._collector, self._offset_sink)
        if first:
            manager.read_committed()
            manager.claim_all(self._fencing if config.exactly_once else None, take_over=self._take_over)
            if config.exactly_once:
                manager.announce(producer)
        else:
            manager.check_still_mine()
        self._become(WorkerState.RESTORING)
        self._restored_tasks = False
        while True:
            try:
                wanted = manager.create_globals()
                if wanted:
                    self._consumer.incremental_assign(wanted)
                self._global_ends = {(each.topic, each.partition) for each in wanted}
                manager.create(self._collector.outbox)
                break
            except StateCorrupted as error:
                if error.store is None:
                    raise
                self._consumer.unassign()
                manager.drop_all()
                manager.rebuild_corrupted(error)
        self._next_commit = time.monotonic() + config.commit_interval_ms / 1000
        self._next_purge = time.monotonic() + config.repartition_purge_interval_ms / 1000

    def _careful(self, producer: Producer) -> CarefulCollector | None:
        if not self._refusals.careful:
            return None
        return CarefulCollector(
            producer,
            transactional=self._config.exactly_once,
            refusals=self._refusals,
            handlers=self._environment.handlers,
            contexts=lambda: [task.context for task in self._manager.tasks.values()],
        )

    def _initialised(self, made: Callable[[], Producer]) -> Producer:
        return initialised(made, self._stop.is_set, self._config.task_timeout_ms / 1000)

    def _fencing(self, owner: str) -> Producer:
        """A producer that has the transactional id of `owner` to itself."""
        return self._initialised(lambda: make_producer(self._config, owner, self._client_error))

    def _restore_progress(self, restoration: Restoration) -> None:
        store = restoration.store
        done = restoration.position - restoration.start
        self._listener.restore_progress(store.name, store.partition, done, done + restoration.remaining)

    def _start_running(self) -> None:
        """Everything is restored: read the inputs."""
        manager = self._manager
        changelogs = [each.source for each in manager.reader.restorations.values()]
        assigned = {(each.topic, each.partition) for each in self._consumer.assignment()}
        self._consumer.incremental_unassign(
            [TopicPartition(each.topic, each.partition) for each in changelogs if each in assigned]
        )
        self._consumer.incremental_assign(manager.start_positions())
        self._tasks = list(manager.tasks.values())
        self._restored_tasks = True
        self._become(WorkerState.RUNNING)

    # The loop -------------------------------------------------------------------------------------------------

    def _turn(self) -> None:
        now = time.monotonic()
        self.last_turn = now
        if self._fatal is not None or self._doubtful:
            self._look_into_errors()
        messages = self._poll(now)
        if messages:
            self._dispatch(messages)
        if not self._restored_tasks:
            if self._manager.reader.complete and not self._global_ends:
                self._start_running()
            return
        collector = self._collector
        if isinstance(collector, CarefulCollector):
            self._turn_carefully(collector)
            return
        self._process()
        self._commit(time.monotonic())

    def _turn_carefully(self, collector: CarefulCollector) -> None:
        """A few records, their reports, a commit: until all is through that was on its way at the first refusal."""
        if not collector.settle():
            return
        if self._pipeline.phase is Phase.IDLE:
            if self._refusals.behind(self._positions()):
                self._process()
                if not collector.settle():
                    return
            elif not self._commit_needed():
                self._refusals.over()
                self._go_back()
                return
            self._next_commit = 0.0
        self._commit(time.monotonic())

    def _positions(self) -> dict[Partition, int]:
        return {partition: task.inputs[partition.topic].position for partition, task in self._manager.by_input.items()}

    def _poll(self, now: float) -> list[Message]:
        consumer = self._consumer
        if self._held():
            # One record rather than none: it is the consumer that hears of committed offsets.
            held: list[Message] = consumer.consume(1, _IN_FLIGHT_WAIT_S)
            return held
        limit = self._turn_limit()
        messages: list[Message] = consumer.consume(limit, 0)
        if not messages and self._pipeline.phase is Phase.DELIVERING:
            # Nothing else to do: wait for the deliveries, which makes the client hurry.
            self._collector.hasten()
            return consumer.consume(limit, 0)
        if messages or (self._behind and not self._refusals.careful):
            return messages
        wait = min(self._config.poll_ms / 1000, max(0.0, self._next_commit - now) if self._commit_needed() else 1.0)
        if self._pipeline.phase is not Phase.IDLE:
            wait = min(wait, _IN_FLIGHT_WAIT_S)
        due = [each for task in self._tasks if (each := task.next_wall_clock_due()) is not None]
        if due:
            wait = min(wait, max(0.0, (min(due) - self._environment.now_ms()) / 1000))
        messages = consumer.consume(1, wait)
        if messages:
            messages += consumer.consume(max(1, limit - 1), 0)
        return messages

    def _turn_limit(self) -> int:
        """The most records to poll, and to process per task, in this turn."""
        if not self._restored_tasks:
            return POLL_RECORDS
        return min(CAREFUL_RECORDS, self._turn_records) if self._refusals.careful else self._turn_records

    def _dispatch(self, messages: list[Message]) -> None:
        ends: list[Message] = []
        if any(map(_error, messages)):
            ends = [message for message in messages if message.error() is not None]
            messages = [message for message in messages if message.error() is None]
        for topic, of_topic in groupby(messages, _topic):
            for number, of_partition in groupby(of_topic, _partition):
                self._deliver(Partition(topic or "", number or 0), list(of_partition))
        for message in ends:
            self._event(message)

    def _deliver(self, partition: Partition, messages: Sequence[Message]) -> None:
        task = self._manager.by_input.get(partition) if self._restored_tasks else None
        if task is not None:
            task.add(partition.topic, messages)
            return
        for updater in self._manager.globals:
            if updater.topic == partition.topic:
                updater.apply(partition, messages)
                return
        self._manager.reader.records(partition, messages)

    def _event(self, message: Message) -> None:
        error = message.error()
        assert error is not None
        partition = Partition(message.topic() or "", message.partition() or 0)
        if error.code() == KafkaError._PARTITION_EOF:
            self._global_ends.discard(partition)
            task = self._manager.by_input.get(partition) if self._restored_tasks else None
            if task is not None:
                task.inputs[partition.topic].reached_end(int(message.offset() or 0))
            else:
                self._manager.reader.reached_end(partition, int(message.offset() or 0))
        elif error.code() in _GONE:
            self._doubtful = True
        elif error.code() in (KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.GROUP_AUTHORIZATION_FAILED):
            raise BrokerError(f"no permission to read {partition}: {error.str()}.")
        elif error.code() == KafkaError._AUTO_OFFSET_RESET:
            # Retention was faster than this application; going back finds where the partition begins now.
            raise CommitFailed(f"the position in {partition} is not in the topic any more: {error.str()}")
        elif error.code() in _UNREADABLE:
            # The client goes on after what it cannot read.
            raise BrokerError(f"records of {partition} cannot be read: {error.str()}. Nothing of them is committed.")
        else:
            log.warning("the consumer reports for %s: %s", partition, error.str())

    def _process(self) -> None:
        now_ms = self._environment.now_ms()
        started = time.monotonic()
        processed = 0
        limit = self._turn_limit()
        self._behind = False
        for task in self._tasks:
            done = task.process(limit, now_ms)
            processed += done
            self._behind = self._behind or done >= limit
            task.punctuate(now_ms)
        self._back_pressure.balance(self._tasks)
        if processed:
            took = time.monotonic() - started
            if took > _LONGEST_TURN_S:
                self._turn_records = max(1, min(limit, int(processed * _LONGEST_TURN_S / took)))
            elif took < _LONGEST_TURN_S / 2:
                self._turn_records = min(POLL_RECORDS, self._turn_records * 2)
            self.metrics.processed(processed, took)
            self._garbage.processed(processed)
            self._since_measured += processed
        if self._pipeline.phase is Phase.IDLE or (
            # Without transactions output need not wait for the next one; and the answer to the commit that is in flight
            # comes through the consumer, which is left alone while the outbox is full.
            self._pipeline.phase is Phase.COMMITTING and not self._config.exactly_once
        ):
            self._collector.drain()

    # Commit ---------------------------------------------------------------------------------------------------

    def _commit_needed(self) -> bool:
        return any(task.commit_needed for task in self._tasks)

    def _commit(self, now: float) -> None:
        if self._pipeline.phase is not Phase.IDLE:
            done = self._pipeline.advance()
            if done is None:
                return
            self._committed(done)
            self._collector.drain()
        over = self._over_limits()
        requested = any(task.context.commit_requested for task in self._tasks)
        if (now >= self._next_commit or over or requested) and self._commit_needed():
            self._begin_commit()
            self._next_commit = now + self._config.commit_interval_ms / 1000
            done = self._pipeline.advance()
            if done is not None:
                self._committed(done)
        elif now >= self._next_commit:
            self._next_commit = now + self._config.commit_interval_ms / 1000

    def _held(self) -> bool:
        """Whether reading waits for the commit in flight, lest what is staged or on its way out outgrow its bounds."""
        if self._pipeline.phase is Phase.IDLE:
            return False
        outbox = self._collector.outbox
        if outbox and len(outbox) * (_ROW_BYTES + len(outbox[-1][1] or b"")) > _OUTBOX_BYTES:
            return True
        if self._since_measured >= _MEASURE_EVERY:
            self._since_measured = 0
            limit = self._config.statestore_uncommitted_max_bytes
            # Twice: once for the commit in flight, once for the next.
            self._full = 0 <= 2 * limit < sum(store.staged_bytes() for store in self._manager.stores())
        return self._full

    def _over_limits(self) -> bool:
        """Whether staged state asks for a commit now. Flushes the record caches when they are over their limit."""
        if self._since_measured < _MEASURE_EVERY and not self._full:
            return False
        self._since_measured = 0
        self._full = False
        stores = self._manager.stores()
        limit = self._config.statestore_uncommitted_max_bytes
        if 0 <= limit < sum(store.staged_bytes() for store in stores):
            return True
        if sum(store.dirty_bytes() for store in stores if store.caching) > self._environment.cache_bytes:
            for task in self._tasks:
                self._send_changes(task)
            self._collector.drain()
        return False

    def _send_changes(self, task: StreamTask) -> None:
        for store, rows in task.flush():
            self._collector.send_tracked((store.name, store.partition), rows)

    def _begin_commit(self) -> None:
        offsets = {}
        rows = []
        manager, config = self._manager, self._config
        for task in self._tasks:
            task.context.commit_requested = False
            if not task.commit_needed:
                continue
            self._send_changes(task)
            rows += [(store, store.seal(), store.metadata()) for store in task.stores.values()]
            offsets.update(task.positions(config.worker_id, manager.epoch))
            task.commit_needed = False
            task.context.commit_requested = False  # what a flush asked for is in this commit
        self._collector.drain()
        self._collector.ensure_transaction()
        self._pipeline.begin(Commit(offsets, rows))

    def _committed(self, commit: Commit) -> None:
        acknowledged = self._collector.acknowledged
        for backend in self._manager.backends:
            groups = []
            written = {}
            for store, rows, metadata in commit.rows:
                if self._manager.backend_for(store) is backend and (rows or rows.ranges):
                    key = (store.name, store.partition)
                    groups.append((store.name, store.partition, rows))
                    written[key] = (acknowledged.get(key), metadata)
            if groups:
                backend.write(groups, written)
        for store, _, _ in commit.rows:
            store.committed()
        took = time.monotonic() - commit.started
        self.metrics.committed(took, len(commit.offsets))
        commit.rows.clear()
        self._garbage.committed()
        self._listener.committed(CommitStats(took, len(commit.offsets), self.metrics.records_processed))
        now = time.monotonic()
        if now >= self._next_purge and self._plan.repartition:
            self._next_purge = now + self._config.repartition_purge_interval_ms / 1000
            self._cluster.purge(
                {
                    (partition.topic, partition.partition): offset
                    for partition, (offset, _) in commit.offsets.items()
                    if partition.topic in self._plan.repartition
                }
            )

    # Failure and end ------------------------------------------------------------------------------------------

    def _client_error(self, error: KafkaError) -> None:
        if error.fatal():
            self._fatal = error
        elif error.code() in _GONE:
            self._doubtful = True
        else:
            client_log.warning("Kafka client: %s", error.str())

    def _look_into_errors(self) -> None:
        """What the clients reported beside records.

        Raises:
            KafkaException: a client gave up.
            BrokerError: a topic was deleted.
        """
        if self._fatal is not None:
            fatal, self._fatal = self._fatal, None
            raise KafkaException(fatal)
        self._doubtful = False
        existing = self._cluster.topics()
        wanted = {*self._plan.partitions, *(topic.name for topic in self._plan.internal)}
        gone = sorted(topic for topic in wanted if topic not in existing)
        if gone:
            raise BrokerError(
                f"topic '{gone[0]}' is gone: it was deleted while the application ran. Make it again, and if its "
                f"records were lost with it, run 'millpond reset' first."
            )

    def _recover(self, error: Exception) -> None:
        """A transaction was aborted or its end is unknown: go back to what is committed."""
        fenced = (isinstance(error, CommitFailed) and error.fenced) or (
            # A fatal error says no more what it was once it was told.
            isinstance(error, KafkaException) and (is_fenced(error) or error.args[0].code() == KafkaError._FATAL)
        )
        log.warning(
            "%s (%s); going back to the last commit", "fenced by another producer" if fenced else "a commit failed",
            error,
        )  # fmt: skip
        self.metrics.recoveries += 1
        cause = error.cause if isinstance(error, CommitFailed) else error.args[0]
        if isinstance(cause, KafkaError) and refuses(cause) and self._tasks:
            self._refusals.met(cause, self._positions())
        self._go_back(fenced=fenced)

    def _go_back(self, *, fenced: bool = False) -> None:
        self._offset_sink.close()
        self._collector.producer.purge()
        self._become(WorkerState.STARTING)
        self._restored_tasks = False
        self._behind = False
        self._fatal = None  # of the producer that is given up
        self._back_pressure.clear()
        self._full = False
        self._tasks = []
        self._consumer.unassign()
        self._manager.drop_all()
        if fenced:
            # Whoever did it gets the time to write whose the tasks are: two that take the id from each other at once
            # would go on doing so. Then that is looked up before the id is taken back.
            self._stop.wait(_RIVAL_WAIT_S)
            self._manager.check_still_mine()
        self._start_tasks(first=False)

    def _finish(self) -> None:
        """Commit what is processed, within the deadline."""
        deadline = time.monotonic() + self._config.shutdown_timeout_ms / 1000
        try:
            idle = self._finish_commit(deadline)
            if idle and self._restored_tasks and self._commit_needed():
                self._collector.drain()
                self._begin_commit()
                idle = self._finish_commit(deadline)
        except (CommitFailed, KafkaException, OwnershipError) as error:
            log.warning("the last commit failed (%s); the next start processes its records again", error)
            return
        if not idle:
            log.warning("no answer to the last commit within the deadline; the next start finds out")

    def _finish_commit(self, deadline: float) -> bool:
        """Wait for the commit in flight; whether none is left."""
        while self._pipeline.phase is not Phase.IDLE:
            done = self._pipeline.advance()
            if done is not None:
                self._committed(done)
            elif time.monotonic() >= deadline:
                return False
            else:
                self._consumer.poll(_IN_FLIGHT_WAIT_S)
        return True

    def _close(self) -> None:
        self._manager.drop_all()
        self._offset_sink.close()
        self._state_file.close()
        self._consumer.close()
