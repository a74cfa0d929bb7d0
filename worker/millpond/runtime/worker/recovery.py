"""Takes a worker back to its last commit: after a failed commit, a fenced producer, lost clients, or corrupted state.

A recovery repeats the start: the worker reads its committed offsets, restores its stores to them, and continues.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection
from dataclasses import replace

from confluent_kafka import KafkaError, KafkaException

from millpond.errors import BrokerError, StateCorrupted
from millpond.runtime import error_codes
from millpond.runtime.commit.pipeline import CommitFailed, TransactionCommitter, is_fenced
from millpond.runtime.commit.rejected_records import is_rejection
from millpond.runtime.error_codes import Kind, kind_of
from millpond.runtime.kafka.reconnect import WorkerClient
from millpond.runtime.missing_rights import Operation, Resource
from millpond.runtime.states import WorkerState

from .commit_failures import CommitFailures
from .parts import WorkerParts
from .producers import Producers

__all__ = ("FENCED_PAUSE_S", "Recovery")

log: logging.Logger = logging.getLogger(__name__)

#: How long a fenced worker waits before it takes its transactional id back, in seconds.
FENCED_PAUSE_S = 0.3
_TIMED_OUT = frozenset({error_codes.TIMED_OUT, error_codes.MSG_TIMED_OUT})
#: So many transactions of at most one record may be lost in a row.
_MAX_SMALLEST = 3


class Recovery:
    """The recovery of a worker, which takes it back to its last commit.

    Args:
        parts: the parts of the worker.
        producers: makes the next producer.
    """

    def __init__(self, parts: WorkerParts, producers: Producers) -> None:
        self._parts = parts
        self._producers = producers
        self._failures = CommitFailures()

    def recover(self, error: CommitFailed | KafkaException) -> None:
        """Go back after a commit that failed or whose result is unknown.

        Raises:
            MillpondError: a retry would fail as well, or the brokers do not answer.
        """
        parts = self._parts
        fenced = (isinstance(error, CommitFailed) and error.fenced) or (
            # The client reports the cause of a fatal error only once.
            isinstance(error, KafkaException) and (is_fenced(error) or error.args[0].code() == error_codes.FATAL)
        )
        cause, lacking = self._named(self._cause(error))
        late = self._late(error, cause)
        smaller = self._make_smaller() if late and not self._stood_still_s() else ""
        log.warning(
            "worker %s: %s (%s)%s; going back to the last commit",
            parts.config.worker_id, self._description(fenced=fenced), _words(cause or error),
            f"; {lacking.removesuffix('.')}" if lacking else smaller,
        )  # fmt: skip
        parts.metrics.recoveries += 1
        parts.metrics.commit_failed("timeout" if late else "fenced" if fenced else "error")
        wait_s = self._failures.failed(cause if isinstance(cause, KafkaError) else None, parts.metrics.commits, lacking)
        if late:
            # While a broker delays the producer, the next transaction would be lost as well.
            wait_s = max(wait_s, min(parts.throttling.left_s, self._timeout_s))
        if isinstance(cause, KafkaError) and _needs_care(cause, late=late) and parts.executor.running:
            parts.rejected.start(cause, parts.positions())
        parts.stop.wait(wait_s)
        parts.assembly.watch.hurry()  # offsets of a deleted topic cannot be committed
        parts.assembly.topic_ids.hurry()
        # A broker that fenced this worker or rejected a record is connected: the clients need not be replaced.
        self.go_back(fenced=fenced, renew=not fenced and not parts.rejected.careful)

    def _description(self, *, fenced: bool) -> str:
        if self._transaction_expired():
            open_s, timeout_s = self._parts.collector.transaction_s, self._timeout_s
            if stood_s := self._stood_still_s():
                return (
                    f"its process stood still for {stood_s:.1f} s, as by SIGSTOP or on a frozen node, so the broker "
                    f"has aborted its transaction ('transaction.timeout.ms' is {timeout_s:.1f} s): look for what "
                    "stopped the process; no record was slow"
                )
            return (
                f"the transaction was open for {open_s:.1f} s, so the broker has aborted it ('transaction.timeout.ms' "
                f"is {timeout_s:.1f} s)"
            )
        if fenced:
            return "fenced: another worker has taken tasks of it over, as after a pause in which it did not answer"
        return "a commit failed"

    @property
    def _timeout_s(self) -> float:
        return self._parts.config.transaction_timeout_ms / 1000

    def _transaction_expired(self) -> bool:
        return self._parts.collector.transaction_s > self._timeout_s

    def _stood_still_s(self) -> float:
        """Return for how long the process stood still during a transaction that was short otherwise, in seconds."""
        open_s = self._parts.collector.transaction_s
        stood_s = self._parts.standstills.since(time.monotonic() - open_s)
        return stood_s if open_s > self._timeout_s >= open_s - stood_s else 0.0

    def _late(self, error: CommitFailed | KafkaException, cause: object) -> bool:
        """Return whether a transaction was lost because it took too long."""
        if not self._parts.config.exactly_once:
            return False
        timed_out = isinstance(cause, KafkaError) and cause.code() in _TIMED_OUT
        return timed_out or self._transaction_expired() or (isinstance(error, CommitFailed) and error.late)

    def _make_smaller(self) -> str:
        """Let the next transactions have fewer records; return that as a clause.

        Raises:
            BrokerError: brokers throttle the producer so much that the smallest transaction is lost again and again.
        """
        parts, transactions, throttled_s = self._parts, self._parts.transactions, self._parts.throttling.longest_s
        records = transactions.lost()
        throttled = (
            f" brokers delayed the producer by up to {throttled_s:.1f} s because of a quota ('producer_byte_rate' or "
            f"'request_percentage')"
        )
        if throttled_s and transactions.lost_in_a_row >= _MAX_SMALLEST:
            raise BrokerError(
                f"{transactions.lost_in_a_row} transactions in a row took longer than 'transaction.timeout.ms' "
                f"({self._timeout_s:.1f} s), the last one with {records} input record{'' if records == 1 else 's'} and "
                f"{parts.collector.bytes} bytes of output:{throttled}. Raise the quota of this application's user or "
                f"client id, or 'transaction.timeout.ms'."
            )
        clause = f"; it had {records} input records, and the next ones have at most {transactions.limit}"
        if throttled_s:
            clause += f", since{throttled}"
            parts.blockers.add(
                "transactions",
                BrokerError(
                    f"a transaction took longer than 'transaction.timeout.ms' ({self._timeout_s:.1f} s):{throttled}. "
                    f"Raise the quota of this application's user or client id."
                ),
                0.0,
            )
        return clause

    def _cause(self, error: CommitFailed | KafkaException) -> object:
        cause = error.cause if isinstance(error, CommitFailed) else error.args[0]
        sink, positions = self._parts.offset_sink, self._parts.positions()
        if isinstance(cause, KafkaError) and isinstance(sink, TransactionCommitter) and positions:
            cause = sink.cause_of(cause, next(iter(positions.items())))
        return cause

    def _named(self, cause: object) -> tuple[object, str]:
        """Return a cause, and the sentence about the right that is missing; an empty one if none is.

        The cause of failed deliveries tells neither their topic nor that a right is missing: the brokers are asked.
        """
        if not isinstance(cause, KafkaError):
            return cause, ""
        lacking = self._parts.access.cure(cause) if kind_of(cause) is Kind.FORBIDDEN else ""
        if cause.code() not in (KafkaError.TOPIC_AUTHORIZATION_FAILED, error_codes.INCONSISTENT):
            return cause, lacking
        assembly, written = self._parts.assembly, self._parts.written_topics
        for topics, operation in ((written, Operation.WRITE), (set(assembly.plan.partitions), Operation.READ)):
            if denied := assembly.cluster.without_right(topics, operation):
                code = KafkaError.TOPIC_AUTHORIZATION_FAILED
                return KafkaError(code), self._parts.access.lacks(operation, Resource.TOPIC, *denied)
        return cause, lacking

    def go_back(self, *, fenced: bool = False, renew: bool = False) -> None:
        """Continue from the last commit, with a new producer.

        Args:
            fenced: whether another worker has fenced this one.
            renew: whether to replace the consumers, too.

        Raises:
            MillpondError: the brokers do not answer, or without a coordinator a task was taken over.
        """
        parts = self._parts
        self._drop_producer()
        self._adopt_new_plan()
        parts.behind = False
        parts.client_errors.forget_fatal()
        if fenced:
            # This gives the other worker the time to write the new owners: two workers that fence each other at once
            # would never stop. The owners are looked up before this worker takes its id back.
            parts.stop.wait(FENCED_PAUSE_S)
            self._check_still_owner()
        self._producers.start()
        parts.executor.go_back(renew=renew)
        self._continue()

    def rebuild(self, error: StateCorrupted) -> None:
        """Delete the local rows of a corrupted store, and continue from the last commit; raise as `go_back` does."""
        self._drop_producer()
        self._producers.start()
        self._parts.executor.rebuild_corrupted(error)
        self._continue()

    def replace_clients(self, lost: Collection[WorkerClient]) -> None:
        """Replace the clients that do not reconnect to the brokers.

        Raises:
            CommitFailed: the worker has to go back to its last commit for that.
        """
        if not lost:
            return
        parts = self._parts
        parts.metrics.clients_replaced += len(lost)
        reason = f"the brokers answer again, but the client that {' and the one that '.join(lost)} did not reconnect"
        if set(lost) != {WorkerClient.COPIER}:
            raise CommitFailed(reason)
        log.warning("%s; replacing it", reason)
        parts.executor.renew_copier()

    def _drop_producer(self) -> None:
        self._parts.transactions.forget()
        self._parts.close_offset_sink()
        self._parts.collector.producer.purge()
        self._parts.become(WorkerState.STARTING)

    def _continue(self) -> None:
        if self._parts.coordination is not None:
            self._parts.coordination.went_back(self._parts.assembly.plan)
        self._parts.become(WorkerState.RESTORING)

    def _check_still_owner(self) -> None:
        """Check that this worker still owns its tasks. With a coordinator, tasks of others are dropped later."""
        if self._parts.coordination is None:
            executor = self._parts.executor
            for task, lookup in executor.registrar.look_up_now(executor.active_tasks).tasks.items():
                executor.claims.check_own(executor.held[task], lookup)

    def _adopt_new_plan(self) -> None:
        """Use the new plan, if any: tasks are created again now, and no record waits for a commit."""
        parts = self._parts
        plan, parts.new_plan = parts.new_plan, None
        if plan is not None:
            parts.assembly = replace(parts.assembly, plan=plan)
            parts.executor.adopt(plan)


def _needs_care(cause: KafkaError, *, late: bool) -> bool:
    """Return whether to send records one by one: one was rejected, or nobody knows why one failed."""
    return is_rejection(cause) or (cause.code() == error_codes.INCONSISTENT and not late)


def _words(cause: object) -> object:
    """Return an error of the client in words, without the fields around them."""
    return cause.str() if isinstance(cause, KafkaError) else cause
