"""The worker: one process, one loop, one consumer, one producer, one state file.

Each turn of the loop polls a batch, hands it to tasks, lets them process, and moves the commit in flight along.
When a commit fails, or nobody knows whether it did, the worker does the same as at its start: it reads what is
committed, brings its stores there, and goes on. There is no other way back, so that one is well tried.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import CancelledError, Future
from dataclasses import replace
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, TypeVar

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from millpond.errors import BrokerError, MillpondError, OwnershipError, StateCorrupted
from millpond.protocol import Role
from millpond.runtime.blockers import Blockers
from millpond.runtime.commit.pipeline import (
    CommitFailed,
    CommitPhase,
    CommitPipeline,
    OffsetSink,
    TransactionCommitter,
    is_fenced,
)
from millpond.runtime.commit.record_collector import RecordCollector
from millpond.runtime.commit.rejected_changelog import RecordLimits
from millpond.runtime.commit.rejected_records import CAREFUL_RECORDS, CarefulCollector, RejectedRecords, refuses
from millpond.runtime.config.model import Config, check_config
from millpond.runtime.http.metrics import WorkerMetrics
from millpond.runtime.http.query_catalog import store_catalog
from millpond.runtime.http.query_server import query_interface
from millpond.runtime.kafka.broker_contact import BrokerContact, asking
from millpond.runtime.kafka.clients import largest_record, make_producer
from millpond.runtime.kafka.reconnect import COMMON_TOPIC, Line, answers
from millpond.runtime.listeners import WorkerListener, check_listener
from millpond.runtime.offsets.metadata import Partition
from millpond.runtime.ownership.lookups import TakeOverAnswer
from millpond.runtime.ownership.takeover import initialised
from millpond.runtime.restoring.changelog_reader import BATCH, BATCH_BESIDE_TASKS, ChangelogReader, Restoration
from millpond.runtime.states import WorkerState, may_follow
from millpond.runtime.tasks.coordination import Coordination
from millpond.runtime.tasks.executor import TaskExecutor
from millpond.runtime.tasks.held_tasks import TaskView
from millpond.runtime.topics.plan import Plan
from millpond.topology import TaskId, Topology
from millpond.topology.topology import check_topology

from .admission import Admission
from .assembly import Assembly, assemble
from .client_errors import ClientErrors
from .commit_failures import CommitFailures
from .commit_scheduler import CommitScheduler
from .dispatch import Dispatcher
from .gc import GarbageCollector
from .pacing import BatchPacing
from .startup import announce, claim_everything

if TYPE_CHECKING:
    from millpond.protocol.client import CoordinatorClient

__all__ = ("Worker",)

log = logging.getLogger(__name__)

T = TypeVar("T")

#: While a commit is in flight, its end is looked for at least this often.
_IN_FLIGHT_WAIT_S = 0.001
#: While a task is on its way to running, and while only the coordinator or a query may have news.
_UNSETTLED_WAIT_S = 0.002
_NEWS_WAIT_S = 0.01
_GOODBYE_S = 2.0
#: Before a worker goes on with what is its own by Kafka, it waits so long for the coordinator to let it in or to refuse it.
_DOOR_S = 2.0
#: Where nobody answered a moment ago.
_LONELY_DOOR_S = 0.5
#: A task that takes longer to begin is worth a word, and another one so much later.
_EXPLAIN_S = 10.0
#: Changelog records at a time beside running tasks.
_COPY_RECORDS = 500
_RESTORE_RECORDS = 5_000
#: Output that waits in memory where none is sent before the commit, in records.
_MOST_HELD_BACK = 50_000
#: How long a fenced worker leaves its transactional id to whoever fenced it.
_RIVAL_WAIT_S = 0.3
#: The longest wait for the first connection of a new producer, which goes on trying afterwards.
_CONNECT_S = 0.5


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
        check_topology("Worker", topology)
        check_config(config)
        self.topology = topology
        self.config = config
        self._listener = check_listener(listener or WorkerListener())
        self._take_over = take_over
        self._stop = threading.Event()
        self.state = WorkerState.CREATED
        self.metrics = WorkerMetrics(config)
        self._queries, self._query_site = query_interface(config, self.metrics.http, self.metrics.registry)
        self._garbage = GarbageCollector()
        self._assembly: Assembly
        self._executor: TaskExecutor
        self._intake: Dispatcher
        self._collector: RecordCollector
        self._committer: CommitScheduler
        self._coordination: Coordination | None = None
        self._client: CoordinatorClient | None = None
        self._heartbeats: Future[None] | None = None
        self.waiting = Blockers()
        self.contact = BrokerContact(
            asking(dict(config.admin_settings())),
            config.brokers_unreachable_timeout_ms / 1000,
            self.waiting,
            config.bootstrap_servers,
        )
        self._introduction = Admission(
            config, self.metrics.http, lambda: self._query_site.url, self.waiting, self.contact, self._stop
        )
        self._offset_sink: OffsetSink | None = None
        self._pace = BatchPacing(config)
        self._behind = False
        self._refusals = RejectedRecords()
        self._new_plan: Plan | None = None
        self._failures = CommitFailures()
        self._reports = ClientErrors()
        self._calls: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self.last_turn = time.monotonic()
        self._next_explanation = time.monotonic() + _EXPLAIN_S
        self._leave_until: float | None = None

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
            waited = isinstance(error, (BrokerError, OwnershipError)) and self.state is WorkerState.STARTING
            if self._stop.is_set() and waited:
                # Told to stop while it waited for brokers or for the coordinator: it had nothing to commit yet.
                log.info("stopped before the start was through: %s", error)
                self._become(WorkerState.PENDING_SHUTDOWN)
            else:
                self._become(WorkerState.ERROR)
                raise
        except KafkaException as error:
            self._become(WorkerState.ERROR)
            raise _refused(error) from error
        except BaseException:
            self._become(WorkerState.ERROR)
            raise
        self._become(WorkerState.NOT_RUNNING)

    def _run(self) -> None:
        self._start()
        while not self._stop.is_set():
            self._turn_or_recover()
        self._become(WorkerState.PENDING_SHUTDOWN)
        self._leave()
        self._finish()

    def _turn_or_recover(self) -> None:
        try:
            self._turn()
        except (CommitFailed, KafkaException) as error:
            self._recover(error)
        except StateCorrupted as error:
            if error.store is None:
                raise
            self._rebuild(error)

    def _become(self, state: WorkerState) -> None:
        if may_follow(self.state, state):
            log.info("worker %s: %s -> %s", self.config.worker_id, self.state.value, state.value)
            self.state = state
            self._listener.state_changed(state)

    # Start ----------------------------------------------------------------------------------------------------

    def _open(self) -> None:
        self._become(WorkerState.STARTING)
        reader = ChangelogReader(self._restore_progress, self._listener)
        with self._introduction.telling_trouble():
            self._assembly = assemble(
                self.topology, self.config, reader, self._gives_up, self._reports.error, self._fencing, self.waiting,
                self._introduction.await_admission,
            )  # fmt: skip
        self._introduction.kafka_cluster = lambda: self._assembly.cluster.id
        self._executor = self._assembly.executor
        self._queries.open(self, store_catalog(self.topology, self._assembly.plan, self._assembly.environment))
        self._intake = Dispatcher(self._executor, self._reports.doubt)
        self.metrics.watch(self._executor, self._assembly.state_file, self._assembly.watch)
        self.contact.start()

    def _start(self) -> None:
        """Find out which tasks are this worker's, and take them up."""
        config, executor = self.config, self._executor
        tasks = list(self._assembly.plan.tasks)
        if config.coordinator_url is not None:
            self._client = self._introduction.client(config.coordinator_url, self._assembly.plan)
            self._coordination = Coordination(
                executor, self._client, config, tasks, self.contact, self._assembly.watch.hurry
            )
        mine = self._claimed(tasks)
        self._watch_clients(self._assembly)
        self._become(WorkerState.RESTORING)
        self._make_globals()
        executor.hold(mine, Role.ACTIVE)
        if self._coordination is not None:
            self._coordination.start()

    def _claimed(self, tasks: Sequence[TaskId]) -> Sequence[TaskId]:
        """The tasks to begin with, announced as this worker's."""
        config, executor = self.config, self._executor
        deadline = time.monotonic() + config.task_timeout_ms / 1000
        while True:
            self._start_producer()
            try:
                if self._coordination is None:
                    claim_everything(executor.registrar, config, tasks, take_over=self._take_over)
                    mine = tasks
                else:
                    # What becomes this worker's a moment later, somebody tells it.
                    mine = self._let_in(self._coordination, executor.registrar.naming(config.worker_id, tasks))
                announce(executor, config, self._collector.producer, mine)
                self.waiting.ends("start")
                return mine
            except (OwnershipError, KafkaException) as error:
                # Where there is a coordinator, somebody takes over from this worker's last incarnation just now.
                final = isinstance(error, OwnershipError) and config.coordinator_url is None
                if final or self._stop.is_set() or time.monotonic() >= deadline:
                    raise
                log.warning("the start is tried again: %s", error)
                self.waiting.begins("start", error if isinstance(error, MillpondError) else _refused(error))
                self._close_offset_sink()
                self._stop.wait(_RIVAL_WAIT_S)

    def _let_in(self, coordination: Coordination, mine: Sequence[TaskId]) -> Sequence[TaskId]:
        """What to begin with: nothing where the coordinator refuses this worker for what it runs."""
        coordination.begin(mine)
        if self._heartbeats is None:
            assert self._client is not None
            self._heartbeats = self.metrics.http.spawn(self._client.run())
            self._client.heard.wait(_LONELY_DOOR_S if self._introduction.alone else _DOOR_S)
        coordination.learn_marks()
        return () if coordination.rejected else mine

    def _make_globals(self) -> None:
        executor = self._executor
        while True:
            try:
                executor.globals.create()
            except StateCorrupted as error:
                if error.store is None:
                    raise
                executor.globals.close()
                executor.stores.rebuild(error)
            else:
                return

    def _start_producer(self) -> None:
        """A producer that has this worker's transactional id to itself, and what commits through it."""
        config = self.config
        producer = self._made_producer()
        self._collector = self._careful(producer) or RecordCollector(producer, transactional=config.exactly_once)
        self._executor.active.outbox = self._collector.outbox
        self.metrics.collector = self._collector
        offset_sink = self._assembly.offset_committer or TransactionCommitter(
            producer, self._assembly.consumer, lambda: None
        )
        self._offset_sink = offset_sink
        pipeline = CommitPipeline(self._collector, offset_sink)
        self._committer = CommitScheduler(
            self._assembly, config, self._collector, pipeline, self.metrics, self._garbage, self._listener
        )

    def _made_producer(self) -> Producer:
        config = self.config

        def made() -> Producer:
            return self._connected(
                make_producer(
                    config,
                    config.worker_id if config.exactly_once else None,
                    self._reports.error,
                    careful=self._refusals.careful,
                    batch_bytes=self._refusals.batch_bytes,
                )
            )

        return self._initialised(made) if config.exactly_once else made()

    def _careful(self, producer: Producer) -> CarefulCollector | None:
        if not self._refusals.careful:
            return None
        return CarefulCollector(
            producer,
            transactional=self.config.exactly_once,
            refusals=self._refusals,
            handlers=self._assembly.environment.handlers,
            contexts=lambda: [task.context for task in self._executor.tasks.values()],
            limits=RecordLimits(largest_record(self.config), self._assembly.cluster.max_message_bytes),
        )

    def _initialised(self, made: Callable[[], Producer]) -> Producer:
        return initialised(made, self._gives_up, self.config.task_timeout_ms / 1000)

    def _gives_up(self) -> bool:
        """Whether brokers are not waited for any more: the worker is to stop, and is not handing its tasks over."""
        return self._stop.is_set() and (self._leave_until is None or time.monotonic() >= self._leave_until)

    def _fencing(self, owner: str) -> Producer:
        """A producer that has the transactional id of `owner` to itself."""
        return self._initialised(lambda: self._connected(make_producer(self.config, owner, self._reports.error)))

    def _connected(self, producer: Producer) -> Producer:
        """Make a new producer ask for its producer id at once.

        librdkafka asks when an answer about metadata arrives over a connection that is up, and otherwise every 0.5 s.
        The first answer may end the connection to the bootstrap address; the second one comes over the one that stays.
        """
        if answers(producer, COMMON_TOPIC, _CONNECT_S):
            answers(producer, COMMON_TOPIC, _CONNECT_S)
        return producer

    def _restore_progress(self, restoration: Restoration) -> None:
        store = restoration.store
        done = restoration.position - restoration.start
        self._listener.restore_progress(store.name, store.partition, done, done + restoration.remaining)

    # The loop -------------------------------------------------------------------------------------------------

    def _turn(self) -> None:
        self.last_turn = now = time.monotonic()
        if self._reports.pending:
            self._replace_clients(self._reports.look_into(self._assembly.cluster, self._assembly.plan))
        self._new_plan = self._assembly.watch.turn(now) or self._new_plan
        executor = self._executor
        messages = self._poll(now)
        if messages:
            self.metrics.polled(len(messages))
            self._intake.dispatch(messages)
        if executor.reader.restorations:
            self._copy(bool(messages))
        self._settle()
        while not self._calls.empty():
            self._calls.get()()
        if not self._may_write():
            return
        collector = self._collector
        if isinstance(collector, CarefulCollector):
            self._turn_carefully(collector)
            return
        if executor.running and not self._awaits_commit():
            self._process()
            if not self._may_write():  # the process may have been frozen meanwhile
                return
            if not self._pace.slow:
                self._send()
            elif len(collector.outbox) >= _MOST_HELD_BACK:
                self._committer.next_commit = 0.0
        self._advance()

    def _awaits_commit(self) -> bool:
        """Whether a commit has to end before more is processed: for new inputs, or since that may take too long for it."""
        committer = self._committer
        if self._new_plan is not None:
            committer.next_commit = 0.0
            return True
        if not self._pace.slow or (committer.phase is CommitPhase.IDLE and not self._collector.in_transaction):
            return False
        if committer.phase is CommitPhase.IDLE:
            committer.next_commit = 0.0
            return committer.needed()
        return True

    def _advance(self) -> None:
        started = time.monotonic()
        self._committer.flushes_first = self._pace.slow
        self._committer.advance(started)
        self._pace.flushed(time.monotonic() - started)
        if self._new_plan is not None and self._committer.phase is CommitPhase.IDLE and not self._committer.needed():
            self._go_back()

    def _may_write(self) -> bool:
        """Whether nobody can have taken this worker's tasks over without its notice."""
        return self._coordination is None or self._coordination.may_write()

    def _copy(self, busy: bool) -> None:
        """Bring stores nearer to the ends of their changelogs. Beside running tasks it takes a share of the turn."""
        copier = self._assembly.copier
        most = _COPY_RECORDS if busy else _RESTORE_RECORDS
        self._executor.reader.batch = BATCH_BESIDE_TASKS if busy else BATCH
        # As long as tasks took in the last turn: copies that fall behind get half of the loop, and catch up.
        until = time.monotonic() + self._pace.processing_s if busy else 0.0
        while True:
            messages: list[Message] = copier.consume(most, 0)
            if messages:
                self._intake.copied(messages)
            if self._executor.reader.expired:
                self._executor.reopen_expired()
            if len(messages) < most or time.monotonic() >= until:
                return

    def _settle(self) -> None:
        """Take in what was found out about tasks, and let those run that are complete."""
        executor, coordination = self._executor, self._coordination
        executor.look_at_ends()
        executor.take_in_snapshots()
        for answer in executor.registrar.answers():
            if isinstance(answer, TakeOverAnswer):
                if coordination is not None:
                    coordination.taken_over(answer)
            elif coordination is None or not coordination.looked_up(answer):
                executor.looked_up(answer)
        if coordination is not None:
            coordination.turn(time.monotonic())
            if coordination.withdraws:
                self._withdraw(coordination)
            if coordination.fenced:
                coordination.fenced = False
                raise CommitFailed("tasks of this worker were taken over", fenced=True)
        if not executor.globals.behind:
            if not executor.settled:
                executor.start_restored()
                self._explain()
            if self.state is WorkerState.RESTORING and executor.settled:
                self._become(WorkerState.RUNNING)

    def _explain(self) -> None:
        """Once in a while, what holds up the tasks that do not run yet."""
        now = time.monotonic()
        if now >= self._next_explanation:
            self._next_explanation = now + _EXPLAIN_S
            for line in self._executor.unsettled(_EXPLAIN_S):
                log.warning("%s", line)
                self._reports.check()

    def _turn_carefully(self, collector: CarefulCollector) -> None:
        """A few records, their reports, a commit: until all is through that was on its way at the first refusal."""
        executor, refusals = self._executor, self._refusals
        if executor.globals.behind or not collector.settle():
            return
        committer = self._committer
        if committer.phase is CommitPhase.IDLE:
            # Tasks that run do not wait for one that is still being restored: they go on, with the same care.
            if refusals.behind(self._positions()) or refusals.awaits(executor.inputs_to_come()):
                self._process()
                if not self._may_write():
                    return
                self._send()
                if not collector.settle():
                    return
            elif not committer.needed():
                refusals.over()
                self._go_back()
                return
            committer.next_commit = 0.0
        self._advance()

    def _positions(self) -> dict[Partition, int]:
        by_input = self._executor.by_input
        return {partition: task.inputs[partition.topic].position for partition, task in by_input.items()}

    def _poll(self, now: float) -> list[Message]:
        consumer, committer = self._assembly.consumer, self._committer
        waits = self._pace.slow and committer.phase is not CommitPhase.IDLE
        if waits or committer.holds_reading() or not self._may_write():
            # One record rather than none: it is the consumer that hears of committed offsets.
            held: list[Message] = consumer.consume(1, _IN_FLIGHT_WAIT_S)
            return held
        limit = self._turn_limit()
        messages: list[Message] = consumer.consume(limit, 0)
        if not messages and committer.phase is CommitPhase.DELIVERING:
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
        wait = self.config.poll_ms / 1000
        if self._committer.phase is not CommitPhase.IDLE:
            wait = min(wait, _IN_FLIGHT_WAIT_S)
        elif self._committer.needed():
            wait = min(wait, max(0.0, self._committer.next_commit - now))
        if not self._executor.settled or self._executor.globals.behind:
            wait = min(wait, _UNSETTLED_WAIT_S)
        elif self._coordination is not None or self._query_site.url is not None:
            wait = min(wait, _NEWS_WAIT_S)
        due = [each for task in self._executor.running if (each := task.next_wall_clock_due()) is not None]
        if due:
            wait = min(wait, max(0.0, (min(due) - self._assembly.environment.now_ms()) / 1000))
        return wait

    def _turn_limit(self) -> int:
        """The most records to poll, and to process per task, in this turn."""
        return min(CAREFUL_RECORDS, self._pace.limit) if self._refusals.careful else self._pace.limit

    def _process(self) -> None:
        now_ms = self._assembly.environment.now_ms()
        started = time.monotonic()
        processed = 0
        limit = self._turn_limit()
        self._behind = False
        until = started
        for task in self._executor.running:
            done = task.process(limit, now_ms)
            processed += done
            self._behind = self._behind or done >= limit
            task.punctuate(now_ms)
            began, until = until, time.monotonic()
            self._pace.processed_task(task, done, until - began)
        self._executor.balance()
        took = until - started
        self._pace.processed(processed, limit, took)
        if processed:
            self.metrics.processed(processed, took)
            self._garbage.processed(processed)
            self._committer.processed(processed)

    def _send(self) -> None:
        """Hand the output to the producer, unless it has to wait for the next transaction."""
        if self._committer.phase is CommitPhase.IDLE or (
            # Without transactions output need not wait for the next one; and the answer to the commit that is in flight
            # comes through the consumer, which is left alone while the outbox is full.
            self._committer.phase is CommitPhase.COMMITTING and not self.config.exactly_once
        ):
            self._collector.drain()

    # Failure and end ------------------------------------------------------------------------------------------

    def _watch_clients(self, assembly: Assembly) -> None:
        topic = next(iter(assembly.plan.partitions))
        self._reports.watch(
            {
                Line.READER: lambda timeout_s: answers(assembly.consumer, topic, timeout_s),
                Line.COPIER: lambda timeout_s: answers(assembly.copier, topic, timeout_s),
                Line.PRODUCER: lambda timeout_s: answers(self._collector.producer, topic, timeout_s),
            },
            lambda timeout_s: assembly.cluster.answers(topic, timeout_s),
        )

    def _replace_clients(self, dead: Collection[Line]) -> None:
        """Go on with new clients instead of those that do not find the brokers again.

        Raises:
            CommitFailed: the worker has to go back for it.
        """
        if not dead:
            return
        self.metrics.clients_replaced += len(dead)
        found = f"the brokers are back, but the client that {' and the one that '.join(dead)} does not find them"
        if set(dead) != {Line.COPIER}:
            raise CommitFailed(found)
        log.warning("%s; another one takes its place", found)
        self._executor.renew_copier()

    def _recover(self, error: Exception) -> None:
        """A transaction was aborted or its end is unknown: go back to what is committed."""
        fenced = (isinstance(error, CommitFailed) and error.fenced) or (
            # A fatal error says no more what it was once it was told.
            isinstance(error, KafkaException) and (is_fenced(error) or error.args[0].code() == KafkaError._FATAL)
        )
        open_s, timeout_s = self._collector.transaction_s, self.config.transaction_timeout_ms / 1000
        what = "fenced by another producer" if fenced else "a commit failed"
        if open_s > timeout_s:
            what = (
                f"the transaction was open for {open_s:.1f} s, so the broker has aborted it "
                f"('transaction.timeout.ms' is {timeout_s:.1f} s)"
            )
        cause = error.cause if isinstance(error, CommitFailed) else error.args[0]
        sink, positions = self._offset_sink, self._positions()
        if isinstance(cause, KafkaError) and isinstance(sink, TransactionCommitter) and positions:
            cause = sink.cause_of(cause, next(iter(positions.items())))
        log.warning("%s (%s); going back to the last commit", what, cause or error)
        self.metrics.recoveries += 1
        wait_s = self._failures.failed(cause if isinstance(cause, KafkaError) else None, self.metrics.commits)
        if isinstance(cause, KafkaError) and refuses(cause) and self._executor.running:
            self._refusals.met(cause, self._positions())
        self._stop.wait(wait_s)
        # Whoever fenced this worker, or refused a record, answered: there is nothing wrong with the connections.
        self._go_back(fenced=fenced, renew=not fenced and not self._refusals.careful)

    def _go_back(self, *, fenced: bool = False, renew: bool = False) -> None:
        self._close_offset_sink()
        self._collector.producer.purge()
        self._become(WorkerState.STARTING)
        self._adopt()
        self._behind = False
        self._reports.forget_fatal()
        if fenced:
            # Whoever did it gets the time to write whose the tasks are: two that take the id from each other at once
            # would go on doing so. Then that is looked up before the id is taken back.
            self._stop.wait(_RIVAL_WAIT_S)
            self._check_still_mine()
        self._start_producer()
        self._executor.go_back(renew=renew)
        if self._coordination is not None:
            self._coordination.went_back(self._assembly.plan)
        self._become(WorkerState.RESTORING)

    def _check_still_mine(self) -> None:
        """Without a coordinator tasks that are another's now end this worker; with one they are simply gone."""
        if self._coordination is None:
            executor = self._executor
            for task, where in executor.registrar.looked_up(executor.active_tasks).tasks.items():
                executor.claims.check_own(executor.held[task], where)

    def _rebuild(self, error: StateCorrupted) -> None:
        self._close_offset_sink()
        self._collector.producer.purge()
        self._become(WorkerState.STARTING)
        self._start_producer()
        self._executor.rebuild_corrupted(error)
        if self._coordination is not None:
            self._coordination.went_back(self._assembly.plan)
        self._become(WorkerState.RESTORING)

    def _leave(self) -> None:
        """Hand the tasks over, where somebody is there to take them."""
        coordination = self._coordination
        if coordination is None:
            return
        deadline = time.monotonic() + self.config.shutdown_timeout_ms / 1000
        self._leave_until = deadline
        coordination.leave()
        while not (coordination.may_leave and coordination.may_write()) and time.monotonic() < deadline:
            self._turn_or_recover()
        if coordination.rejected and not coordination.admitted_once:
            self._withdraw(coordination)

    def _withdraw(self, coordination: Coordination) -> None:
        """The coordinator refuses this worker for what it runs: hold nothing.

        What it processed is committed if it was ever let in, and aborted if not.
        """
        coordination.withdraws = False
        executor = self._executor
        if not executor.held:
            return
        log.warning("letting go of all tasks: the coordinator refuses what this worker runs")
        executor.keep_all()
        if coordination.admitted_once:
            self._finish()
            executor.globals.reread()
        executor.drop(list(executor.held))
        self._go_back()

    def _finish(self) -> None:
        """Commit what is processed, within the deadline."""
        if not self._may_write():
            log.warning(
                "no last commit: other workers may have the tasks by now; what is not committed is processed again"
            )
            return
        deadline = time.monotonic() + self.config.shutdown_timeout_ms / 1000
        committer = self._committer
        try:
            idle = committer.finish(deadline, _IN_FLIGHT_WAIT_S)
            if idle and committer.needed():
                self._collector.drain()
                committer.begin()
                idle = committer.finish(deadline, _IN_FLIGHT_WAIT_S)
        except (CommitFailed, KafkaException, OwnershipError) as error:
            log.warning("the last commit failed (%s); the next start processes its records again", error)
            return
        if not idle:
            log.warning("no answer to the last commit within the deadline; the next start finds out")

    def _adopt(self) -> None:
        """Read new inputs from here on, if there are any: tasks are made anew, and nothing waits for a commit."""
        plan, self._new_plan = self._new_plan, None
        if plan is not None:
            self._assembly = replace(self._assembly, plan=plan)
            self._executor.adopt(plan)

    def _say_goodbye(self) -> None:
        """The coordinator need not find out by silence."""
        if self._client is None or self._heartbeats is None or self._coordination is None:
            return
        self._coordination.leave()
        self._heartbeats.cancel()
        try:
            self.metrics.http.spawn(self._client.goodbye()).result(_GOODBYE_S)
        except (RuntimeError, TimeoutError, CancelledError) as error:
            log.info("the coordinator was not told of the end: %r", error)

    # For other threads ----------------------------------------------------------------------------------------

    def holding(self, task: TaskId) -> TaskView | None:
        """A task; None when the worker does not hold it. Safe from any thread."""
        held = self._executor.held.get(task)
        return None if held is None else held.view()

    @property
    def shut_out(self) -> str | None:
        """Why the coordinator has never let this worker in, or does not any more; None when it does, or there is none."""
        client = self._client
        if client is None or (client.connected_at is not None and not client.rejected):
            return None
        refusal = client.refusal
        return None if refusal is None else refusal.message

    def globals_ready(self) -> bool:
        """Whether the global stores have all that was in their topics when the worker started."""
        return self.state is WorkerState.RUNNING and not self._executor.globals.behind

    def call(self, function: Callable[[], T]) -> Future[T]:
        """Run a function in the loop, between two turns. Safe from any thread."""
        answer: Future[T] = Future()

        def run() -> None:
            if answer.set_running_or_notify_cancel():
                try:
                    answer.set_result(function())
                except BaseException as error:
                    answer.set_exception(error)

        self._calls.put(run)
        return answer

    def backend_of_store(self, store: str) -> Any:
        """Where a store's committed rows are.

        Raises:
            KeyError: the application has no such store.
        """
        return self._executor.stores.backend(store)

    def _close(self) -> None:
        self._say_goodbye()
        self._close_offset_sink()
        self._reports.close()
        self.contact.close()
        self._assembly.close()

    def _close_offset_sink(self) -> None:
        if self._offset_sink is not None:
            self._offset_sink.close()
            self._offset_sink = None


def _refused(error: KafkaException) -> BrokerError:
    return BrokerError(f"Kafka refused to go on: {error.args[0].str()}.")
