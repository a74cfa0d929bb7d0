"""Polls the inputs: how many records at a time, and how long to wait for them."""

from __future__ import annotations

import time
from collections.abc import Callable

from confluent_kafka import Message

from millpond.runtime.commit.pipeline import CommitPhase
from millpond.runtime.commit.rejected_records import CAREFUL_RECORDS

from .parts import COMMIT_POLL_S, WorkerParts

__all__ = ("Polling",)

#: The longest wait while a task does not run yet, in seconds.
_UNSETTLED_WAIT_S = 0.002
#: The longest wait while the coordinator or a query may need an answer, in seconds.
_COORDINATION_WAIT_S = 0.01


class Polling:
    """The polling of a worker's inputs.

    Args:
        parts: the parts of the worker.
        answers_queries: returns whether other workers or clients may query this one.

    Attributes:
        waited_s: how long the last poll waited for records, in seconds.
    """

    def __init__(self, parts: WorkerParts, *, answers_queries: Callable[[], bool]) -> None:
        self._parts = parts
        self._answers_queries = answers_queries
        self.waited_s: float = 0.0

    @property
    def limit(self) -> int:
        """The maximum number of records to poll, and to process per task, in one turn."""
        pace_limit = self._parts.pace.limit
        return min(CAREFUL_RECORDS, pace_limit) if self._parts.rejected.careful else pace_limit

    def poll(self, now: float) -> list[Message]:
        """Return polled messages; wait for them only if the loop has no other work.

        Args:
            now: monotonic seconds.
        """
        self.waited_s = 0.0
        parts = self._parts
        consumer, committer = parts.assembly.consumer, parts.committer
        waits = (parts.pace.slow or parts.transactions.full) and committer.phase is not CommitPhase.IDLE
        if waits or committer.pauses_reading() or not parts.may_write():
            # One record rather than none: offset commits are confirmed through the consumer.
            held: list[Message] = consumer.consume(1, COMMIT_POLL_S)
            return held
        limit = self.limit
        messages: list[Message] = consumer.consume(limit, 0)
        if not messages and committer.phase is CommitPhase.DELIVERING:
            # Nothing else to do: waiting for the deliveries makes the client send at once.
            parts.collector.hasten()
            return consumer.consume(limit, 0)
        if messages or (parts.behind and not parts.rejected.careful):
            return messages
        wait_s, began = self._longest_wait(now), time.monotonic()
        messages = consumer.consume(1, wait_s)
        self.waited_s = time.monotonic() - began
        if messages:
            messages += consumer.consume(max(1, limit - 1), 0)
        return messages

    def _longest_wait(self, now: float) -> float:
        """Return the time in seconds until the loop has other work than records."""
        parts, executor = self._parts, self._parts.executor
        wait = parts.config.poll_ms / 1000
        if parts.committer.phase is not CommitPhase.IDLE:
            wait = min(wait, COMMIT_POLL_S)
        elif parts.committer.needed():
            wait = min(wait, max(0.0, parts.committer.next_commit - now))
        if not executor.settled or executor.globals.behind:
            wait = min(wait, _UNSETTLED_WAIT_S)
        elif parts.coordination is not None or self._answers_queries():
            wait = min(wait, _COORDINATION_WAIT_S)
        due = [each for task in executor.running if (each := task.next_wall_clock_due()) is not None]
        if due and not parts.controls.paused:
            wait = min(wait, max(0.0, (min(due) - parts.assembly.environment.now_ms()) / 1000))
        return wait
