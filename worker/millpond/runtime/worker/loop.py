"""The worker's loop: each turn polls a batch, passes it to the tasks, lets them process, and advances the commit."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from queue import SimpleQueue

from confluent_kafka import Message

from millpond.runtime.commit.pipeline import CommitFailed, CommitPhase
from millpond.runtime.commit.rejected_records import CarefulCollector
from millpond.runtime.ownership.lookups import TakeOverAnswer
from millpond.runtime.restoring.changelog_reader import BATCH, BATCH_BESIDE_TASKS
from millpond.runtime.states import WorkerState
from millpond.runtime.tasks.coordination import Coordination
from millpond.runtime.tasks.instructions import GoBack, Withdraw

from .leaving import Leaving
from .parts import WorkerParts
from .polling import Polling
from .recovery import Recovery

__all__ = ("Loop",)

log: logging.Logger = logging.getLogger(__name__)

#: How long a task may take to start before the reason is logged, and the time until it is logged again, in seconds.
_EXPLAIN_S = 10.0
#: Changelog records per poll beside running tasks, and without them.
_COPY_RECORDS = 500
_RESTORE_RECORDS = 5_000
#: The maximum of records that wait in memory while turns are slow and nothing is sent before the commit.
_MAX_HELD_BACK = 50_000


class Loop:
    """The loop of one worker.

    Args:
        parts: the parts of the worker.
        polling: polls the worker's inputs.
        recovery: takes the worker back to its last commit.
        leaving: hands over, commits or drops the worker's tasks.

    Attributes:
        calls: functions from other threads, to run between two turns.
        last_turn: the start of the last turn, in monotonic seconds.
    """

    def __init__(self, parts: WorkerParts, polling: Polling, recovery: Recovery, leaving: Leaving) -> None:
        self.calls: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self.last_turn: float = time.monotonic()
        self._parts = parts
        self._polling = polling
        self._recovery = recovery
        self._leaving = leaving
        self._next_explanation = time.monotonic() + _EXPLAIN_S
        self._first = 0
        self._commits = 0

    def turn(self) -> None:
        """Run one turn.

        Raises:
            CommitFailed, KafkaException: the worker has to go back to its last commit.
            StateCorrupted: a store has to be rebuilt.
            MillpondError: the worker cannot continue.
        """
        parts = self._parts
        self.last_turn = now = time.monotonic()
        self._receive(now)
        parts.load.turn(now)
        self._settle()
        while not self.calls.empty():
            self.calls.get()()
        if not parts.may_write():
            return
        began = time.monotonic()
        self._work()
        parts.metrics.busy_seconds += time.monotonic() - began

    def _work(self) -> None:
        """Let the tasks process, send their output, and advance the commit."""
        parts = self._parts
        if isinstance(parts.collector, CarefulCollector):
            self._turn_carefully(parts.collector)
            return
        if parts.executor.running and not self._awaits_commit():
            self._process()
            if not parts.may_write():  # the process may have been frozen meanwhile
                return
            if not parts.pace.slow:
                self._send()
            elif len(parts.collector.outbox) >= _MAX_HELD_BACK:
                parts.committer.next_commit = 0.0
        self._advance()

    def _receive(self, now: float) -> None:
        """Handle errors of the clients, and read inputs and changelogs."""
        parts = self._parts
        if parts.client_errors.pending:
            lost = parts.client_errors.handle(parts.assembly.cluster, parts.assembly.plan)
            parts.assembly.topic_ids.hurry()
            self._recovery.replace_clients(lost)
        parts.assembly.topic_ids.turn(now)
        parts.new_plan = parts.assembly.watch.turn(now) or parts.new_plan
        messages = self._polling.poll(now)
        if messages:
            parts.metrics.polled(len(messages))
            parts.dispatcher.dispatch(messages)
        parts.metrics.busy_seconds += time.monotonic() - now - self._polling.waited_s
        if parts.executor.reader.restorations and not parts.controls.paused:
            self._copy(busy=bool(messages))

    def _awaits_commit(self) -> bool:
        """Return whether a commit has to begin or end before more records are processed.

        For a new plan, after slow turns, or because a transaction may have no more records.
        """
        parts, committer = self._parts, self._parts.committer
        if parts.new_plan is not None:
            committer.next_commit = 0.0
            return True
        if parts.transactions.full:
            committer.next_commit = 0.0
            return committer.phase is not CommitPhase.IDLE or committer.needed()
        if not parts.pace.slow or (committer.phase is CommitPhase.IDLE and not parts.collector.in_transaction):
            return False
        if committer.phase is CommitPhase.IDLE:
            committer.next_commit = 0.0
            return committer.needed()
        return True

    def _advance(self) -> None:
        parts, committer = self._parts, self._parts.committer
        started = time.monotonic()
        committer.flushes_first = parts.pace.slow
        committer.advance(started)
        parts.pace.flushed(time.monotonic() - started)
        if self._commits != parts.metrics.commits:
            self._commits = parts.metrics.commits
            parts.throttling.reset()
            parts.blockers.remove("transactions")
        if parts.new_plan is not None and committer.phase is CommitPhase.IDLE and not committer.needed():
            self._recovery.go_back()

    def _copy(self, *, busy: bool) -> None:
        """Read changelogs into stores. Beside running tasks this takes only a part of the turn."""
        parts = self._parts
        copier, executor = parts.assembly.copier, parts.executor
        limit = _COPY_RECORDS if busy else _RESTORE_RECORDS
        executor.reader.batch = BATCH_BESIDE_TASKS if busy else BATCH
        # As long as tasks took in the last turn: copies with a lag get half of the loop, so that they catch up.
        until = time.monotonic() + parts.pace.processing_s if busy else 0.0
        while True:
            messages: list[Message] = copier.consume(limit, 0)
            if messages:
                parts.dispatcher.copied(messages)
            if executor.reader.expired:
                executor.reopen_expired()
            if len(messages) < limit or time.monotonic() >= until:
                return

    def _settle(self) -> None:
        """Handle answers to lookups and of the coordinator, and start restored tasks."""
        parts, executor, coordination = self._parts, self._parts.executor, self._parts.coordination
        executor.look_at_ends()
        executor.take_in_snapshots()
        for answer in executor.registrar.answers():
            if isinstance(answer, TakeOverAnswer):
                if coordination is not None:
                    coordination.taken_over(answer)
            elif coordination is None or not coordination.looked_up(answer):
                executor.looked_up(answer)
        if coordination is not None:
            self._follow(coordination)
        if not executor.globals.behind:
            if not executor.settled:
                executor.start_restored()
                self._explain()
            if parts.state is WorkerState.RESTORING and executor.settled:
                parts.become(WorkerState.RUNNING)

    def _follow(self, coordination: Coordination) -> None:
        """Follow the coordinator's answer, and report to it."""
        coordination.turn(time.monotonic())
        for instruction in coordination.for_the_loop():
            match instruction:
                case Withdraw():
                    self._leaving.withdraw()
                case GoBack():
                    raise CommitFailed("tasks of this worker were taken over", fenced=True)

    def _explain(self) -> None:
        """Log why tasks are not running yet, every 10 s."""
        now = time.monotonic()
        if now >= self._next_explanation:
            self._next_explanation = now + _EXPLAIN_S
            for line in self._parts.executor.unsettled(_EXPLAIN_S):
                log.warning("%s", line)
                self._parts.client_errors.check_clients()

    def _turn_carefully(self, collector: CarefulCollector) -> None:
        """Process a small batch and commit it, until everything in flight at the first rejection is handled."""
        parts, executor, committer, rejected = (
            self._parts, self._parts.executor, self._parts.committer, self._parts.rejected,
        )  # fmt: skip
        if executor.globals.behind or not collector.settle():
            return
        if committer.phase is CommitPhase.IDLE:
            # Running tasks do not wait for one that is still being restored: they continue in careful mode.
            if rejected.is_behind(parts.positions()) or rejected.is_pending(executor.inputs_to_come()):
                self._process()
                if not parts.may_write():
                    return
                self._send()
                if not collector.settle():
                    return
            elif not committer.needed():
                rejected.finish()
                self._recovery.go_back()
                return
            committer.next_commit = 0.0
        self._advance()

    def _process(self) -> None:
        parts = self._parts
        pace = parts.pace
        now_ms = parts.assembly.environment.now_ms()
        started = until = time.monotonic()
        processed = 0
        limit = self._polling.limit
        room = parts.transactions.room
        running = parts.executor.running
        if room is not None and running:
            # The tasks take turns, so that each gets a part of small transactions.
            self._first = (self._first + 1) % len(running)
            running = [*running[self._first :], *running[: self._first]]
        parts.behind = False
        if parts.controls.paused:
            parts.executor.balance()
            return
        for task in running:
            done = task.process(limit if room is None else min(limit, room - processed), now_ms)
            processed += done
            full = room is not None and processed >= room
            parts.behind = parts.behind or done >= limit or task.cut_short or full
            task.punctuate(now_ms)
            began, until = until, time.monotonic()
            pace.processed_task(task, done, until - began)
        parts.executor.balance()
        took = until - started
        pace.processed(processed, limit, took)
        if processed:
            parts.metrics.processed(processed, took)
            parts.garbage.processed(processed)
            parts.committer.processed(processed)

    def _send(self) -> None:
        """Pass the output to the producer, unless it has to wait for the next transaction."""
        parts, phase = self._parts, self._parts.committer.phase
        if phase is CommitPhase.IDLE or (
            # Without transactions output need not wait; and the answer to the commit in flight comes through the
            # consumer, which is not polled while the outbox is full.
            phase is CommitPhase.COMMITTING and not parts.config.exactly_once
        ):
            parts.collector.drain()
