"""The worker: one process, one loop, one consumer, one producer, one state file.

Each turn of the loop polls a batch, hands it to tasks, lets them process, and moves the commit in flight along.
When a commit fails, or nobody knows whether it did, the worker does the same as at its start: it reads what is
committed, brings its stores there, and goes on. There is no other way back, so that one is well tried.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from confluent_kafka import KafkaError, KafkaException, Message, Producer, TopicPartition

from millpond.errors import BrokerError, MillpondError, OwnershipError, StateCorrupted
from millpond.topology import Topology

from .assembly import Assembly, assemble
from .careful import CAREFUL_RECORDS, CarefulCollector, Refusals, refuses
from .claims import initialised
from .clients import log as client_log
from .clients import make_producer
from .collector import RecordCollector
from .commit import CommitFailed, CommitPipeline, OffsetSink, Phase, TransactionCommitter, is_fenced
from .committer import Committer
from .config import Config
from .garbage import GarbageCollector
from .intake import GONE, Intake
from .listeners import WorkerListener
from .metrics import WorkerMetrics
from .ownership import Partition
from .restore import ChangelogReader, Restoration
from .states import WorkerState, may_follow
from .task import StreamTask

__all__ = ("Worker",)

log = logging.getLogger(__name__)

#: The most records per poll and per task in a turn of the loop, which then takes milliseconds.
POLL_RECORDS = 2_000
#: A turn takes fewer records when these take longer: commits, time and `stop()` are looked at between turns.
_LONGEST_TURN_S = 0.25
_FIRST_TURN_RECORDS = 100
#: While a commit is in flight, its end is looked for at least this often.
_IN_FLIGHT_WAIT_S = 0.001
#: How long a fenced worker leaves its transactional id to whoever fenced it.
_RIVAL_WAIT_S = 0.3


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
        self._assembly: Assembly
        self._intake: Intake
        self._collector: RecordCollector
        self._committer: Committer
        self._offset_sink: OffsetSink | None = None
        self._tasks: list[StreamTask] = []
        self._turn_records = _FIRST_TURN_RECORDS
        self._behind = False
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
                self._assembly.manager.rebuild_corrupted(error)
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
        self._become(WorkerState.STARTING)
        reader = ChangelogReader(self._restore_progress, self._listener)
        self._assembly = assemble(self._topology, self._config, reader, self._stop.is_set, self._client_error)
        self._intake = Intake(self._assembly.manager, self._doubt)
        self.metrics.watch(self._assembly.manager, self._assembly.state_file)

    def _start_tasks(self, *, first: bool) -> None:
        config, manager = self._config, self._assembly.manager
        producer = self._made_producer()
        self._collector = self._careful(producer) or RecordCollector(producer, transactional=config.exactly_once)
        self.metrics.collector = self._collector
        offset_sink = self._assembly.offset_committer or TransactionCommitter(
            producer, self._assembly.consumer, lambda: None
        )
        self._offset_sink = offset_sink
        if first:
            manager.read_committed()
            manager.claim_all(self._fencing if config.exactly_once else None, take_over=self._take_over)
            if config.exactly_once:
                manager.announce(producer)
        else:
            manager.check_still_mine()
        self._become(WorkerState.RESTORING)
        self._create_tasks()
        pipeline = CommitPipeline(self._collector, offset_sink)
        self._committer = Committer(
            self._assembly, config, self._collector, pipeline, self.metrics, self._garbage, self._listener
        )

    def _create_tasks(self) -> None:
        manager, consumer = self._assembly.manager, self._assembly.consumer
        while True:
            try:
                wanted = manager.create_globals()
                if wanted:
                    consumer.incremental_assign(wanted)
                self._intake.global_ends = {Partition(each.topic, each.partition) for each in wanted}
                manager.create(self._collector.outbox)
            except StateCorrupted as error:
                if error.store is None:
                    raise
                consumer.unassign()
                manager.drop_all()
                manager.rebuild_corrupted(error)
            else:
                return

    def _made_producer(self) -> Producer:
        config = self._config

        def made() -> Producer:
            return make_producer(
                config,
                config.worker_id if config.exactly_once else None,
                self._client_error,
                careful=self._refusals.careful,
                batch_bytes=self._refusals.batch_bytes,
            )

        return self._initialised(made) if config.exactly_once else made()

    def _careful(self, producer: Producer) -> CarefulCollector | None:
        if not self._refusals.careful:
            return None
        return CarefulCollector(
            producer,
            transactional=self._config.exactly_once,
            refusals=self._refusals,
            handlers=self._assembly.environment.handlers,
            contexts=lambda: [task.context for task in self._assembly.manager.tasks.values()],
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
        manager, consumer = self._assembly.manager, self._assembly.consumer
        changelogs = [each.source for each in manager.reader.restorations.values()]
        assigned = {(each.topic, each.partition) for each in consumer.assignment()}
        consumer.incremental_unassign(
            [TopicPartition(each.topic, each.partition) for each in changelogs if each in assigned]
        )
        consumer.incremental_assign(manager.start_positions())
        self._tasks = list(manager.tasks.values())
        self._committer.tasks = self._tasks
        self._intake.running = True
        self._become(WorkerState.RUNNING)

    # The loop -------------------------------------------------------------------------------------------------

    def _turn(self) -> None:
        now = time.monotonic()
        self.last_turn = now
        if self._fatal is not None or self._doubtful:
            self._look_into_errors()
        messages = self._poll(now)
        if messages:
            self.metrics.polled(len(messages))
            self._intake.dispatch(messages)
        if not self._intake.running:
            if self._intake.restored:
                self._start_running()
            return
        collector = self._collector
        if isinstance(collector, CarefulCollector):
            self._turn_carefully(collector)
            return
        self._process()
        self._committer.advance(time.monotonic())

    def _turn_carefully(self, collector: CarefulCollector) -> None:
        """A few records, their reports, a commit: until all is through that was on its way at the first refusal."""
        if not collector.settle():
            return
        committer = self._committer
        if committer.phase is Phase.IDLE:
            if self._refusals.behind(self._positions()):
                self._process()
                if not collector.settle():
                    return
            elif not committer.needed():
                self._refusals.over()
                self._go_back()
                return
            committer.next_commit = 0.0
        committer.advance(time.monotonic())

    def _positions(self) -> dict[Partition, int]:
        by_input = self._assembly.manager.by_input
        return {partition: task.inputs[partition.topic].position for partition, task in by_input.items()}

    def _poll(self, now: float) -> list[Message]:
        consumer, committer = self._assembly.consumer, self._committer
        if committer.holds_reading():
            # One record rather than none: it is the consumer that hears of committed offsets.
            held: list[Message] = consumer.consume(1, _IN_FLIGHT_WAIT_S)
            return held
        limit = self._turn_limit()
        messages: list[Message] = consumer.consume(limit, 0)
        if not messages and committer.phase is Phase.DELIVERING:
            # Nothing else to do: wait for the deliveries, which makes the client hurry.
            self._collector.hasten()
            return consumer.consume(limit, 0)
        if messages or (self._behind and not self._refusals.careful):
            return messages
        messages = consumer.consume(1, self._longest_wait(now))
        if messages:
            messages += consumer.consume(max(1, limit - 1), 0)
        return messages

    def _longest_wait(self, now: float) -> float:
        """Seconds until there is something to do even if no record comes."""
        wait = self._config.poll_ms / 1000
        if self._committer.phase is not Phase.IDLE:
            wait = min(wait, _IN_FLIGHT_WAIT_S)
        elif self._committer.needed():
            wait = min(wait, max(0.0, self._committer.next_commit - now))
        due = [each for task in self._tasks if (each := task.next_wall_clock_due()) is not None]
        if due:
            wait = min(wait, max(0.0, (min(due) - self._assembly.environment.now_ms()) / 1000))
        return wait

    def _turn_limit(self) -> int:
        """The most records to poll, and to process per task, in this turn."""
        if not self._intake.running:
            return POLL_RECORDS
        return min(CAREFUL_RECORDS, self._turn_records) if self._refusals.careful else self._turn_records

    def _process(self) -> None:
        now_ms = self._assembly.environment.now_ms()
        started = time.monotonic()
        processed = 0
        limit = self._turn_limit()
        self._behind = False
        for task in self._tasks:
            done = task.process(limit, now_ms)
            processed += done
            self._behind = self._behind or done >= limit
            task.punctuate(now_ms)
        self._assembly.back_pressure.balance(self._tasks)
        if processed:
            took = time.monotonic() - started
            if took > _LONGEST_TURN_S:
                self._turn_records = max(1, min(limit, int(processed * _LONGEST_TURN_S / took)))
            elif took < _LONGEST_TURN_S / 2:
                self._turn_records = min(POLL_RECORDS, self._turn_records * 2)
            self.metrics.processed(processed, took)
            self._garbage.processed(processed)
            self._committer.processed(processed)
        if self._committer.phase is Phase.IDLE or (
            # Without transactions output need not wait for the next one; and the answer to the commit that is in flight
            # comes through the consumer, which is left alone while the outbox is full.
            self._committer.phase is Phase.COMMITTING and not self._config.exactly_once
        ):
            self._collector.drain()

    # Failure and end ------------------------------------------------------------------------------------------

    def _client_error(self, error: KafkaError) -> None:
        if error.fatal():
            self._fatal = error
        elif error.code() in GONE:
            self._doubt()
        else:
            client_log.warning("Kafka client: %s", error.str())

    def _doubt(self) -> None:
        """A topic may be gone."""
        self._doubtful = True

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
        existing = self._assembly.cluster.topics()
        plan = self._assembly.plan
        wanted = {*plan.partitions, *(topic.name for topic in plan.internal)}
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
        self._close_offset_sink()
        self._collector.producer.purge()
        self._become(WorkerState.STARTING)
        self._intake.running = False
        self._behind = False
        self._fatal = None  # of the producer that is given up
        self._assembly.back_pressure.clear()
        self._tasks = []
        self._assembly.consumer.unassign()
        self._assembly.manager.drop_all()
        if fenced:
            # Whoever did it gets the time to write whose the tasks are: two that take the id from each other at once
            # would go on doing so. Then that is looked up before the id is taken back.
            self._stop.wait(_RIVAL_WAIT_S)
            self._assembly.manager.check_still_mine()
        self._start_tasks(first=False)

    def _finish(self) -> None:
        """Commit what is processed, within the deadline."""
        deadline = time.monotonic() + self._config.shutdown_timeout_ms / 1000
        committer = self._committer
        try:
            idle = committer.finish(deadline, _IN_FLIGHT_WAIT_S)
            if idle and self._intake.running and committer.needed():
                self._collector.drain()
                committer.begin()
                idle = committer.finish(deadline, _IN_FLIGHT_WAIT_S)
        except (CommitFailed, KafkaException, OwnershipError) as error:
            log.warning("the last commit failed (%s); the next start processes its records again", error)
            return
        if not idle:
            log.warning("no answer to the last commit within the deadline; the next start finds out")

    def _close(self) -> None:
        self._close_offset_sink()
        self._assembly.close()

    def _close_offset_sink(self) -> None:
        if self._offset_sink is not None:
            self._offset_sink.close()
            self._offset_sink = None
